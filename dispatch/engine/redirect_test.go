package engine_test

import (
	"cmp"
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

// A redirect to another spelling of the task's own URL is a hop with a key of its own, whatever session the site gives it.
func TestDispatcher_redirect_itself(t *testing.T) {
	t.Parallel()
	const seed, sorted, session = "http://a.example/?b=1&a=2", "http://a.example/?a=2&b=1", "http://a.example/?PHPSESSID=0123456789abcde%d&a=2&b=1"
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.CanonicalRules, s.Schedule = dispatchtest.Seeds(seed), canonical.Sorted, dispatch.Schedule{Every: time.Hour}
		})
		for cycle, code := range []engine.DiscoverCode{engine.DiscoverCreated, engine.DiscoverRevisit, engine.DiscoverRevisit} {
			w.wantChain(code, seed, sorted, fmt.Sprintf(session, cycle))
			view := w.MustView("s").Status
			if view.Counts.Done != 2 || !view.LastSuccess.Equal(time.Now()) {
				t.Errorf("cycle %d: %+v", cycle, view)
			}
			time.Sleep(time.Hour)
		}
		w.moves(301, sorted)
		w.moves(302, fmt.Sprintf(session, 9))
		if got := w.MustView("s").Status.Moves; len(got) != 1 || got[0].To != fmt.Sprintf(session, 9) || got[0].Lasting != sorted {
			t.Errorf("moves %+v", got)
		}
	})
}

// Two spellings that redirect to each other end, whatever the handler saves.
func TestDispatcher_redirect_itself_length(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) { s.CanonicalRules = canonical.Sorted })
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/"})
		fetched, last := 0, engine.DiscoverCode(0)
		for g := w.Take(1); len(g) > 0 && fetched < 300; g = w.Take(1) {
			fetched++
			save := dispatch.Renewal{ID: g[0].Task.ID, Token: g[0].Token, Cursor: []byte("waggle-redirect 1 http://b.example/")}
			if _, err := w.Store.Renew(t.Context(), []dispatch.Renewal{save}); err != nil {
				t.Fatal(err)
			}
			last = w.Succeed(g[0], related("http://a.example/?utm_source="+string(rune('a'+fetched%2)), dispatch.RelationRedirect)).Discovered[0].Code
		}
		if fetched != bounds.MaxRedirects+1 || last != engine.DiscoverInvalid {
			t.Errorf("after %d requests: %v", fetched, last)
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

// A redirect to a hop that still waits is not a success of the source.
func TestDispatcher_redirect_pending(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule = dispatchtest.Seeds("http://a.example/1", "http://a.example/2"), dispatch.Schedule{Every: 10 * time.Minute}
		})
		for cycle := range 3 {
			for grants := w.fetchAll(); len(grants) > 0; grants = w.fetchAll() {
				for _, g := range grants {
					switch g.Task.URL {
					case "http://a.example/b":
						w.Succeed(g, related("http://a.example/missing", dispatch.RelationRedirect))
					case "http://a.example/missing":
						w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1, HTTPStatus: 404}})
					default:
						w.Succeed(g, related("http://a.example/b", dispatch.RelationRedirect))
					}
				}
			}
			if s := w.MustView("s").Status; s.FailuresInARow == 0 || !s.LastSuccess.IsZero() {
				t.Errorf("cycle %d: the end of the chain fails, and the source's status is %+v", cycle, s)
			}
			time.Sleep(10 * time.Minute)
		}
	})
}

// In a shared scope, a page that another source's task has fetched in this cycle is a success of the source too.
func TestDispatcher_redirect_shared(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"http://a.example/end", "http://a.example/one"} { // a hop, a seed of the other source
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			for _, id := range []string{"one", "two"} {
				w.Create(id, func(s *dispatch.SourceSpec) {
					s.Seeds, s.Schedule, s.Scope = dispatchtest.Seeds("http://a.example/"+id), dispatch.Schedule{Every: time.Hour}, "all"
				})
			}
			for cycle := range 3 {
				for grants := w.fetchAll(); len(grants) > 0; grants = w.fetchAll() {
					slices.SortFunc(grants, func(a, b dispatch.Grant) int { return cmp.Compare(a.Task.URL, b.Task.URL) * (1 - 2*min(cycle, 1)) })
					for _, g := range grants {
						if g.Task.URL == end {
							w.Succeed(g)
						} else {
							w.Succeed(g, related(end, dispatch.RelationRedirect))
						}
					}
				}
				time.Sleep(time.Hour)
			}
			for _, id := range []string{"one", "two"} {
				if s := w.MustView(id).Status; s.LastSuccess.IsZero() || time.Since(s.LastSuccess) > 61*time.Minute {
					t.Errorf("%s: the page %s was fetched, and the status is %+v", id, end, s)
				}
			}
		})
	}
}

// The limit on outstanding tasks does not refuse a hop.
func TestDispatcher_redirect_limited(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule, s.MaxOutstanding = dispatchtest.Seeds("http://a.example/"), dispatch.Schedule{Every: time.Hour}, 1
		})
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/waits", Due: time.Now().Add(24 * time.Hour)})
		for _, code := range []engine.DiscoverCode{engine.DiscoverCreated, engine.DiscoverRevisit} {
			w.wantChain(code, "http://a.example/", "http://a.example/b")
			time.Sleep(time.Hour)
		}
	})
}
