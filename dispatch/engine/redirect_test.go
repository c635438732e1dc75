package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// chain fetches the URLs of a chain of redirects, one after the other, and checks that nothing else can be had. The last is
// a page. It returns what became of each redirect.
func (w *world) chain(urls ...string) (codes []engine.DiscoverCode) {
	w.T.Helper()
	for i, url := range urls {
		g := w.TakeOne()
		if r := g.Task.Redirect; g.Task.URL != url || r.Hops != i || i > 0 && r.From != urls[0] || g.Task.Depth != 0 || g.Task.Priority != dispatch.DefaultPriority+min(i, 1) {
			w.T.Errorf("fetched %s at depth %d after %+v, want %s", g.Task.URL, g.Task.Depth, r, url)
		}
		if i == len(urls)-1 {
			w.Settle(dispatchtest.Success(g))
			break
		}
		codes = append(codes, w.Succeed(g, related(urls[i+1], dispatch.RelationRedirect)).Discovered[0].Code)
	}
	return codes
}

// wantChain is chain where each redirect has the same answer.
func (w *world) wantChain(want engine.DiscoverCode, urls ...string) {
	w.T.Helper()
	if codes := w.chain(urls...); len(codes) != len(urls)-1 || slices.ContainsFunc(codes, func(c engine.DiscoverCode) bool { return c != want }) {
		w.T.Errorf("the redirects of %v are answered %v, want %v", urls, codes, want)
	}
}

// hourly makes a source of seeds that follows nothing.
func (w *world) hourly(id string, follow *dispatch.Follow, seeds ...string) {
	w.T.Helper()
	w.Create(id, func(s *dispatch.SourceSpec) {
		s.Seeds, s.Follow, s.Schedule = dispatchtest.Seeds(seeds...), follow, dispatch.Schedule{Every: time.Hour}
	})
}

// Each cycle of a seed fetches each hop once, without a follow rule, also where a hop is new.
func TestDispatcher_redirect_seed(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.hourly("s", nil, "http://a.example/")
		urls := []string{"http://a.example/", "https://a.example/", "https://www.example/", "https://www.example/en"}
		w.wantChain(engine.DiscoverCreated, urls...)
		for range 2 {
			time.Sleep(time.Hour)
			w.wantChain(engine.DiscoverRevisit, urls...)
		}
		time.Sleep(time.Hour)
		want := []engine.DiscoverCode{engine.DiscoverCreated, engine.DiscoverRevisit}
		if codes := w.chain(urls[0], "http://new.example/", urls[3]); !slices.Equal(codes, want) {
			t.Errorf("by a new hop: %v", codes)
		}
		if left := w.Take(1); len(left) != 0 {
			t.Errorf("left: %s", left[0].Task.URL)
		}
	})
}

// A hop that is DEAD is due again with its head; what an operator canceled is not.
func TestDispatcher_redirect_settled(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.hourly("s", nil, "http://a.example/")
		to := related("http://a.example/b", dispatch.RelationRedirect)
		w.Succeed(w.TakeOne(), to)
		g := w.TakeOne()
		w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1, Permanent: true}})
		if s := w.MustView("s").Status; s.FailuresInARow != 1 || !s.LastSuccess.IsZero() {
			t.Errorf("the end of the chain is DEAD, and the source's status is %+v", s)
		}
		time.Sleep(time.Hour)
		w.wantChain(engine.DiscoverRevisit, "http://a.example/", "http://a.example/b")
		if s := w.MustView("s").Status; s.FailuresInARow != 0 || s.LastSuccess.IsZero() {
			t.Errorf("the end of the chain was fetched, and the source's status is %+v", s)
		}
		time.Sleep(time.Hour)
		w.Succeed(w.TakeOne(), to)
		if _, err := w.CancelTasks(t.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{g.Task.ID}, Note: dispatch.Note{By: "ada"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if r := w.Succeed(w.TakeOne(), to); r.Discovered[0].Code != engine.DiscoverExists {
			t.Errorf("what was canceled is %+v", r.Discovered[0])
		}
	})
}

// Two seeds that redirect to one URL fetch it once a cycle; two pages that redirect to each other end.
func TestDispatcher_redirect_once(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.hourly("s", nil, "http://a.example/1", "http://a.example/2", "http://a.example/3")
		for cycle := range 3 {
			fetched := map[string]int{}
			for grants := w.fetchAll(); len(grants) > 0; grants = w.fetchAll() {
				for _, g := range grants {
					fetched[g.Task.URL]++
					switch g.Task.URL {
					case "http://a.example/3":
						w.Succeed(g, related("http://a.example/4", dispatch.RelationRedirect))
					case "http://a.example/4":
						w.Succeed(g, related("http://a.example/3", dispatch.RelationRedirect))
					case "http://a.example/end":
						w.Succeed(g)
					default:
						w.Succeed(g, related("http://a.example/end", dispatch.RelationRedirect))
					}
				}
			}
			if len(fetched) != 5 || fetched["http://a.example/end"] != 1 || fetched["http://a.example/3"] != 1 || fetched["http://a.example/4"] != 1 {
				t.Errorf("cycle %d: %v", cycle, fetched)
			}
			time.Sleep(time.Hour)
		}
	})
}

