package redistest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// childVariable tells TestServer_ProcessKilled that it runs in the process that is going to be killed.
const childVariable = "REDISTEST_CHILD"

// TestServer_ProcessKilled starts a server from a test process of its own and kills that process: no cleanup runs there,
// and the server must go all the same.
func TestServer_ProcessKilled(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		s := redistest.Start(t)
		fmt.Fprintln(os.Stdout, "server", s.Dir())
		_, err := io.ReadAll(os.Stdin) // until killed
		t.Fatalf("the process was not killed: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServer_ProcessKilled$")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	_, named := fmt.Fscanf(out, "server %s\n", &dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
	if named != nil {
		t.Fatalf("the child named no server: %v", named)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	await(t, "the server's end", func() bool {
		conn, err := net.Dial("unix", filepath.Join(dir, "s"))
		if err == nil {
			err = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}
