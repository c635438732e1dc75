package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// programs are what the tests start, built before the first and removed after the last.
var programs struct {
	client string // the client program of the Go package
	waggle string
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "waggle-conformance-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is a temporary directory
	programs.client, programs.waggle = filepath.Join(dir, "client"), filepath.Join(dir, "waggle")
	for program, source := range map[string]string{programs.client: "./clients/go", programs.waggle: "../../cmd/waggle"} {
		if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
			panic(fmt.Sprintf("build %s: %v: %s", source, err, out))
		}
	}
	m.Run()
}

// serve starts a dispatcher and returns its address. It is killed when the test ends.
func serve(t *testing.T, store string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	cmd := exec.Command(programs.waggle, "serve", "--store", store, "--listen", address, "--http", "off", "--log-level", "error")
	cmd.Stderr, cmd.WaitDelay = os.Stderr, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	})
	return address
}