// A submitted task needs no follow rule for its redirects, also to other hosts. A page that was fetched is not fetched again
// unless the task is submitted AGAIN.
func TestDispatcher_redirect_submitted(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.Create("s", nil)
		urls := []string{"http://a.example/", "http://b.example/", "http://b.example/c"}
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: urls[0]})
		w.wantChain(engine.DiscoverCreated, urls...)
		time.Sleep(time.Hour)
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://other.example/"})
		r := w.Succeed(w.TakeOne(), related(urls[2], dispatch.RelationRedirect))
		if left := w.Take(1); len(left) != 0 || r.Discovered[0].Code != engine.DiscoverExists {
			t.Errorf("%+v, and %d tasks are due", r.Discovered[0], len(left))
		}
	})
}

func TestDispatcher_redirect_again(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.Create("s", nil)
		urls := []string{"http://a.example/", "http://b.example/", "http://b.example/c"}
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: urls[0]})
		w.wantChain(engine.DiscoverCreated, urls...)
		for range 2 {
			time.Sleep(time.Minute)
			w.MustSubmit(engine.NewTask{SourceID: "s", URL: urls[0], IfExists: dispatch.IfExistsAgain})
			w.wantChain(engine.DiscoverRevisit, urls...)
		}
	})
}

// Named hosts and exclude hold at each hop of a seed's chain, and the whole rule at those of a link's; include and depth are
// about links only.
func TestDispatcher_redirect_filtered(t *testing.T) {
	t.Parallel()
	depth := 0
	for name, test := range map[string]struct {
		follow *dispatch.Follow
		seed   followed // by a hop of the seed: to a host like its own, another host, what exclude matches
		link   followed // the same by a page that was linked; nil: there is none
	}{
		"none":    {nil, followed{0, 0, 0}, nil},
		"depth":   {&dispatch.Follow{MaxDepth: &depth}, followed{0, 0, 0}, nil},
		"exclude": {&dispatch.Follow{Exclude: []string{"out"}}, followed{0, 0, dispatch.FilterExclude}, followed{0, dispatch.FilterHost, dispatch.FilterExclude}},
		"include": {&dispatch.Follow{Include: []string{"link"}}, followed{0, 0, 0}, followed{dispatch.FilterInclude, dispatch.FilterHost, dispatch.FilterInclude}},
		"named":   {&dispatch.Follow{AllowHosts: []string{"a.example"}}, followed{0, dispatch.FilterHost, 0}, followed{0, dispatch.FilterHost, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.hourly("s", test.follow, "http://a.example/")
				var want dispatch.Filtered
				seed := w.TakeOne()
				w.discovers(&want, seed, followed{0}, related("http://a.example/hop", dispatch.RelationRedirect))
				w.discovers(&want, w.TakeOne(), test.seed, related("http://a.example/x", dispatch.RelationRedirect),
					related("http://b.example/x", dispatch.RelationRedirect), related("http://a.example/out", dispatch.RelationRedirect))
				if test.link == nil {
					return
				}
				for _, g := range w.fetchAll() {
					w.Succeed(g, related("http://a.example/link", dispatch.RelationLink))
				}
				w.discovers(&want, w.TakeOne(), test.link, related("http://a.example/y", dispatch.RelationRedirect),
					related("http://b.example/y", dispatch.RelationRedirect), related("http://a.example/out2", dispatch.RelationRedirect))
			})
		})
	}
}

// A chain is bounded.
func TestDispatcher_redirect_length(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.hourly("s", nil, "http://a.example/0")
		for i := range bounds.MaxRedirects {
			w.Succeed(w.TakeOne(), related(fmt.Sprintf("http://a.example/%d", i+1), dispatch.RelationRedirect))
		}
		r := w.Succeed(w.TakeOne(), related("http://a.example/more", dispatch.RelationRedirect))
		if got := r.Discovered[0]; got.Code != engine.DiscoverInvalid || got.Message != "is redirect 101 of a chain; at most 100 are followed" {
			t.Errorf("%+v", got)
		}
	})
}

