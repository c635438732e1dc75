package bench_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// testInterruptedServer ends the bench of a dispatcher that goes on: it leaves
// neither source nor queue rule there.
func testInterruptedServer(t *testing.T, path string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server := serve(ctx, t, path)
	cmd := exec.CommandContext(ctx, path, "bench", "--server", server, "--only", "throughput", "--workload", "A", "--batch", "1", "--collectors", "1", "--duration", "10s", "--repeats", "3")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	left := func() string {
		var all strings.Builder
		for _, args := range [][]string{{"source", "list"}, {"queue", "rule", "list"}} {
			text, err := exec.CommandContext(ctx, path, append(args, "--server", server)...).Output()
			if err != nil {
				t.Fatalf("%v: %v", args, err)
			}
			all.Write(text)
		}
		return all.String()
	}
	for text := left(); strings.Contains(text, "no sources") || strings.Contains(text, "no rules"); text = left() {
		if ctx.Err() != nil {
			t.Fatal("the bench makes no source")
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted bench exits 0")
	}
	if text := left(); !strings.Contains(text, "no sources") || !strings.Contains(text, "no rules") {
		t.Errorf("the bench left\n%s", text)
	}
}

// serve runs a dispatcher, and gives its address.
func serve(ctx context.Context, t *testing.T, path string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, path, "serve", "--store", "memory", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			var line struct{ Msg, GRPC string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
				found <- line.GRPC
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only when it has gone
		<-read
		_ = cmd.Wait() // it was killed
	})
	select {
	case server := <-found:
		return server
	case <-ctx.Done():
		t.Fatal("the dispatcher does not listen")
		return ""
	}
}
