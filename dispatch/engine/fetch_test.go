package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestDispatcher_Fetch_callerGone(t *testing.T) {
	t.Parallel()

	// The caller goes in the very millisecond of the grant, before it and
	// after it: the task is free again within a second, no attempt spent, and
	// its queue's delay does not count.
	for _, ms := range []int{0, 5, 9, 10, 11, 15} {
		gone := time.Duration(ms) * time.Millisecond
		t.Run(fmt.Sprintf("gone %v into the claim", gone), func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{MinDelay: time.Hour}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				ctx, cancel := context.WithCancel(t.Context())
				ch := w.GoFetch(ctx, 0, dispatchtest.Ask("c1", "", 30*time.Second))
				synctest.Wait()
				w.Inject(dispatchtest.Delay(10*time.Millisecond, dispatchtest.Calls("Claim")))
				ids := w.Submit("s", "", 1, 0)
				time.Sleep(gone)
				cancel()
				a := <-ch
				if a.Err == nil && len(a.Res.Tasks) == 1 {
					return // it was there in time
				}
				if !errors.Is(a.Err, context.Canceled) {
					t.Errorf("Fetch: %v, want context.Canceled", a.Err)
				}
				began := time.Now()
				res := w.MustFetch(dispatchtest.Ask("c2", "", 5*time.Second))
				if took := time.Since(began); took > time.Second {
					t.Errorf("the task was free after %v, want less than 1s", took)
				}
				if g := res.Tasks[0]; g.Task.ID != ids[0] || g.Task.Counters.Attempt != 1 {
					t.Errorf("task %s, attempt %d; want %s, attempt 1", g.Task.ID, g.Task.Counters.Attempt, ids[0])
				}
			})
		})
	}

	t.Run("gone after the claim, while its source is read", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			ids := w.Submit("s", "", 1, 0)
			w.Change("s")
			w.Inject(dispatchtest.Late(10*time.Millisecond, dispatchtest.Calls("SourcesByID")))
			ctx, cancel := context.WithCancel(t.Context())
			ch := w.GoFetch(ctx, 0, dispatchtest.Ask("c1", "", 0))
			time.Sleep(5 * time.Millisecond)
			cancel()
			if a := <-ch; !errors.Is(a.Err, context.Canceled) {
				t.Fatalf("Fetch: %+v, %v", a.Res, a.Err)
			}
			synctest.Wait() // it is given back aside
			if g := w.MustFetch(dispatchtest.Ask("c2", "", 0)).Tasks[0]; g.Task.ID != ids[0] || g.Task.Counters.Attempt != 1 {
				t.Errorf("task %s, attempt %d; want %s, attempt 1", g.Task.ID, g.Task.Counters.Attempt, ids[0])
			}
		})
	})

	t.Run("gone after it took the place of an older call of the same fetch", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			ids := w.Submit("s", "", 1, 10*time.Second)
			w.Change("s")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			older := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c1", "token", bounds.MaxWait))
			synctest.Wait()
			ch := w.GoFetch(ctx, 0, dispatchtest.Ask("c1", "token", bounds.MaxWait))
			synctest.Wait()
			if a := <-older; a.Err != nil || len(a.Res.Tasks) != 0 {
				t.Fatalf("the older call: %+v, %v", a.Res, a.Err)
			}
			w.Inject(dispatchtest.After(cancel, dispatchtest.Calls("SourcesByID")))
			if a := <-ch; !errors.Is(a.Err, context.Canceled) {
				t.Fatalf("Fetch: %+v, %v; want context.Canceled", a.Res, a.Err)
			}
			synctest.Wait() // it is given back aside
			if g := w.MustFetch(dispatchtest.Ask("c2", "", 0)).Tasks[0]; g.Task.ID != ids[0] || g.Task.Counters.Attempt != 1 {
				t.Errorf("task %s, attempt %d; want %s, attempt 1", g.Task.ID, g.Task.Counters.Attempt, ids[0])
			}
		})
	})

	t.Run("gone while its claim is under way, of which no answer comes", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{MinDelay: time.Hour}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			ctx, cancel := context.WithCancel(t.Context())
			ch := w.GoFetch(ctx, 0, dispatchtest.Ask("c1", "", 30*time.Second))
			synctest.Wait()
			slow, lost := dispatchtest.Delay(10*time.Millisecond, dispatchtest.Calls("Claim")), dispatchtest.Spoil(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Claim"))
			w.Inject(slow, lost)
			ids := w.Submit("s", "", 1, 0)
			time.Sleep(5 * time.Millisecond)
			cancel()
			if a := <-ch; !errors.Is(a.Err, context.Canceled) {
				t.Fatalf("Fetch: %+v, %v; want context.Canceled", a.Res, a.Err)
			}
			time.Sleep(10 * time.Millisecond)
			w.Heal(lost)
			if g := w.MustFetch(dispatchtest.Ask("c2", "", time.Second)).Tasks[0]; g.Task.ID != ids[0] || g.Task.Counters.Attempt != 1 {
				t.Errorf("task %s, attempt %d; want %s, attempt 1", g.Task.ID, g.Task.Counters.Attempt, ids[0])
			}
		})
	})

	t.Run("the source of what was granted cannot be read", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 1, 0)
			w.Change("s")
			w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("SourcesByID")))
			if _, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("c1", "", 0)); !errors.Is(err, dispatch.ErrStoreUnavailable) {
				t.Fatalf("Fetch: %v, want ErrStoreUnavailable", err)
			}
			w.Heal()
			synctest.Wait() // it is given back aside
			if g := w.MustFetch(dispatchtest.Ask("c2", "", 0)).Tasks[0]; g.Task.Counters.Attempt != 1 {
				t.Errorf("attempt %d, want 1", g.Task.Counters.Attempt)
			}
		})
	})

	t.Run("the store cannot be reached either", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			ctx, cancel := context.WithCancel(t.Context())
			ch := w.GoFetch(ctx, 0, dispatchtest.Ask("c1", "", 30*time.Second))
			synctest.Wait()
			slow := dispatchtest.Delay(10*time.Millisecond, dispatchtest.Calls("Claim"))
			w.Inject(slow, dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("GiveBack")))
			w.Submit("s", "", 1, 0)
			time.Sleep(5 * time.Millisecond)
			cancel()
			<-ch
			w.Heal(slow)
			// Nobody can give it back; the sweep does when the lease runs out.
			time.Sleep(10 * time.Second)
			res := w.MustFetch(dispatchtest.Ask("c2", "", 30*time.Second))
			if res.Tasks[0].Task.Counters.Expirations != 1 {
				t.Errorf("expirations %d, want 1", res.Tasks[0].Task.Counters.Expirations)
			}
		})
	})
}

