package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// knownAt has a dispatcher note the session of the collector.
func (w *world) knownAt(d int, collector string) {
	w.T.Helper()
	if _, err := w.D[d].Fetch(w.T.Context(), dispatchtest.Ask(collector, "", 0)); err != nil {
		w.T.Fatalf("Fetch: %v", err)
	}
}

// knownOnly has the first dispatcher note the session of the collector, which is given
// nothing though there is something.
func (w *world) knownOnly(collector string) {
	w.T.Helper()
	req := dispatchtest.Ask(collector, "", 0)
	req.Pools = []string{"another"}
	if res, err := w.D[0].Fetch(w.T.Context(), req); err != nil || len(res.Tasks) > 0 {
		w.T.Fatalf("Fetch: %+v, %v", res, err)
	}
}

func TestDispatcher_Fetch_repeats(t *testing.T) {
	t.Parallel()

	t.Run("a token that was answered is repeated", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 20, 0)
			w.knownAt(0, "c")
			req := dispatchtest.Ask("c", "token1", 5*time.Second)
			req.MaxTasks = 3
			first := w.MustFetch(req)
			w.Stores[0].Inject(dispatchtest.Late(time.Second)) // the answer is that old by the time it comes
			again, err := w.D[0].Fetch(t.Context(), req)
			w.Stores[0].Heal()
			if err == nil && again.Waited != 0 {
				t.Errorf("repeated: a lease counts from %v after the call was received, later than the store said", again.Waited)
			}
			if err != nil || !slices.Equal(tokens(again.Tasks), tokens(first.Tasks)) {
				t.Errorf("repeated: %+v, %v; want the tokens %v", again, err, tokens(first.Tasks))
			}
			for _, g := range first.Tasks {
				w.Settle(dispatchtest.Success(g))
			}
			if res, err := w.D[0].Fetch(t.Context(), req); err != nil || res.Empty != engine.EmptyTokenUsed {
				t.Errorf("repeated once all were reported: %+v, %v; want TOKEN_USED", res, err)
			}
		})
	})

	t.Run("a token that was answered is repeated by a dispatcher that drains", func(t *testing.T) {
		t.Parallel()
		for name, shards := range map[string]int{"one shard": 1, "four shards": 4} {
			inWorld(t, dispatchtest.Setup{Shards: shards}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.Submit("s", "", 1, 0)
				req := dispatchtest.Ask("c", "token1", 5*time.Second)
				first := w.MustFetch(req)
				w.D[0].Drain()
				if again, err := w.D[0].Fetch(t.Context(), req); err != nil || !slices.Equal(tokens(again.Tasks), tokens(first.Tasks)) {
					t.Errorf("%s: repeated: %+v, %v; want the tokens %v", name, again, err, tokens(first.Tasks))
				}
			})
		}
	})

	t.Run("a token that was answered does not wait where nothing is to be had", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 1, 0)
			req := dispatchtest.Ask("c", "token1", bounds.MaxWait)
			first := w.MustFetch(req)
			w.knownAt(0, "c")
			for range 50 {
				w.GoFetch(t.Context(), 0, dispatchtest.Ask("other", "", bounds.MaxWait))
			}
			synctest.Wait()
			began := time.Now()
			again, err := w.D[0].Fetch(t.Context(), req)
			if err != nil || !slices.Equal(tokens(again.Tasks), tokens(first.Tasks)) || time.Since(began) > dispatchtest.Moment {
				t.Errorf("repeated: %+v, %v after %v; want the tokens %v at once", again, err, time.Since(began), tokens(first.Tasks))
			}
		})
	})

	t.Run("a session that was replaced is refused, whatever there is", func(t *testing.T) {
		t.Parallel()
		for name, tasks := range map[string]int{"nothing": 1, "tasks": 20} {
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.Submit("s", "", tasks, 0)
				w.MustFetch(dispatchtest.Ask("c", "held", 0))
				newer := dispatchtest.Ask("c", "newer", 0)
				newer.Session = "s2"
				if _, err := w.D[0].Fetch(t.Context(), newer); err != nil {
					t.Fatal(err)
				}
				for _, token := range []string{"held", "another"} {
					began := time.Now()
					res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("c", token, bounds.MaxWait))
					if !errors.Is(err, dispatch.ErrCollectorReplaced) || time.Since(began) > 0 {
						t.Errorf("%s to be had, token %q: %+v, %v after %v; want ErrCollectorReplaced at once", name, token, res, err, time.Since(began))
					}
				}
			})
		}
	})

	// The claim ends after the wait, when the fetch is being noted, or noted: what it
	// is answered then is its own, and what it is not answered is free.
	for _, ms := range []int{100, 119, 120, 121, 125, 130, 150, 300} {
		t.Run(fmt.Sprintf("a claim that takes %d ms takes back nothing that was answered", ms), func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.Submit("s", "", 1, 0)
				w.knownOnly("c")
				w.Inject(dispatchtest.Delay(time.Duration(ms)*time.Millisecond, dispatchtest.Calls("Claim")), dispatchtest.Delay(10*time.Millisecond, dispatchtest.Calls("BeginPoll", "GiveBack")))
				a := <-w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "token1", 100*time.Millisecond))
				time.Sleep(time.Second)
				if a.Err != nil {
					t.Fatal(a.Err)
				}
				for _, g := range a.Res.Tasks {
					w.Settle(dispatchtest.Success(g))
				}
				if len(a.Res.Tasks) == 0 {
					w.MustFetch(dispatchtest.Ask("other", "", time.Second))
				}
			})
		})
	}

	t.Run("a repeated token has its answer though the store takes longer than the wait", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 20, 0)
			req := dispatchtest.Ask("c", "token1", 100*time.Millisecond)
			first := w.MustFetch(req)
			w.Inject(dispatchtest.Delay(300*time.Millisecond, dispatchtest.Calls("Claim")))
			if again := w.MustFetch(req); !slices.Equal(tokens(again.Tasks), tokens(first.Tasks)) {
				t.Errorf("repeated: %v, want %v", tokens(again.Tasks), tokens(first.Tasks))
			}
		})
	})
}

