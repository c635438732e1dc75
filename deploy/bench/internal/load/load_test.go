package load_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
	"github.com/waggle-crawl/waggle/deploy/bench/internal/load/loadtest"
)

// testHeld holds tasks for longer than their leases last, and reports them.
func testHeld(t *testing.T, l *load.Load) {
	t.Helper()
	if _, err := l.Submit(t.Context(), 10, 10); err != nil {
		t.Fatal(err)
	}
	if o, err := l.Fetch(t.Context(), 10); err != nil || len(o.Reports) != 0 {
		t.Fatalf("%d calls reported what was to be held, %v", len(o.Reports), err)
	}
	const times, period = 5, 300 * time.Millisecond
	if o, err := l.Renew(t.Context(), times, period); err != nil || o.Took < times*period {
		t.Errorf("renewed for %v, want %v (%v)", o.Took, times*period, err)
	}
	if _, err := l.Report(t.Context()); err != nil {
		t.Errorf("report what was held: %v", err)
	}
}

// TestRun works on tasks in every way, on both stores, and leaves nothing.
func TestRun(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	program := loadtest.Program(t)
	w := load.Workload{Queues: 10, Sources: 2, InFlight: 1, Batch: 7, Collectors: 5, Pause: time.Millisecond, Lease: time.Second, URLBytes: 90}
	for _, cfg := range []load.Config{{Store: load.StoreMemory}, {Store: load.StoreFile}, {Processors: 1}, {TCP: 1}, {TCP: 3}} {
		cfg.Program = program
		err := load.Run(t.Context(), cfg, w, func(_ *load.Node, l *load.Load) error {
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
			if (cfg.Store != "") != (done.Used.Redis == 0) || done.Used.Dispatcher == 0 {
				t.Errorf("%+v used %+v", cfg, done.Used)
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
			testHeld(t, l)
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
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	failed := errors.New("as told")
	err := load.Run(t.Context(), load.Config{Program: program, Store: load.StoreMemory}, w, func(*load.Node, *load.Load) error { return failed })
	if !errors.Is(err, failed) {
		t.Errorf("a run that failed gives %v", err)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
}