// A redirect to another spelling of the task's own URL is the task itself, which goes there in its next turn. A failure there
// begins there again; the next cycle begins at its URL.
func TestDispatcher_redirect_itself(t *testing.T) {
	t.Parallel()
	const seed, sorted, session = "http://a.example/?b=1&a=2", "http://a.example/?a=2&b=1", "http://a.example/?PHPSESSID=0123456789abcdef&a=2&b=1"
	inWorld(t, dispatchtest.Setup{MinDelay: 3 * time.Second, Dispatchers: 2}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.CanonicalRules, s.Schedule = dispatchtest.Seeds(seed), canonical.Sorted, dispatch.Schedule{Every: time.Hour}
		})
		w.Rule("a.example", dispatch.QueueSettings{MinDelay: 3 * time.Second, MaxInFlight: 2, MaxBlock: time.Hour})
		for cycle := range 2 {
			time.Sleep(time.Duration(cycle) * time.Hour)
			var id dispatch.TaskID
			var last time.Time
			for i, url := range []string{seed, sorted, session, session} {
				g := w.MustFetch(dispatchtest.Ask("c1", "", bounds.MaxWait)).Tasks[0]
				if r := g.Task.Redirect; g.Task.URL != url || id != "" && g.Task.ID != id || r.Hops != min(i, 2) || (r.From == seed) != (i > 0) || g.Task.Cursor != nil || int(g.Task.Counters.Cycle) != cycle {
					t.Errorf("cycle %d: fetched %s after %+v, want %s", cycle, g.Task.URL, r, url)
				}
				if gap := time.Since(last); gap < 3*time.Second {
					t.Errorf("cycle %d: %s was fetched after %v", cycle, url, gap)
				}
				id, last = g.Task.ID, time.Now()
				w.Dispatcher = w.D[i%2]
				switch i {
				case 0:
					w.Succeed(g, related(sorted, dispatch.RelationRedirect))
				case 1:
					r := dispatchtest.Success(g)
					r.Succeeded.Discovered = []dispatch.DiscoveredItem{related(session, dispatch.RelationRedirect)}
					w.Settle(r)
					if again := w.MustReport(r)[0]; again.Code != engine.ReportAlready {
						t.Errorf("repeated: %+v", again)
					}
				case 2:
					w.Settle(dispatch.Report{ID: id, Token: g.Token, Failed: &dispatch.Failed{Reason: 5}})
				default:
					w.Settle(dispatchtest.Success(g))
				}
			}
		}
	})
}

// Two spellings that redirect to each other end as a failure.
func TestDispatcher_redirect_itself_length(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) { s.Retry.MaxAttempts, s.CanonicalRules = 1, canonical.Sorted })
		id := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/"})[0].ID
		fetched := 0
		for g := w.Take(1); len(g) > 0; g = w.Take(1) {
			fetched++
			w.Succeed(g[0], related("http://a.example/?utm_source="+string(rune('a'+fetched%2)), dispatch.RelationRedirect))
		}
		if got := w.MustTask(id); fetched != bounds.MaxRedirects+1 || got.State != dispatch.StateDead || got.LastError.Message != "more than 100 redirects" {
			t.Errorf("after %d requests: %+v", fetched, got)
		}
	})
}

// The history of a seed has where its page redirects to.
func TestDispatcher_redirect_history(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.hourly("s", nil, "http://a.example/")
		r := dispatchtest.Success(w.TakeOne())
		r.Succeeded.HTTPStatus, r.Succeeded.Discovered = 301, []dispatch.DiscoveredItem{related("http://b.example/", dispatch.RelationRedirect)}
		w.Settle(r)
		if line := w.MustTask(r.ID).History[0]; line.Moved != "http://b.example/" || line.MovedStatus != 301 {
			t.Errorf("%+v", line)
		}
	})
}

// The interval of an adaptive schedule follows the page at the end of the redirects.
func TestDispatcher_redirect_adaptive(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Dispatchers: 2}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds = dispatchtest.Seeds("http://a.example/")
			s.Schedule.Adaptive = dispatch.Adaptive{Min: time.Hour, Max: 100 * time.Hour}
		})
		urls := []string{"http://a.example/", "https://a.example/", "https://a.example/en"}
		for i, test := range []struct {
			changed bool
			fresh   time.Duration
			want    time.Duration
		}{{true, 0, 10 * time.Hour}, {true, 0, 8 * time.Hour}, {false, 0, 11*time.Hour + 12*time.Minute}, {false, 20 * time.Hour, 20 * time.Hour}} {
			begin := time.Now()
			for n := range urls {
				r := dispatchtest.Success(w.TakeOne())
				if n < len(urls)-1 {
					r.Succeeded.Discovered = []dispatch.DiscoveredItem{related(urls[n+1], dispatch.RelationRedirect)}
				} else {
					r.Succeeded.Changed, r.Succeeded.NextCrawlDelay = &test.changed, test.fresh
				}
				w.Dispatcher = w.D[n%2]
				w.Settle(r)
			}
			due := w.MustView("s").Status.NextDue
			if got := due.Sub(begin); got != test.want {
				t.Errorf("cycle %d: due again after %v, want %v", i, got, test.want)
			}
			time.Sleep(time.Until(due))
		}
	})
}
