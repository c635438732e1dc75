package engine_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// followed is what becomes of items that a page leads to, by their follow rule: 0 for
// one that is created, else why it is not.
type followed []dispatch.FilterReason

// The items of a feed are followed one step on any host, unless the rule names hosts;
// what they link to, or list in turn, is followed as any link is.
func TestDispatcher_discover_feedItems(t *testing.T) {
	none, hosts := 0, []string{"feed.example"}
	for name, test := range map[string]struct {
		follow *dispatch.Follow
		feed   followed // by the feed: an item at home, one elsewhere, a link at home, one elsewhere
		item   followed // by the item elsewhere: a link and a feed item on its host, a redirect, a link to the feed's host
		moved  followed // by where that redirects to: a link and a feed item on its host, a redirect
	}{
		"no rule": {
			feed:  followed{0, 0, dispatch.FilterNoRule, dispatch.FilterNoRule},
			item:  followed{dispatch.FilterNoRule, dispatch.FilterNoRule, 0, dispatch.FilterNoRule},
			moved: followed{dispatch.FilterNoRule, dispatch.FilterNoRule, 0},
		},
		"hosts of the seeds": {
			follow: &dispatch.Follow{},
			feed:   followed{0, 0, 0, dispatch.FilterHost},
			item:   followed{dispatch.FilterHost, dispatch.FilterHost, 0, 0},
			moved:  followed{dispatch.FilterHost, dispatch.FilterHost, 0},
		},
		"named hosts": {
			follow: &dispatch.Follow{AllowHosts: hosts}, feed: followed{0, dispatch.FilterHost, 0, dispatch.FilterHost},
		},
		"no depth": {
			follow: &dispatch.Follow{MaxDepth: &none},
			feed:   followed{dispatch.FilterDepth, dispatch.FilterDepth, dispatch.FilterDepth, dispatch.FilterDepth},
		},
		"include": {
			follow: &dispatch.Follow{Include: []string{"^http://feed"}},
			feed:   followed{0, dispatch.FilterInclude, 0, dispatch.FilterHost},
		},
		"exclude": {
			follow: &dispatch.Follow{Exclude: []string{"item.example/2$"}},
			feed:   followed{0, dispatch.FilterExclude, 0, dispatch.FilterHost},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
				w.Unhurried()
				w.Create("s", func(s *dispatch.SourceSpec) {
					s.Seeds, s.Follow = dispatchtest.Seeds("http://feed.example/"), test.follow
				})
				var want dispatch.Filtered
				w.discovers(&want, w.TakeOne(), test.feed,
					related("http://feed.example/1", dispatch.RelationFeedItem), related("http://item.example/2", dispatch.RelationFeedItem),
					related("http://feed.example/3", dispatch.RelationLink), related("http://item.example/4", dispatch.RelationNone))
				items := w.fetchAll()
				for _, page := range items {
					switch {
					case page.Task.URL != "http://item.example/2":
						w.Succeed(page)
						continue
					case page.Task.Relation != dispatch.RelationFeedItem:
						t.Errorf("the item of the feed has relation %d", page.Task.Relation)
					}
					w.discovers(&want, page, test.item,
						related("http://item.example/5", dispatch.RelationLink), related("http://item.example/6", dispatch.RelationFeedItem),
						related("http://moved.example/7", dispatch.RelationRedirect), related("http://feed.example/8", dispatch.RelationLink))
				}
				moved := w.fetchAll()
				for _, page := range moved {
					if page.Task.URL != "http://moved.example/7" {
						continue
					}
					if page.Task.Depth != 1 {
						t.Errorf("the article that was moved has depth %d", page.Task.Depth)
					}
					w.discovers(&want, page, test.moved,
						related("http://moved.example/9", dispatch.RelationLink), related("http://moved.example/10", dispatch.RelationFeedItem),
						related("http://third.example/11", dispatch.RelationRedirect))
				}
				if len(items) != test.feed.created() || len(moved) != test.item.created() {
					t.Errorf("%d items of the feed and %d of its item were fetched", len(items), len(moved))
				}
				w.wantFiltered("s", want)
			})
		})
	}
}

// created is how many are.
func (f followed) created() (n int) {
	for _, reason := range f {
		if reason == dispatch.FilterNone {
			n++
		}
	}
	return n
}

// fetchAll takes what can be had now, of every shard.
func (w *world) fetchAll() (all []dispatch.Grant) {
	w.T.Helper()
	for {
		grants := w.Take(9)
		if len(grants) == 0 {
			return all
		}
		all = append(all, grants...)
	}
}

func related(url string, relation dispatch.Relation) dispatch.DiscoveredItem {
	return dispatch.DiscoveredItem{URL: url, Relation: relation}
}

// discovers reports a page that leads to items, checks what becomes of each, and counts
// those that are not followed.
func (w *world) discovers(count *dispatch.Filtered, page dispatch.Grant, want followed, items ...dispatch.DiscoveredItem) {
	w.T.Helper()
	for i, got := range w.Succeed(page, items...).Discovered {
		if got.Filter != want[i] || (got.Code == engine.DiscoverFiltered) != (want[i] != dispatch.FilterNone) || (got.Code == engine.DiscoverCreated) != (want[i] == dispatch.FilterNone) {
			w.T.Errorf("%s leads to %s: %+v, want reason %d", page.Task.URL, items[i].URL, got, want[i])
		}
		if want[i] != dispatch.FilterNone {
			count[want[i]]++
		}
	}
}

func (w *world) wantFiltered(source string, want dispatch.Filtered) {
	w.T.Helper()
	view, err := w.Source(w.T.Context(), source)
	if err != nil {
		w.T.Fatal(err)
	}
	listed, err := w.Store.SourceStatuses(w.T.Context(), []string{view.Source.UID}, false)
	if err != nil || view.Status.Filtered != want || listed[0].Filtered != want {
		w.T.Errorf("source %s has filtered %v, and %v in a list, want %v; %v", source, view.Status.Filtered, listed, want, err)
	}
}

// What is submitted ahead of a report is counted, too; and what is reported again is not
// counted again.
func TestDispatcher_discover_countsFiltered(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Follow = dispatchtest.Seeds("http://a.example/"), &dispatch.Follow{AllowHosts: []string{"*.example"}}
		})
		page := w.TakeOne()
		items := []dispatch.DiscoveredItem{{URL: "http://elsewhere.test/"}, {URL: "http://b.example/"}, {URL: "no URL"}}
		if _, err := w.SubmitDiscovered(t.Context(), page.Task.ID, page.Token, items); err != nil {
			t.Fatal(err)
		}
		want := dispatch.Filtered{dispatch.FilterHost: 1}
		w.wantFiltered("s", want)
		for _, code := range []engine.ReportCode{engine.ReportOK, engine.ReportAlready} {
			if got := w.Succeed(page, items...); got.Code != code {
				t.Errorf("%+v, want code %d", got, code)
			}
		}
		want.Add(want)
		w.wantFiltered("s", want)
	})
}
