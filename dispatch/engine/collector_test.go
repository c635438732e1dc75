package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
)

// A collector id belongs to the identity that used it first, until it is released or was not used for 30 days.
func TestDispatcher_BindCollector(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		bind := func(identity string, want error) {
			t.Helper()
			if err := w.BindCollector(t.Context(), "c1", identity); !errors.Is(err, want) {
				t.Errorf("bind to %s: %v, want %v", identity, err, want)
			}
		}
		release := func(want string) {
			t.Helper()
			if owner, err := w.ReleaseCollector(t.Context(), "c1"); owner != want || err != nil {
				t.Errorf("release: %q, %v; want %q", owner, err, want)
			}
		}
		bind("token:a", nil)
		bind("token:b", dispatch.ErrCollectorBound)
		bind("token:a", nil)
		release("token:a")
		release("")
		bind("token:b", nil)
		bind("token:a", dispatch.ErrCollectorBound)
		w.Stops[0]() // nobody sweeps for so long
		time.Sleep(dispatch.BindingTTL)
		bind("token:a", nil)
		w.Stores[0].Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("BindCollector", "ReleaseCollector")))
		bind("token:a", dispatch.ErrStoreUnavailable)
		if _, err := w.ReleaseCollector(t.Context(), "c1"); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Errorf("release: %v", err)
		}
	})
}