func TestDispatcher_Fetch_invalid(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		long := strings.Repeat("x", bounds.MaxIDLength+1)
		many := make([]string, engine.MaxNarrow+1)
		for name, change := range map[string]func(*engine.FetchRequest){
			"no collector":         func(r *engine.FetchRequest) { r.Collector = "" },
			"slash in collector":   func(r *engine.FetchRequest) { r.Collector = "a/b" },
			"overlong collector":   func(r *engine.FetchRequest) { r.Collector = long },
			"no session":           func(r *engine.FetchRequest) { r.Session = "" },
			"slash in token":       func(r *engine.FetchRequest) { r.ClientToken = "a/b" },
			"overlong token":       func(r *engine.FetchRequest) { r.ClientToken = long },
			"too many pools":       func(r *engine.FetchRequest) { r.Pools = many },
			"too many sources":     func(r *engine.FetchRequest) { r.Sources = many },
			"too many queues":      func(r *engine.FetchRequest) { r.Queues = many },
			"negative max tasks":   func(r *engine.FetchRequest) { r.MaxTasks = -1 },
			"too many tasks":       func(r *engine.FetchRequest) { r.MaxTasks = engine.MaxFetchTasks + 1 },
			"too many bytes":       func(r *engine.FetchRequest) { r.MaxBytes = engine.MaxFetchBytes + 1 },
			"negative wait":        func(r *engine.FetchRequest) { r.Wait = -1 },
			"too long a wait":      func(r *engine.FetchRequest) { r.Wait = bounds.MaxWait + 1 },
			"lease of half second": func(r *engine.FetchRequest) { r.Lease = time.Second / 2 },
			"lease of two hours":   func(r *engine.FetchRequest) { r.Lease = 2 * time.Hour },
		} {
			req := dispatchtest.Ask("c", "", 0)
			change(&req)
			if _, err := w.D[0].Fetch(t.Context(), req); !errors.Is(err, dispatch.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		req := dispatchtest.Ask("c", "", 0)
		req.Sources = []string{"nowhere"}
		if _, err := w.D[0].Fetch(t.Context(), req); !errors.Is(err, dispatch.ErrSourceNotFound) || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("unknown source: %v, want ErrSourceNotFound with its id", err)
		}
	})
}

// The claim of another fetch fails in one of the two pools that a fetch asks of, while
// it is asked for in the other.
func TestDispatcher_Fetch_besideAFailure(t *testing.T) {
	t.Parallel()

	const slow = 100 * time.Millisecond
	// begin has the fetch of c wait for its claim of pool one when that of pool two fails.
	begin := func(t *testing.T, w *world, wait time.Duration) <-chan dispatchtest.Answer {
		t.Helper()
		w.AddSource("s", nil)
		w.AddSource("one", func(s *dispatch.SourceSpec) { s.Pool = "one" })
		w.knownOnly("c")
		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Claim"), dispatchtest.InPool("two")).Once(), dispatchtest.Delay(slow, dispatchtest.Calls("Claim"), dispatchtest.InPool("one")))
		req := dispatchtest.Ask("c", "", wait)
		req.Pools = []string{"one", "two"}
		fetched := w.GoFetch(t.Context(), 0, req)
		synctest.Wait()
		other := dispatchtest.Ask("other", "", 0)
		other.Pools = []string{"two"}
		if _, err := w.D[0].Fetch(t.Context(), other); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Errorf("the other fetch: %v, want ErrStoreUnavailable", err)
		}
		return fetched
	}

	t.Run("one that waits goes on", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			fetched := begin(t, w, bounds.MaxWait)
			time.Sleep(bounds.MaxWait / 2)
			id := w.Submit("one", "", 1, 0)[0]
			if a := <-fetched; a.Err != nil || len(a.Res.Tasks) != 1 || a.Res.Tasks[0].Task.ID != id {
				t.Errorf("%+v, %v; want the task that came", a.Res, a.Err)
			}
		})
	})

	t.Run("one that does not wait is told", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			if a := <-begin(t, w, 0); !errors.Is(a.Err, dispatch.ErrStoreUnavailable) {
				t.Errorf("%+v, %v; want ErrStoreUnavailable", a.Res, a.Err)
			}
		})
	})

	t.Run("one that does not wait is given what the other pool has", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			fetched := begin(t, w, 0)
			id := w.Submit("one", "", 1, 0)[0]
			if a := <-fetched; a.Err != nil || len(a.Res.Tasks) != 1 || a.Res.Tasks[0].Task.ID != id {
				t.Errorf("%+v, %v; want the task of pool one", a.Res, a.Err)
			}
		})
	})
}