func TestDispatcher_Fetch_replay(t *testing.T) {
	t.Parallel()

	t.Run("a repeated fetch gets the same tasks under the same tokens", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 5, 0)
			req := dispatchtest.Ask("c1", "token1", 0)
			req.MaxTasks = 3
			first := w.MustFetch(req)
			for d := range w.D {
				again, err := w.D[d].Fetch(t.Context(), req)
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
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			ids := w.Submit("s", "", 1, 0)
			w.Inject(dispatchtest.Spoil(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Claim")))
			req := dispatchtest.Ask("c1", "token1", 5*time.Second)
			if _, err := w.D[0].Fetch(t.Context(), req); !errors.Is(err, dispatch.ErrStoreUnavailable) {
				t.Fatalf("Fetch: %v, want ErrStoreUnavailable", err)
			}
			w.Heal()
			res := w.MustFetch(req)
			if res.Tasks[0].Task.ID != ids[0] || res.Tasks[0].Task.Counters.Attempt != 1 {
				t.Errorf("repeated: task %s, attempt %d", res.Tasks[0].Task.ID, res.Tasks[0].Task.Counters.Attempt)
			}
		})
	})

	t.Run("a token whose tasks have settled is used up", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 2, 0)
			req := dispatchtest.Ask("c1", "token1", 5*time.Second)
			w.Settle(dispatchtest.Success(w.MustFetch(req).Tasks[0]))
			res, err := w.D[0].Fetch(t.Context(), req)
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

// fetchFor is fetch by a caller that goes after so long.
func (w *world) fetchFor(d int, req engine.FetchRequest, patience time.Duration) <-chan dispatchtest.Answer {
	ctx, cancel := context.WithCancel(w.T.Context())
	timer := time.AfterFunc(patience, cancel)
	answered := make(chan dispatchtest.Answer, 1)
	w.WG.Go(func() {
		answered <- <-w.GoFetch(ctx, d, req)
		timer.Stop()
		cancel()
	})
	return answered
}

// A fetch and its repetition, whose callers come and go at any instant: what one of them
// was answered with stands, whatever becomes of the other, and what neither was answered
// with is as if it had never been granted (P7).
func TestDispatcher_Fetch_repeatedAndGone(t *testing.T) {
	t.Parallel()
	const oneWay = 10 * time.Millisecond
	patiences := []time.Duration{time.Hour}
	for d := time.Duration(0); d <= 45*time.Millisecond; d += 5 * time.Millisecond {
		patiences = append(patiences, d)
	}
	for _, s := range []dispatchtest.Setup{{Shards: 1}, {Shards: 4}} {
		t.Run(fmt.Sprintf("%d shards", s.Shards), func(t *testing.T) {
			t.Parallel()
			inWorld(t, s, func(t *testing.T, w *world) {
				// The store is far away.
				there := dispatchtest.Calls("Claim", "BeginPoll", "GiveBack")
				w.Inject(dispatchtest.Delay(oneWay, there), dispatchtest.Late(oneWay, there))
				answered, rounds := 0, 0
				for begins := time.Duration(0); begins <= 60*time.Millisecond; begins += 6 * time.Millisecond {
					for _, first := range patiences {
						for _, second := range patiences {
							rounds++
							if w.repeated(rounds, first, begins, second) {
								answered++
							}
						}
					}
				}
				if answered < rounds/10 || answered > rounds*9/10 {
					t.Errorf("%d of %d tasks were delivered: the callers come and go at other instants than they should", answered, rounds)
				}
			})
		})
	}
}

// repeated makes a fetch and, after begins, repeats it; their callers wait for first and
// for second. It checks what became of the only task that was there for them, and reports
// whether one of them was answered with that.
func (w *world) repeated(round int, first, begins, second time.Duration) bool {
	w.T.Helper()
	name := fmt.Sprintf("round%d", round)
	w.AddSource(name, func(s *dispatch.SourceSpec) { s.Pool = name })
	id := w.Submit(name, "", 1, 0)[0]
	req := dispatchtest.Ask("c", name, 50*time.Millisecond)
	req.Pools = []string{name}
	one := w.fetchFor(0, req, first)
	time.Sleep(begins)
	two := w.fetchFor(0, req, second)
	answers := []dispatchtest.Answer{<-one, <-two}
	time.Sleep(200 * time.Millisecond) // until what is to be given back is given back
	task := w.MustTask(id)
	answered := false
	for i, a := range answers {
		if a.Err != nil || len(a.Res.Tasks) == 0 {
			continue
		}
		answered = true
		if task.State != dispatch.StateLeased || task.Lease.Token != a.Res.Tasks[0].Token || task.Counters.Attempt != 1 {
			w.T.Errorf("first gone after %v, repeated after %v, gone after %v: call %d was answered with the task, which is %v then, in attempt %d",
				first, begins, second, i+1, task.State, task.Counters.Attempt)
		}
	}
	if !answered && (task.State != dispatch.StateReady || task.Counters.Attempt != 0) {
		w.T.Errorf("first gone after %v, repeated after %v, gone after %v: neither was answered with the task, which is %v then, in attempt %d",
			first, begins, second, task.State, task.Counters.Attempt)
	}
	return answered
}
