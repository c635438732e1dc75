package load_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/deploy/load"
	"github.com/waggle-crawl/waggle/deploy/load/loadtest"
)

// TestRun works on tasks in every way, on both stores, and leaves nothing.
func TestRun(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	program := loadtest.Program(t)
	w := load.Workload{Queues: 10, Sources: 2, InFlight: 1, Batch: 7, Collectors: 5}
	for _, memory := range []bool{true, false} {
		err := load.Run(t.Context(), load.Config{Program: program, Memory: memory, Processors: 1}, w, func(_ *load.Node, l *load.Load) error {
			if _, err := l.Submit(t.Context(), 300, 32); err != nil {
				return err
			}
			done, err := l.Work(t.Context(), 299)
			if err != nil {
				return err
			}
			if len(done.Fetches) < 299/7 || len(done.Reports) != len(done.Fetches) || done.Took <= 0 {
				t.Errorf("299 tasks in fetches of 7: %d fetches, %d reports, in %v", len(done.Fetches), len(done.Reports), done.Took)
			}
			if memory && done.Used.Redis != 0 {
				t.Errorf("without a Redis it used %v", done.Used.Redis)
			}
			if _, err := l.Work(t.Context(), 1); err != nil {
				return err
			}
			lags, err := l.Wake(t.Context(), 10, time.Millisecond)
			if err != nil {
				return err
			}
			for _, lag := range lags {
				if lag <= 0 {
					t.Errorf("a task was handed out %v after it was submitted", lag)
				}
			}
			if _, err := l.EmptyCalls(t.Context(), 20); err != nil {
				return err
			}
			if err := l.CheckDone(t.Context()); err != nil {
				return err
			}
			if _, err := l.Submit(t.Context(), 1, 1); err != nil {
				return err
			}
			if err := l.CheckDone(t.Context()); err == nil {
				t.Error("with a task left all are done")
			}
			return nil
		})
		if err != nil {
			t.Errorf("memory %v: %v", memory, err)
		}
	}
	failed := errors.New("as told")
	err := load.Run(t.Context(), load.Config{Program: program, Memory: true}, w, func(*load.Node, *load.Load) error { return failed })
	if !errors.Is(err, failed) {
		t.Errorf("a run that failed gives %v", err)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
}
