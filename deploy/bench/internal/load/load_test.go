package load_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
	"github.com/waggle-crawl/waggle/deploy/bench/internal/loadtest"
)

// TestLoad works on some tasks, then on the rest, and leaves nothing.
func TestLoad(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	node, err := load.StartNode(t.Context(), load.Config{Program: loadtest.Program(t, "../../../.."), Memory: true, Processors: 1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := load.Open(t.Context(), node.Address, load.Workload{Queues: 10, Sources: 2, InFlight: 1, Batch: 7, Collectors: 5})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Submit(t.Context(), 300, 32); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Work(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	done, err := l.Work(t.Context(), 200)
	if err != nil {
		t.Fatal(err)
	}
	if len(done.Fetches) < 200/7 {
		t.Errorf("%d fetches got 200 tasks, 7 each at most", len(done.Fetches))
	}
	if err := l.CheckDone(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := l.Submit(t.Context(), 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := l.CheckDone(t.Context()); err == nil {
		t.Error("with a task left all are done")
	}
	if cpu, err := node.CPU(); err != nil || cpu.Redis != 0 {
		t.Errorf("without a Redis CPU = %+v, %v", cpu, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := node.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Clean(os.Getenv("TMPDIR"))); err != nil || len(left) > 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
}
