package dispatch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// stuckReads is a store that, once it hangs, lets those who read sources and rules wait
// until they have enough of it, as a client does of which all connections are in use.
type stuckReads struct {
	dispatch.Store

	hangs atomic.Bool
}

func (s *stuckReads) wait(ctx context.Context) error {
	if !s.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *stuckReads) SourcesByID(ctx context.Context, ids []string) ([]*dispatch.Source, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.SourcesByID(ctx, ids)
}

func (s *stuckReads) Rules(ctx context.Context) ([]dispatch.QueueRule, int64, error) {
	if err := s.wait(ctx); err != nil {
		return nil, 0, err
	}
	return s.Store.Rules(ctx)
}

// inStuckWorld runs a test with a task that c1 holds, of a source of which what was known
// has grown old, on a store whose reads hang.
func inStuckWorld(t *testing.T, test func(t *testing.T, w *world, held dispatch.Grant)) {
	t.Helper()
	store := &stuckReads{}
	wrap := func(inner dispatch.Store) dispatch.Store {
		store.Store = inner
		return store
	}
	inWorld(t, setup{wrap: wrap}, func(t *testing.T, w *world) {
		w.source("s", func(s *dispatch.SourceSpec) { s.Follow = &dispatch.Follow{AllowHosts: []string{"*"}} })
		held := w.grants("s", "q", 1)[0]
		time.Sleep(2 * time.Second)
		store.hangs.Store(true)
		test(t, w, held)
		store.hangs.Store(false)
		time.Sleep(6 * time.Second) // reads that nobody waits for have ended
	})
}

// What a call reads that is not merged with what others read ends in time, too, and as
// what it is.
func TestDispatcher_readsHang(t *testing.T) {
	t.Parallel()
	links := &dispatch.Succeeded{Discovered: []dispatch.DiscoveredItem{{Key: "link", Queue: "q", Priority: 5}}}
	for name, call := range map[string]func(ctx context.Context, w *world, held dispatch.Grant) error{
		"a fetch from a source": func(ctx context.Context, w *world, _ dispatch.Grant) error {
			req := ask("c2", "", bounds.MaxWait)
			req.Sources = []string{"s"}
			_, err := w.d[0].Fetch(ctx, req)
			return err
		},
		"a report of links": func(ctx context.Context, w *world, held dispatch.Grant) error {
			_, err := w.d[0].Report(ctx, "c1", []dispatch.Report{{ID: held.Task.ID, Token: held.Token, Succeeded: links}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inStuckWorld(t, func(t *testing.T, w *world, held dispatch.Grant) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := call(ctx, w, held); !errors.Is(err, dispatch.ErrStoreUnavailable) || ctx.Err() != nil {
					t.Errorf("%v; want the store to be unavailable, in time", err)
				}
			})
		})
	}
}

// A report that fails is settled by what was known last of its source.
func TestDispatcher_Report_sourceHangs(t *testing.T) {
	t.Parallel()
	inStuckWorld(t, func(t *testing.T, w *world, held dispatch.Grant) {
		failed := dispatch.Report{ID: held.Task.ID, Token: held.Token, Failed: &dispatch.Failed{Reason: 1, Permanent: true}}
		if results, err := w.d[0].Report(t.Context(), "c1", []dispatch.Report{failed}); err != nil || results[0].Code != engine.ReportOK {
			t.Errorf("%+v, %v; want it settled", results, err)
		}
	})
}

// The timers by which calls end ahead of their callers' deadlines are used again: each
// call ends by its own.
func TestDispatcher_Report_endsInTimeAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		w.submit("s", "", 4, 0)
		report := func() error {
			g := w.mustFetch(ask("c1", "", 0)).Tasks[0]
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := w.d[0].Report(ctx, "c1", []dispatch.Report{{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1}}})
			return err
		}
		for range 3 {
			if err := report(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		w.spies[0].set(func(s *spy) {
			s.fail = func(call string) error {
				if call == "Tasks" {
					time.Sleep(4 * time.Second)
				}
				return nil
			}
		})
		began := time.Now()
		err := report()
		if took := time.Since(began); !errors.Is(err, dispatch.ErrStoreUnavailable) || took != 1800*time.Millisecond {
			t.Errorf("%v after %v; want the store to be unavailable after 1.8s", err, took)
		}
		time.Sleep(time.Minute) // the call that hangs ends
	})
}
