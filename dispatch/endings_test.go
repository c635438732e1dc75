package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// stuckEndings is a store of which, once it hangs, nobody gets an answer who ends a
// session or gives a grant back, or reads a source, until they have enough of it.
type stuckEndings struct {
	dispatch.Store

	mu      sync.Mutex // guards what follows
	hangs   bool
	waiting int
	most    int // that waited at once
}

func (s *stuckEndings) set(hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = hangs
}

func (s *stuckEndings) wait(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hangs {
		return nil
	}
	s.waiting++
	s.most = max(s.most, s.waiting)
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.waiting--
	return ctx.Err()
}

func (s *stuckEndings) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.EndSession(ctx, shard, collector, keep, limit)
}

func (s *stuckEndings) GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error) {
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	return s.Store.GiveBack(ctx, shard, collector, clientToken, call)
}

func (s *stuckEndings) SourcesByID(ctx context.Context, ids []string) ([]*dispatch.Source, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.SourcesByID(ctx, ids)
}

func inStuckEndings(t *testing.T, test func(t *testing.T, w *world, store *stuckEndings)) {
	t.Helper()
	store := &stuckEndings{}
	wrap := func(inner dispatch.Store) dispatch.Store {
		store.Store = inner
		return store
	}
	inWorld(t, setup{wrap: wrap}, func(t *testing.T, w *world) { test(t, w, store) })
}

// The first call of a collector's new session answers in time whatever becomes of the
// older one, of which the leases end once the store answers again.
func TestDispatcher_beginSession_hangs(t *testing.T) {
	t.Parallel()
	const deadline = 2 * time.Second
	for name, call := range map[string]func(ctx context.Context, w *world) error{
		"beat": func(ctx context.Context, w *world) error {
			_, err := w.d[0].Beat(ctx, dispatch.CollectorInfo{ID: "c", Session: "s2"}, nil)
			return err
		},
		"fetch": func(ctx context.Context, w *world) error {
			req := ask("c", "new", time.Second)
			req.Session = "s2"
			_, err := w.d[0].Fetch(ctx, req)
			return err
		},
	} {
		t.Run(name+" with a deadline", func(t *testing.T) {
			t.Parallel()
			inStuckEndings(t, func(t *testing.T, w *world, store *stuckEndings) {
				w.source("s", nil)
				w.submit("s", "", 1, 0)
				w.mustFetch(ask("c", "", 0))
				store.set(true)
				for range 5 {
					ctx, within, cancel := withDeadline(t.Context(), deadline)
					if err := call(within, w); err != nil || ctx.Err() != nil {
						t.Errorf("%v, ctx: %v; want an answer before the deadline", err, ctx.Err())
					}
					cancel()
				}
				store.set(false)
				time.Sleep(5 * time.Second)
				if err := call(t.Context(), w); err != nil {
					t.Error(err)
				}
				if store.most != 1 {
					t.Errorf("%d calls of the store at once to end one session", store.most)
				}
				held, _, err := w.store.ListLeases(t.Context(), "", 10)
				if err != nil || len(held) > 0 && held[0].Lease.Token.ClientToken != "new" {
					t.Errorf("leases of the older session stand: %+v, %v", held, err)
				}
			})
		})
		t.Run(name+" whose caller goes", func(t *testing.T) {
			t.Parallel()
			inStuckEndings(t, func(t *testing.T, w *world, store *stuckEndings) {
				w.knownAt(0, "c")
				store.set(true)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- call(ctx, w) }()
				synctest.Wait()
				cancel()
				synctest.Wait()
				select {
				case err := <-ended:
					if !errors.Is(err, context.Canceled) {
						t.Errorf("%v, want that it was canceled", err)
					}
				default:
					t.Errorf("the call goes on without its caller, to %v", <-ended)
				}
			})
		})
	}
}

// A fetch of which the grant cannot be completed answers in time though it cannot be given
// back either.
func TestDispatcher_Fetch_giveBackHangs(t *testing.T) {
	t.Parallel()
	inStuckEndings(t, func(t *testing.T, w *world, store *stuckEndings) {
		w.source("s", nil)
		w.submit("s", "", 1, 0)
		time.Sleep(2 * time.Second) // what is known of the source grows old
		store.set(true)
		ctx, call, cancel := withDeadline(t.Context(), 2*time.Second)
		defer cancel()
		if res, err := w.d[0].Fetch(call, ask("c", "", time.Second)); !errors.Is(err, dispatch.ErrStoreUnavailable) || ctx.Err() != nil {
			t.Errorf("%+v, %v, ctx: %v; want that the store is unavailable, before the deadline", res, err, ctx.Err())
		}
		store.set(false)
		time.Sleep(6 * time.Second)
		if gaveBack, _, _ := w.seen[0].read(); gaveBack != 1 {
			t.Errorf("%d tasks were given back, want 1", gaveBack)
		}
	})
}

// However many sessions begin while the store hangs, so many ends of older ones are under
// way, and later calls make up for the others.
func TestDispatcher_beginSession_bounded(t *testing.T) {
	t.Parallel()
	inStuckEndings(t, func(t *testing.T, w *world, store *stuckEndings) {
		const most, collectors = 10_000, 10_100
		begin := func(session string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for i := range collectors {
				wg.Go(func() {
					if _, err := w.d[0].Beat(ctx, dispatch.CollectorInfo{ID: fmt.Sprint("c", i), Session: session}, nil); err != nil {
						t.Errorf("Beat: %v", err)
					}
				})
			}
			wg.Wait()
		}
		begin("s1")
		store.set(true)
		begin("s2")
		if store.most != most {
			t.Errorf("%d ends of older sessions under way at once, want %d", store.most, most)
		}
		store.set(false)
		time.Sleep(time.Minute)
		begin("s2") // what was left is made up for
		begin("s2")
		ends := w.spies[0].count("EndSession")
		begin("s2")
		synctest.Wait()
		if n := w.spies[0].count("EndSession") - ends; n != 0 {
			t.Errorf("%d sessions were ended again", n)
		}
	})
}
