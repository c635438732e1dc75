package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func TestDispatcher_Fetch_sessions(t *testing.T) {
	t.Parallel()

	for _, heard := range []bool{true, false} {
		t.Run(fmt.Sprintf("a parked fetch of an older session wins nothing, hint heard: %t", heard), func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{dispatchers: 2, shards: 2}, func(t *testing.T, w *world) {
				w.source("s", nil)
				if !heard {
					w.inject(drop(calls("Publish")))
				}
				w.submit("s", "held", 1, 0)
				held := w.mustFetch(ask("c", "", 0)).Tasks[0]
				zombie := w.fetch(t.Context(), 1, ask("c", "old", bounds.MaxWait))
				synctest.Wait()
				req := ask("c", "new", bounds.MaxWait)
				req.Session = "s2"
				began := time.Now()
				// The lease of the old session is ended, and its task is handed
				// to the new one.
				res, err := w.d[0].Fetch(t.Context(), req)
				if err != nil || len(res.Tasks) != 1 || res.Tasks[0].Task.ID != held.Task.ID {
					t.Fatalf("Fetch of the new session: %+v, %v", res, err)
				}
				if took := time.Since(began); took > 1100*time.Millisecond {
					t.Errorf("the held task went to the new session after %v", took)
				}
				if e := res.Tasks[0].Task.Counters.Expirations; e != 1 {
					t.Errorf("expirations %d, want 1", e)
				}
				fresh := w.submit("s", "", 1, 0)[0]
				if a := <-zombie; !errors.Is(a.err, dispatch.ErrCollectorReplaced) {
					t.Errorf("fetch of the old session: %+v, %v; want ErrCollectorReplaced", a.res, a.err)
				}
				if got := w.mustFetch(ask("other", "", 0)).Tasks[0].Task.ID; got != fresh {
					t.Errorf("fetched %s, want %s", got, fresh)
				}
				if _, err := w.d[1].Fetch(t.Context(), ask("c", "", 0)); !errors.Is(err, dispatch.ErrCollectorReplaced) {
					t.Errorf("later fetch of the old session: %v, want ErrCollectorReplaced", err)
				}
			})
		})
	}

	t.Run("parked fetches of an older session end at once, at every dispatcher", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
			w.source("s", nil)
			var zombies []<-chan answer
			for i := range w.d {
				zombies = append(zombies, w.fetch(t.Context(), i, ask("c", fmt.Sprintf("old%d", i), bounds.MaxWait)))
			}
			synctest.Wait()
			began := time.Now()
			// Nothing comes that they could take.
			if _, err := w.d[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c", Session: "s2"}, nil); err != nil {
				t.Fatal(err)
			}
			for i, zombie := range zombies {
				if a := <-zombie; !errors.Is(a.err, dispatch.ErrCollectorReplaced) || a.at.Sub(began) > 10*time.Millisecond {
					t.Errorf("fetch at dispatcher %d: %v after %v; want ErrCollectorReplaced at once", i, a.err, a.at.Sub(began))
				}
			}
		})
	})

	t.Run("the news of a session that was replaced meanwhile ends no fetch of the one that did it", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			req := ask("c", "", bounds.MaxWait)
			req.Session = "s3"
			parked := w.fetch(t.Context(), 0, req)
			synctest.Wait()
			if err := w.store.Publish(t.Context(), dispatch.Hint{Kind: dispatch.HintSession, ID: "c", Session: "s2"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			w.submit("s", "", 1, 0)
			// It may be answered at once that there is nothing, but not that it was replaced.
			if a := <-parked; a.err != nil {
				t.Errorf("%+v, %v; want no error", a.res, a.err)
			} else if len(a.res.Tasks) == 0 {
				w.mustFetch(req)
			}
		})
	})

	t.Run("the next beat ends the leases that were left when shards were in trouble", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{shards: 4}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 20, 0)
			w.hold("c", 20)
			home := dispatch.ShardOf(dispatch.SlotOf("c"), 4)
			w.inject(fail(dispatch.ErrStoreUnavailable, calls("EndSession"), func(c *call) bool { return c.shards[0] != home }))
			info := dispatch.CollectorInfo{ID: "c", Session: "s2"}
			if _, err := w.d[0].Beat(t.Context(), info, nil); err != nil {
				t.Fatal(err)
			}
			w.heal()
			if _, err := w.d[0].Beat(t.Context(), info, nil); err != nil {
				t.Fatal(err)
			}
			leased, _, err := w.store.ListLeases(t.Context(), "", 100)
			if err != nil || len(leased) != 0 {
				t.Errorf("%d leases of the old session stand, %v", len(leased), err)
			}
		})
	})

	t.Run("the end of older sessions that is tried again leaves a newer one alone", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{shards: 4}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 20, 0)
			w.knownAt(0, "c")
			w.inject(fail(dispatch.ErrStoreUnavailable, calls("EndSession")))
			if _, err := w.d[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c", Session: "s2"}, nil); err != nil {
				t.Fatal(err)
			}
			w.heal()
			for held := 0; held < 19; { // knownAt has one, which ends
				req := ask("c", "", 0)
				req.Session, req.MaxTasks = "s3", 20
				held += len(w.mustFetch(req).Tasks)
			}
			time.Sleep(5 * time.Second)
			leased, _, err := w.store.ListLeases(t.Context(), "", 100)
			if err != nil || len(leased) < 19 {
				t.Errorf("%d leases of the newest session stand, %v; want 19 or more", len(leased), err)
			}
		})
	})
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
			inWorld(t, setup{}, func(t *testing.T, w *world) {
				w.source("s", nil)
				w.submit("s", "", 1, 0)
				w.mustFetch(ask("c", "", 0))
				var ends inFlight
				w.inject(ends.count(calls("EndSession")), hang(calls("EndSession")))
				for range 5 {
					ctx, within, cancel := withDeadline(t.Context(), deadline)
					if err := call(within, w); err != nil || ctx.Err() != nil {
						t.Errorf("%v, ctx: %v; want an answer before the deadline", err, ctx.Err())
					}
					cancel()
				}
				w.heal()
				time.Sleep(5 * time.Second)
				if err := call(t.Context(), w); err != nil {
					t.Error(err)
				}
				if ends.most != 1 {
					t.Errorf("%d calls of the store at once to end one session", ends.most)
				}
				held, _, err := w.store.ListLeases(t.Context(), "", 10)
				if err != nil || len(held) > 0 && held[0].Lease.Token.ClientToken != "new" {
					t.Errorf("leases of the older session stand: %+v, %v", held, err)
				}
			})
		})
		t.Run(name+" whose caller goes", func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{}, func(t *testing.T, w *world) {
				w.knownAt(0, "c")
				w.inject(hang(calls("EndSession")))
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

// However many sessions begin while the store hangs, so many ends of older ones are under
// way, and later calls make up for the others.
func TestDispatcher_beginSession_bounded(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
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
		var ends inFlight
		w.inject(ends.count(calls("EndSession")), hang(calls("EndSession")))
		begin("s2")
		if ends.most != most {
			t.Errorf("%d ends of older sessions in flight at once, want %d", ends.most, most)
		}
		w.heal()
		time.Sleep(time.Minute)
		begin("s2") // what was left is made up for
		infos := make([]dispatch.CollectorInfo, collectors)
		for i := range infos {
			infos[i] = dispatch.CollectorInfo{ID: fmt.Sprint("c", i), Session: "s2"}
		}
		states, err := w.store.Beats(t.Context(), infos)
		if err != nil || slices.ContainsFunc(states, func(s dispatch.PollState) bool { return s.NewSession }) {
			t.Errorf("not all older sessions have ended; %v", err)
		}
	})
}

// Calls of one new session that come at once wait for nothing at a dispatcher of which Run has
// ended, also those that join one which has yet to find that.
func TestDispatcher_beginSession_notRunning(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		info := dispatch.CollectorInfo{ID: "c", Session: "s1"}
		if _, err := w.d[0].Beat(t.Context(), info, nil); err != nil {
			t.Fatal(err)
		}
		w.stops[0]()
		w.wg.Wait()
		info.Session = "s2" // stays new: nothing ends the older one
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for range 5_000 {
					began := time.Now()
					if _, err := w.d[0].Beat(t.Context(), info, nil); err != nil || time.Since(began) > moment {
						t.Errorf("Beat: %v after %v", err, time.Since(began))
						return
					}
				}
			})
		}
		callers.Wait()
	})
}
