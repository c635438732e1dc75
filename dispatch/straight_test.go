package dispatch_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// knownAt has a dispatcher note the session of the collector.
func (w *world) knownAt(d int, collector string) {
	w.t.Helper()
	if _, err := w.d[d].Fetch(w.t.Context(), ask(collector, "", 0)); err != nil {
		w.t.Fatalf("Fetch: %v", err)
	}
}

// knownOnly has the first dispatcher note the session of the collector, which is given
// nothing though there is something.
func (w *world) knownOnly(collector string) {
	w.t.Helper()
	req := ask(collector, "", 0)
	req.Pools = []string{"another"}
	if res, err := w.d[0].Fetch(w.t.Context(), req); err != nil || len(res.Tasks) > 0 {
		w.t.Fatalf("Fetch: %+v, %v", res, err)
	}
}

func TestDispatcher_Fetch_straight(t *testing.T) {
	t.Parallel()

	t.Run("a busy collector is noted once a second", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 100, 0)
			fetched := func(n int) int {
				before := w.spies[0].count("BeginPolls")
				for range n {
					w.succeed(w.mustFetch(ask("c", "", 0)).Tasks[0])
				}
				return w.spies[0].count("BeginPolls") - before
			}
			for range 3 {
				if polls := fetched(20); polls != 1 {
					t.Errorf("20 fetches were noted %d times, want 1", polls)
				}
				time.Sleep(dispatch.PollNoted)
			}
			w.knownAt(0, "c")
			time.Sleep(dispatch.PollNoted - time.Millisecond)
			if polls := fetched(1); polls != 0 {
				t.Errorf("noted again %v after it was", dispatch.PollNoted-time.Millisecond)
			}
		})
	})

	t.Run("one that does not wait asks once", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.knownAt(0, "c")
			claims := w.spies[0].count("Claim")
			for range 10 {
				if res, err := w.d[0].Fetch(t.Context(), ask("c", "", 0)); err != nil || res.Empty != engine.EmptyNoTasks || res.RetryAfter <= 0 {
					t.Errorf("%+v, %v; want NO_TASKS, to come again later", res, err)
				}
			}
			if n := w.spies[0].count("Claim") - claims; n != 10 {
				t.Errorf("10 fetches made %d claims", n)
			}
		})
	})

	t.Run("with several shards every fetch is noted", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{shards: 2}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 100, 0)
			for range 10 {
				w.mustFetch(ask("c", "", 0))
			}
			if polls := w.spies[0].count("BeginPolls"); polls != 10 {
				t.Errorf("10 fetches were noted %d times", polls)
			}
		})
	})

	t.Run("a token that another dispatcher has answered is found without a note", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 20, 0)
			w.knownAt(1, "c")
			req := ask("c", "token1", 5*time.Second)
			req.MaxTasks = 3
			first := w.mustFetch(req)
			polls := w.spies[1].count("BeginPolls")
			again, err := w.d[1].Fetch(t.Context(), req)
			if err != nil || !slices.Equal(tokens(again.Tasks), tokens(first.Tasks)) {
				t.Errorf("repeated: %+v, %v; want the tokens %v", again, err, tokens(first.Tasks))
			}
			for _, g := range first.Tasks {
				w.succeed(g)
			}
			if res, err := w.d[1].Fetch(t.Context(), req); err != nil || res.Empty != engine.EmptyTokenUsed {
				t.Errorf("repeated once all were reported: %+v, %v; want TOKEN_USED", res, err)
			}
			if n := w.spies[1].count("BeginPolls") - polls; n != 0 {
				t.Errorf("noted %d times", n)
			}
		})
	})

	t.Run("a token that was answered does not wait where nothing is to be had", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 1, 0)
			req := ask("c", "token1", bounds.MaxWait)
			first := w.mustFetch(req)
			w.knownAt(1, "c")
			for range 50 {
				w.fetch(t.Context(), 1, ask("other", "", bounds.MaxWait))
			}
			synctest.Wait()
			began := time.Now()
			again, err := w.d[1].Fetch(t.Context(), req)
			if err != nil || !slices.Equal(tokens(again.Tasks), tokens(first.Tasks)) || time.Since(began) > 0 {
				t.Errorf("repeated: %+v, %v after %v; want the tokens %v at once", again, err, time.Since(began), tokens(first.Tasks))
			}
		})
	})

	t.Run("a session replaced at another dispatcher is refused, whatever there is", func(t *testing.T) {
		t.Parallel()
		for name, tasks := range map[string]int{"nothing": 1, "tasks": 20} {
			inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
				w.source("s", nil)
				for _, s := range w.spies {
					s.set(func(s *spy) { s.dumb = true })
				}
				w.submit("s", "", tasks, 0)
				w.mustFetch(ask("c", "held", 0))
				newer := ask("c", "newer", 0)
				newer.Session = "s2"
				if _, err := w.d[1].Fetch(t.Context(), newer); err != nil {
					t.Fatal(err)
				}
				for _, token := range []string{"held", "another"} {
					began := time.Now()
					res, err := w.d[0].Fetch(t.Context(), ask("c", token, bounds.MaxWait))
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
			inWorld(t, setup{}, func(t *testing.T, w *world) {
				w.source("s", nil)
				w.submit("s", "", 1, 0)
				w.knownOnly("c")
				w.spies[0].set(func(s *spy) {
					s.delay = time.Duration(ms) * time.Millisecond
					s.fail = func(call string) error {
						if call == "BeginPolls" || call == "GiveBack" {
							time.Sleep(10 * time.Millisecond)
						}
						return nil
					}
				})
				a := <-w.fetch(t.Context(), 0, ask("c", "token1", 100*time.Millisecond))
				time.Sleep(time.Second)
				if a.err != nil {
					t.Fatal(a.err)
				}
				for _, g := range a.res.Tasks {
					w.succeed(g)
				}
				if len(a.res.Tasks) == 0 {
					w.mustFetch(ask("other", "", time.Second))
				}
			})
		})
	}

	t.Run("news of a session that was replaced meanwhile takes back nothing that was answered", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 1, 0)
			w.knownOnly("c")
			granted, back := make(chan struct{}), make(chan struct{})
			w.spies[0].set(func(s *spy) {
				s.spoil = func(call string) error {
					if call == "Claim" {
						close(granted)
						<-back
					}
					return nil
				}
			})
			ch := w.fetch(t.Context(), 0, ask("c", "token1", time.Second))
			<-granted
			w.spies[0].set(func(s *spy) { s.spoil = nil })
			if err := w.store.Publish(t.Context(), dispatch.Hint{Kind: dispatch.HintSession, ID: "c", Session: "older"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // it was noted, and answered with what the claim has granted
			close(back)
			a := <-ch
			if a.err != nil || len(a.res.Tasks) != 1 {
				t.Fatalf("%+v, %v; want the task", a.res, a.err)
			}
			synctest.Wait()
			w.succeed(a.res.Tasks[0])
		})
	})

	t.Run("a repeated token has its answer though the store takes longer than the wait", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 20, 0)
			req := ask("c", "token1", 100*time.Millisecond)
			first := w.mustFetch(req)
			w.spies[0].set(func(s *spy) { s.delay = 300 * time.Millisecond })
			polls := w.spies[0].count("BeginPolls")
			if again := w.mustFetch(req); !slices.Equal(tokens(again.Tasks), tokens(first.Tasks)) {
				t.Errorf("repeated: %v, want %v", tokens(again.Tasks), tokens(first.Tasks))
			}
			if w.spies[0].count("BeginPolls") != polls {
				t.Error("it was not claimed for straight away")
			}
		})
	})

	t.Run("one that is behind claims of a slow store waits as long as it wants to", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			for _, collector := range []string{"first", "second"} {
				w.knownOnly(collector)
			}
			w.spies[0].set(func(s *spy) { s.delay = 4 * time.Second })
			first := w.fetch(t.Context(), 0, ask("first", "", bounds.MaxWait))
			synctest.Wait()
			began := time.Now()
			a := <-w.fetch(t.Context(), 0, ask("second", "", bounds.MaxWait))
			if waited := a.at.Sub(began); a.err != nil || a.res.Empty != engine.EmptyNoTasks || waited < bounds.MaxWait {
				t.Errorf("%+v, %v after %v; want NO_TASKS after %v", a.res, a.err, waited, bounds.MaxWait)
			}
			<-first
		})
	})

	t.Run("one that is given nothing waits", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.knownAt(0, "c")
			ch := w.fetch(t.Context(), 0, ask("c", "", bounds.MaxWait))
			time.Sleep(bounds.MaxWait / 2)
			began := time.Now()
			w.submit("s", "", 1, 0)
			if a := <-ch; a.err != nil || len(a.res.Tasks) != 1 || a.at.Sub(began) > 0 {
				t.Errorf("%+v, %v after %v; want a task at once", a.res, a.err, a.at.Sub(began))
			}
			began = time.Now()
			if a := <-w.fetch(t.Context(), 0, ask("c", "", time.Second)); a.err != nil || a.res.Empty != engine.EmptyNoTasks || a.at.Sub(began) != time.Second {
				t.Errorf("%+v, %v after %v; want NO_TASKS after 1s", a.res, a.err, a.at.Sub(began))
			}
		})
	})
}

