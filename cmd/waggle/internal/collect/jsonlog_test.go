package collect_test

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
)

// What Go's HTTP client reports by the standard logger is a line of the JSON log too. A site makes it do so that answers a
// request twice.
func TestCollect_StandardLog(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s")
	clitest.Command(t, env, "source", "create", "site", "--seed", "http://"+answersTwice(t)+"/")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stderr := clitest.NewStream()
	collect := exec.CommandContext(t.Context(), program, "collect", "--server", env["WAGGLE_SERVER"], "--contact", "me@example.com", "--allow-private")
	collect.Stderr = stderr
	if err := collect.Start(); err != nil {
		t.Fatal(err)
	}
	stderr.Line(t, `Unsolicited response received on idle HTTP channel`)
	if err := collect.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := collect.Wait(); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(stderr.Text()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("among lines of JSON: %q", line)
		}
	}
}

// answersTwice is the address of a site that sends two answers for each request.
func answersTwice(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // what it serves has ended
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for requests := bufio.NewReader(conn); ; {
					if _, err := http.ReadRequest(requests); err != nil {
						return
					}
					answer := "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nok"
					if _, err := conn.Write([]byte(answer + answer)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}
