package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
)

// moves fetches a task whose page redirects.
func (w *world) moves(status int, to string) {
	w.T.Helper()
	r := dispatchtest.Success(w.TakeOne())
	r.Succeeded.HTTPStatus, r.Succeeded.Discovered = status, []dispatch.DiscoveredItem{related(to, dispatch.RelationRedirect)}
	w.Settle(r)
}

// The name of its own site that a seed redirects to counts as a host of the seeds; a host of another site does not.
func TestDispatcher_widen(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		seed, hop, end string
		named          bool
		counts         bool
	}{
		"www":               {"http://example.com/", "https://example.com/", "https://www.example.com/", false, true},
		"no www":            {"http://www.example.co.uk/", "https://www.example.co.uk/", "https://example.co.uk/", false, true},
		"port":              {"http://example.com/", "http://example.com:8080/", "http://www.example.com:8080/", false, true},
		"punycode":          {"http://bücher.example/", "https://bücher.example/", "https://www.bücher.example/", false, true},
		"other site":        {"http://example.com/", "https://example.com/", "https://www.example.org/", false, false},
		"other of a suffix": {"http://a.co.uk/", "https://a.co.uk/", "https://b.co.uk/", false, false},
		"other customer":    {"http://a.github.io/", "https://a.github.io/", "https://b.github.io/", false, false},
		"addresses":         {"http://10.0.0.1/", "https://10.0.0.1/", "https://11.0.0.1/", false, false},
		"named":             {"http://example.com/", "https://example.com/", "https://www.example.com/", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.Create("s", func(s *dispatch.SourceSpec) {
					s.Seeds, s.Follow = dispatchtest.Seeds(test.seed), &dispatch.Follow{}
					if test.named {
						s.Follow.AllowHosts = []string{"*.com", "example.com"}
					}
				})
				w.moves(301, test.hop)
				w.moves(302, test.end)
				view := w.MustView("s")
				if got := view.Status.Moves; len(got) != 1 || got[0].Seed != test.seed || got[0].To != test.end {
					t.Errorf("moves %+v, want one to %s", got, test.end)
				}
				if test.named {
					return
				}
				var count dispatch.Filtered
				reason := dispatch.FilterHost
				if test.counts {
					reason = dispatch.FilterNone
				}
				w.discovers(&count, w.TakeOne(), followed{reason, 0, dispatch.FilterHost},
					related(test.end+"link", dispatch.RelationLink), related(test.seed+"old", dispatch.RelationLink),
					related("http://shop.example.com/", dispatch.RelationLink))
				links := w.fetchAll()
				for _, g := range links {
					if strings.HasSuffix(g.Task.URL, "/old") {
						w.discovers(&count, g, followed{reason}, related(test.end+"old", dispatch.RelationRedirect))
					} else {
						w.discovers(&count, g, followed{reason}, related(test.end+"deeper", dispatch.RelationLink))
					}
				}
			})
		})
	}
}

// What a seed redirects to no more is forgotten.
func TestDispatcher_Moves_back(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.hourly("s", nil, "http://example.com/", "http://example.org/")
		for _, g := range w.fetchAll() {
			if g.Task.URL == "http://example.org/" {
				w.Settle(dispatchtest.Success(g))
				continue
			}
			r := dispatchtest.Success(g)
			r.Succeeded.HTTPStatus, r.Succeeded.Discovered = 308, []dispatch.DiscoveredItem{related("http://www.example.com/", dispatch.RelationRedirect)}
			w.Settle(r)
		}
		lasting := func(want string) {
			t.Helper()
			if got := w.MustView("s").Status.Moves; len(got) != 1 || got[0].To != "http://www.example.com/" || got[0].Lasting != want {
				t.Errorf("moves %+v, want for good to %q", got, want)
			}
		}
		lasting("") // whether there is a page is not known yet
		hop := w.TakeOne()
		w.Settle(dispatch.Report{ID: hop.Task.ID, Token: hop.Token, Failed: &dispatch.Failed{Reason: dispatch.ReasonOther}})
		lasting("")
		time.Sleep(time.Minute)
		w.Settle(dispatchtest.Success(w.TakeOne()))
		lasting("http://www.example.com/")
		time.Sleep(time.Hour)
		for _, g := range w.fetchAll() {
			w.Settle(dispatchtest.Success(g))
		}
		if got := w.MustView("s").Status.Moves; len(got) != 0 {
			t.Errorf("moves %+v", got)
		}
	})
}