func TestDispatcher_Fetch_sessions(t *testing.T) {
	t.Parallel()

	t.Run("a parked fetch of an older session wins nothing", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "held", 1, 0)
			held := w.MustFetch(dispatchtest.Ask("c", "", 0)).Tasks[0]
			zombie := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "old", bounds.MaxWait))
			synctest.Wait()
			req := dispatchtest.Ask("c", "new", bounds.MaxWait)
			req.Session = "s2"
			began := time.Now()
			// The lease of the old session is ended, and its task is handed
			// to the new one.
			res, err := w.D[0].Fetch(t.Context(), req)
			if err != nil || len(res.Tasks) != 1 || res.Tasks[0].Task.ID != held.Task.ID {
				t.Fatalf("Fetch of the new session: %+v, %v", res, err)
			}
			if took := time.Since(began); took > 1100*time.Millisecond {
				t.Errorf("the held task went to the new session after %v", took)
			}
			if e := res.Tasks[0].Task.Counters.Expirations; e != 1 {
				t.Errorf("expirations %d, want 1", e)
			}
			fresh := w.Submit("s", "", 1, 0)[0]
			if a := <-zombie; !errors.Is(a.Err, dispatch.ErrCollectorReplaced) {
				t.Errorf("fetch of the old session: %+v, %v; want ErrCollectorReplaced", a.Res, a.Err)
			}
			if got := w.MustFetch(dispatchtest.Ask("other", "", 0)).Tasks[0].Task.ID; got != fresh {
				t.Errorf("fetched %s, want %s", got, fresh)
			}
			if _, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("c", "", 0)); !errors.Is(err, dispatch.ErrCollectorReplaced) {
				t.Errorf("later fetch of the old session: %v, want ErrCollectorReplaced", err)
			}
		})
	})

	t.Run("parked fetches of an older session end at once", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			var zombies []<-chan dispatchtest.Answer
			for i := range w.D {
				zombies = append(zombies, w.GoFetch(t.Context(), i, dispatchtest.Ask("c", fmt.Sprintf("old%d", i), bounds.MaxWait)))
			}
			synctest.Wait()
			began := time.Now()
			// Nothing comes that they could take.
			if _, err := w.D[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c", Session: "s2"}, nil); err != nil {
				t.Fatal(err)
			}
			for i, zombie := range zombies {
				if a := <-zombie; !errors.Is(a.Err, dispatch.ErrCollectorReplaced) || a.At.Sub(began) > 10*time.Millisecond {
					t.Errorf("fetch at dispatcher %d: %v after %v; want ErrCollectorReplaced at once", i, a.Err, a.At.Sub(began))
				}
			}
		})
	})

	t.Run("the next beat ends the leases that were left when shards were in trouble", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 20, 0)
			w.HoldTasks("c", 20)
			home := dispatch.ShardOf(dispatch.SlotOf("c"), 4)
			w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("EndSession"), func(c *dispatchtest.Call) bool { return c.Shards[0] != home }))
			info := dispatch.CollectorInfo{ID: "c", Session: "s2"}
			if _, err := w.D[0].Beat(t.Context(), info, nil); err != nil {
				t.Fatal(err)
			}
			w.Heal()
			if _, err := w.D[0].Beat(t.Context(), info, nil); err != nil {
				t.Fatal(err)
			}
			leased, _, err := w.Store.ListLeases(t.Context(), "", 100)
			if err != nil || len(leased) != 0 {
				t.Errorf("%d leases of the old session stand, %v", len(leased), err)
			}
		})
	})

	t.Run("the end of older sessions that is tried again leaves a newer one alone", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 20, 0)
			w.knownAt(0, "c")
			w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("EndSession")))
			if _, err := w.D[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c", Session: "s2"}, nil); err != nil {
				t.Fatal(err)
			}
			w.Heal()
			for held := 0; held < 19; { // knownAt has one, which ends
				req := dispatchtest.Ask("c", "", 0)
				req.Session, req.MaxTasks = "s3", 20
				held += len(w.MustFetch(req).Tasks)
			}
			time.Sleep(5 * time.Second)
			leased, _, err := w.Store.ListLeases(t.Context(), "", 100)
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
			_, err := w.D[0].Beat(ctx, dispatch.CollectorInfo{ID: "c", Session: "s2"}, nil)
			return err
		},
		"fetch": func(ctx context.Context, w *world) error {
			req := dispatchtest.Ask("c", "new", time.Second)
			req.Session = "s2"
			_, err := w.D[0].Fetch(ctx, req)
			return err
		},
	} {
		t.Run(name+" with a deadline", func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.Submit("s", "", 1, 0)
				w.MustFetch(dispatchtest.Ask("c", "", 0))
				var ends dispatchtest.InFlight
				w.Inject(ends.Count(dispatchtest.Calls("EndSession")), dispatchtest.Hang(dispatchtest.Calls("EndSession")))
				for range 5 {
					ctx, within, cancel := dispatchtest.WithDeadline(t.Context(), deadline)
					if err := call(within, w); err != nil || ctx.Err() != nil {
						t.Errorf("%v, ctx: %v; want an answer before the deadline", err, ctx.Err())
					}
					cancel()
				}
				w.Heal()
				time.Sleep(5 * time.Second)
				if err := call(t.Context(), w); err != nil {
					t.Error(err)
				}
				if ends.Most() != 1 {
					t.Errorf("%d calls of the store at once to end one session", ends.Most())
				}
				held, _, err := w.Store.ListLeases(t.Context(), "", 10)
				if err != nil || len(held) > 0 && held[0].Lease.Token.ClientToken != "new" {
					t.Errorf("leases of the older session stand: %+v, %v", held, err)
				}
			})
		})
		t.Run(name+" whose caller goes", func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.knownAt(0, "c")
				w.Inject(dispatchtest.Hang(dispatchtest.Calls("EndSession")))
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
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		const most, collectors = 10_000, 10_100
		begin := func(session string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for i := range collectors {
				wg.Go(func() {
					if _, err := w.D[0].Beat(ctx, dispatch.CollectorInfo{ID: fmt.Sprint("c", i), Session: session}, nil); err != nil {
						t.Errorf("Beat: %v", err)
					}
				})
			}
			wg.Wait()
		}
		begin("s1")
		var ends dispatchtest.InFlight
		w.Inject(ends.Count(dispatchtest.Calls("EndSession")), dispatchtest.Hang(dispatchtest.Calls("EndSession")))
		begin("s2")
		if ends.Most() != most {
			t.Errorf("%d ends of older sessions in flight at once, want %d", ends.Most(), most)
		}
		w.Heal()
		time.Sleep(time.Minute)
		begin("s2") // what was left is made up for
		for i := range collectors {
			state, err := w.Store.Beat(t.Context(), dispatch.CollectorInfo{ID: fmt.Sprint("c", i), Session: "s2"})
			if err != nil || state.NewSession {
				t.Errorf("the older sessions of collector %d have not ended; %v", i, err)
			}
		}
	})
}

// Calls of one new session that come at once wait for nothing at a dispatcher of which Run has
// ended, also those that join one which has yet to find that.
func TestDispatcher_beginSession_notRunning(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		info := dispatch.CollectorInfo{ID: "c", Session: "s1"}
		if _, err := w.D[0].Beat(t.Context(), info, nil); err != nil {
			t.Fatal(err)
		}
		w.Stops[0]()
		w.WG.Wait()
		info.Session = "s2" // stays new: nothing ends the older one
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for range 5_000 {
					began := time.Now()
					if _, err := w.D[0].Beat(t.Context(), info, nil); err != nil || time.Since(began) > dispatchtest.Moment {
						t.Errorf("Beat: %v after %v", err, time.Since(began))
						return
					}
				}
			})
		}
		callers.Wait()
	})
}
