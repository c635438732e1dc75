package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// programs are what the tests start.
var programs builds

// builds are programs, built before the first test and removed after the last.
type builds struct {
	client string // the client program of the Go package
	waggle string
	tests  *testing.M
}

func TestMain(m *testing.M) {
	programs.tests = m
	goleak.VerifyTestMain(&programs)
}

// Run builds the programs and runs the tests.
func (b *builds) Run() int {
	dir, err := os.MkdirTemp("", "waggle-conformance-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is a temporary directory
	b.client, b.waggle = filepath.Join(dir, "client"), filepath.Join(dir, "waggle")
	for program, source := range map[string]string{b.client: "./clients/go", b.waggle: "../../cmd/waggle"} {
		if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
			panic(fmt.Sprintf("build %s: %v: %s", source, err, out))
		}
	}
	return b.tests.Run()
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
