package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestDispatcher_Fetch_replay(t *testing.T) {
	t.Parallel()

	t.Run("a repeated fetch gets the same tasks under the same tokens", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{dispatchers: 2, shards: 4}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 5, 0)
			req := ask("c1", "token1", 0)
			req.MaxTasks = 3
			first := w.mustFetch(req)
			for d := range w.d {
				again, err := w.d[d].Fetch(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := tokens(again.Tasks), tokens(first.Tasks); !slices.Equal(got, want) {
					t.Errorf("repeated at dispatcher %d: tokens %v, want %v", d, got, want)
				}
				for _, g := range again.Tasks {
					if g.Task.Counters.Attempt != 1 {
						t.Errorf("attempt %d of %s, want 1", g.Task.Counters.Attempt, g.Task.ID)
					}
				}
			}
		})
	})

	t.Run("a claim whose answer was lost is found by the repetition", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			ids := w.submit("s", "", 1, 0)
			w.spies[0].set(func(s *spy) {
				s.spoil = func(call string) error {
					if call == "Claim" {
						return fmt.Errorf("reply lost: %w", dispatch.ErrStoreUnavailable)
					}
					return nil
				}
			})
			req := ask("c1", "token1", 5*time.Second)
			if _, err := w.d[0].Fetch(t.Context(), req); !errors.Is(err, dispatch.ErrStoreUnavailable) {
				t.Fatalf("Fetch: %v, want ErrStoreUnavailable", err)
			}
			w.spies[0].set(func(s *spy) { s.spoil = nil })
			res := w.mustFetch(req)
			if res.Tasks[0].Task.ID != ids[0] || res.Tasks[0].Task.Counters.Attempt != 1 {
				t.Errorf("repeated: task %s, attempt %d", res.Tasks[0].Task.ID, res.Tasks[0].Task.Counters.Attempt)
			}
		})
	})

	t.Run("a token whose tasks have settled is used up", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 2, 0)
			req := ask("c1", "token1", 5*time.Second)
			w.succeed(w.mustFetch(req).Tasks[0])
			res, err := w.d[0].Fetch(t.Context(), req)
			if err != nil || res.Empty != engine.EmptyTokenUsed || len(res.Tasks) != 0 {
				t.Errorf("Fetch: %+v, %v; want TOKEN_USED", res, err)
			}
		})
	})
}

func tokens(grants []dispatch.Grant) []string {
	all := make([]string, len(grants))
	for i, g := range grants {
		all[i] = g.Token.String()
	}
	return all
}