// The claim of another fetch fails in one of the two pools that a fetch asks of, while
// it is asked for in the other.
func TestDispatcher_Fetch_straightBesideAFailure(t *testing.T) {
	t.Parallel()

	const slow = 100 * time.Millisecond
	// begin has the fetch of c wait for its claim of pool one when that of pool two fails.
	begin := func(t *testing.T, w *world, wait time.Duration) <-chan answer {
		t.Helper()
		w.source("s", nil)
		w.source("one", func(s *dispatch.SourceSpec) { s.Pool = "one" })
		w.knownOnly("c")
		polls := w.spies[0].count("BeginPolls")
		var once sync.Once
		w.spies[0].set(func(s *spy) {
			s.failPool = func(pool string) (err error) {
				if pool == "two" {
					once.Do(func() { err = dispatch.ErrStoreUnavailable })
					return err
				}
				time.Sleep(slow)
				return nil
			}
		})
		req := ask("c", "", wait)
		req.Pools = []string{"one", "two"}
		fetched := w.fetch(t.Context(), 0, req)
		synctest.Wait()
		if w.spies[0].count("BeginPolls") != polls {
			t.Error("it is not claimed for straight away")
		}
		other := ask("other", "", 0)
		other.Pools = []string{"two"}
		if _, err := w.d[0].Fetch(t.Context(), other); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Errorf("the other fetch: %v, want ErrStoreUnavailable", err)
		}
		return fetched
	}

	t.Run("one that waits goes on", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			fetched := begin(t, w, bounds.MaxWait)
			time.Sleep(bounds.MaxWait / 2)
			id := w.submit("one", "", 1, 0)[0]
			if a := <-fetched; a.err != nil || len(a.res.Tasks) != 1 || a.res.Tasks[0].Task.ID != id {
				t.Errorf("%+v, %v; want the task that came", a.res, a.err)
			}
		})
	})

	t.Run("one that does not wait is told", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			if a := <-begin(t, w, 0); !errors.Is(a.err, dispatch.ErrStoreUnavailable) {
				t.Errorf("%+v, %v; want ErrStoreUnavailable", a.res, a.err)
			}
		})
	})

	t.Run("one that does not wait is given what the other pool has", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			fetched := begin(t, w, 0)
			id := w.submit("one", "", 1, 0)[0]
			if a := <-fetched; a.err != nil || len(a.res.Tasks) != 1 || a.res.Tasks[0].Task.ID != id {
				t.Errorf("%+v, %v; want the task of pool one", a.res, a.err)
			}
		})
	})
}

// TestDispatcher_Fetch_tellsWhatIsNoted holds that a claim for a fetch that was noted says
// so, which spares a store of several shards to note it again; and that no other does.
func TestDispatcher_Fetch_tellsWhatIsNoted(t *testing.T) {
	t.Parallel()
	for _, shards := range [...]int{1, 4} {
		inWorld(t, setup{shards: shards}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 20, 0)
			for n := range 10 {
				polls := w.spies[0].count("BeginPolls")
				var noted []bool
				w.spies[0].set(func(s *spy) {
					s.failWants = func(wants []dispatch.Want) error {
						noted = append(noted, wants[0].Noted)
						return nil
					}
				})
				w.succeed(w.mustFetch(ask("c", "", time.Second)).Tasks[0])
				polled := w.spies[0].count("BeginPolls") > polls
				if len(noted) == 0 || slices.Contains(noted, !polled) {
					t.Errorf("%d shards, fetch %d: it was noted: %v; its claims say %v", shards, n, polled, noted)
				}
				if straight := shards == 1 && n > 0; straight == polled {
					t.Errorf("%d shards, fetch %d: it was noted: %v", shards, n, polled)
				}
			}
		})
	}
}