func TestDispatcher_Fetch_callerGone(t *testing.T) {
	t.Parallel()

	// The caller goes in the very millisecond of the grant, before it and
	// after it: the task is free again within a second, no attempt spent, and
	// its queue's delay does not count.
	for _, ms := range []int{0, 5, 9, 10, 11, 15} {
		gone := time.Duration(ms) * time.Millisecond
		t.Run(fmt.Sprintf("gone %v into the claim", gone), func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{minDelay: time.Hour}, func(t *testing.T, w *world) {
				w.source("s", nil)
				ctx, cancel := context.WithCancel(t.Context())
				ch := w.fetch(ctx, 0, ask("c1", "", 30*time.Second))
				synctest.Wait()
				w.spies[0].set(func(s *spy) { s.delay = 10 * time.Millisecond })
				ids := w.submit("s", "", 1, 0)
				time.Sleep(gone)
				cancel()
				a := <-ch
				if a.err == nil && len(a.res.Tasks) == 1 {
					return // it was there in time
				}
				if !errors.Is(a.err, context.Canceled) {
					t.Errorf("Fetch: %v, want context.Canceled", a.err)
				}
				began := time.Now()
				res := w.mustFetch(ask("c2", "", 5*time.Second))
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
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			ids := w.submit("s", "", 1, 0)
			time.Sleep(time.Minute) // nothing is remembered of the source
			w.spies[0].set(func(s *spy) {
				s.spoil = func(call string) error {
					if call == "SourcesByID" {
						time.Sleep(10 * time.Millisecond)
					}
					return nil
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			ch := w.fetch(ctx, 0, ask("c1", "", 0))
			time.Sleep(5 * time.Millisecond)
			cancel()
			if a := <-ch; !errors.Is(a.err, context.Canceled) {
				t.Fatalf("Fetch: %+v, %v", a.res, a.err)
			}
			synctest.Wait() // it is given back aside
			if g := w.mustFetch(ask("c2", "", 0)).Tasks[0]; g.Task.ID != ids[0] || g.Task.Counters.Attempt != 1 {
				t.Errorf("task %s, attempt %d; want %s, attempt 1", g.Task.ID, g.Task.Counters.Attempt, ids[0])
			}
		})
	})

	t.Run("gone after it took the place of an older call of the same fetch", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			ids := w.submit("s", "", 1, 70*time.Second)
			time.Sleep(time.Minute) // nothing is remembered of the source
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			older := w.fetch(t.Context(), 0, ask("c1", "token", bounds.MaxWait))
			synctest.Wait()
			ch := w.fetch(ctx, 0, ask("c1", "token", bounds.MaxWait))
			synctest.Wait()
			if a := <-older; a.err != nil || len(a.res.Tasks) != 0 {
				t.Fatalf("the older call: %+v, %v", a.res, a.err)
			}
			w.spies[0].set(func(s *spy) {
				s.spoil = func(call string) error {
					if call == "SourcesByID" {
						cancel()
					}
					return nil
				}
			})
			if a := <-ch; !errors.Is(a.err, context.Canceled) {
				t.Fatalf("Fetch: %+v, %v; want context.Canceled", a.res, a.err)
			}
			synctest.Wait() // it is given back aside
			if g := w.mustFetch(ask("c2", "", 0)).Tasks[0]; g.Task.ID != ids[0] || g.Task.Counters.Attempt != 1 {
				t.Errorf("task %s, attempt %d; want %s, attempt 1", g.Task.ID, g.Task.Counters.Attempt, ids[0])
			}
		})
	})

	t.Run("gone while its claim is under way, of which no answer comes", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{minDelay: time.Hour}, func(t *testing.T, w *world) {
			w.source("s", nil)
			ctx, cancel := context.WithCancel(t.Context())
			ch := w.fetch(ctx, 0, ask("c1", "", 30*time.Second))
			synctest.Wait()
			w.spies[0].set(func(s *spy) {
				s.delay = 10 * time.Millisecond
				s.spoil = func(call string) error {
					if call == "Claim" {
						return dispatch.ErrStoreUnavailable
					}
					return nil
				}
			})
			ids := w.submit("s", "", 1, 0)
			time.Sleep(5 * time.Millisecond)
			cancel()
			if a := <-ch; !errors.Is(a.err, context.Canceled) {
				t.Fatalf("Fetch: %+v, %v; want context.Canceled", a.res, a.err)
			}
			time.Sleep(10 * time.Millisecond)
			w.spies[0].set(func(s *spy) { s.spoil = nil })
			if g := w.mustFetch(ask("c2", "", time.Second)).Tasks[0]; g.Task.ID != ids[0] || g.Task.Counters.Attempt != 1 {
				t.Errorf("task %s, attempt %d; want %s, attempt 1", g.Task.ID, g.Task.Counters.Attempt, ids[0])
			}
		})
	})

	t.Run("the source of what was granted cannot be read", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 1, 0)
			time.Sleep(time.Minute)
			w.spies[0].set(func(s *spy) {
				s.fail = func(call string) error {
					if call == "SourcesByID" {
						return dispatch.ErrStoreUnavailable
					}
					return nil
				}
			})
			if _, err := w.d[0].Fetch(t.Context(), ask("c1", "", 0)); !errors.Is(err, dispatch.ErrStoreUnavailable) {
				t.Fatalf("Fetch: %v, want ErrStoreUnavailable", err)
			}
			w.spies[0].set(func(s *spy) { s.fail = nil })
			synctest.Wait() // it is given back aside
			if g := w.mustFetch(ask("c2", "", 0)).Tasks[0]; g.Task.Counters.Attempt != 1 {
				t.Errorf("attempt %d, want 1", g.Task.Counters.Attempt)
			}
		})
	})

	t.Run("the store cannot be reached either", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			ctx, cancel := context.WithCancel(t.Context())
			ch := w.fetch(ctx, 0, ask("c1", "", 30*time.Second))
			synctest.Wait()
			w.spies[0].set(func(s *spy) {
				s.delay = 10 * time.Millisecond
				s.fail = func(call string) error {
					if call == "GiveBack" {
						return dispatch.ErrStoreUnavailable
					}
					return nil
				}
			})
			w.submit("s", "", 1, 0)
			time.Sleep(5 * time.Millisecond)
			cancel()
			<-ch
			w.spies[0].set(func(s *spy) { s.delay = 0 })
			// Nobody can give it back; the keeper does when the lease runs out.
			time.Sleep(10 * time.Second)
			res := w.mustFetch(ask("c2", "", 30*time.Second))
			if n := w.spies[0].count("GiveBack"); n != 3 {
				t.Errorf("%d tries to give back, want 3", n)
			}
			if res.Tasks[0].Task.Counters.Expirations != 1 {
				t.Errorf("expirations %d, want 1", res.Tasks[0].Task.Counters.Expirations)
			}
		})
	})
}

func TestDispatcher_Fetch_invalid(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
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
			req := ask("c", "", 0)
			change(&req)
			if _, err := w.d[0].Fetch(t.Context(), req); !errors.Is(err, dispatch.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		req := ask("c", "", 0)
		req.Sources = []string{"nowhere"}
		if _, err := w.d[0].Fetch(t.Context(), req); !errors.Is(err, dispatch.ErrSourceNotFound) || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("unknown source: %v, want ErrSourceNotFound with its id", err)
		}
	})
}
