package operate_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/history"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// feed is a report of a feed with an item that has been there for ever, and n new ones.
func (w *world) feed(items, fresh int) {
	w.T.Helper()
	g := w.TakeOne()
	s := &dispatch.Succeeded{HTTPStatus: 200, Bytes: 1000, Document: history.Feed}
	for i := range items {
		s.Discovered = append(s.Discovered, dispatch.DiscoveredItem{URL: fmt.Sprintf("http://a.example/%d", i), Relation: dispatch.RelationFeedItem})
	}
	for i := range fresh {
		url := fmt.Sprintf("http://a.example/%d/%d", time.Now().Unix(), i)
		s.Discovered = append(s.Discovered, dispatch.DiscoveredItem{URL: url, Relation: dispatch.RelationFeedItem})
	}
	w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: s})
	for range items + fresh { // what was discovered is crawled
		got := w.Take(1)
		if len(got) == 0 {
			break
		}
		w.Settle(dispatchtest.Success(got[0]))
	}
}

// ofHealth are the sources of a health, by the list.
func (w *world) ofHealth(health ...operate.SourceHealth) (ids []string) {
	w.T.Helper()
	views, _, err := w.Operator.ListSources(w.T.Context(), operate.SourceQuery{Health: health, Histories: true}, "", 10)
	if err != nil {
		w.T.Fatal(err)
	}
	for _, v := range views {
		ids = append(ids, v.Source.ID)
	}
	return ids
}

// A feed that has news every hour becomes quiet 3 days after the last, and is well again with the next.
func TestOperator_quiet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every, after time.Duration // of the spec
		hours        int           // of cycles without news until it is quiet
	}{
		"3 days":        {every: time.Hour, hours: 73},
		"5 gaps":        {every: 15 * time.Hour, hours: 76}, // 5 of its usual gaps
		"as the spec":   {every: time.Hour, after: 3 * time.Hour, hours: 4},
		"as it is told": {every: time.Hour, after: 30 * time.Hour, hours: 31},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.Unhurried()
				w.Create("news", func(s *dispatch.SourceSpec) {
					s.Seeds, s.Schedule, s.QuietAfter = dispatchtest.Seeds("http://a.example/feed"), dispatch.Schedule{Every: c.every}, c.after
				})
				cycle := func(fresh int) {
					w.feed(1, fresh)
					time.Sleep(c.every)
					synctest.Wait()
				}
				for range 7 {
					cycle(1)
				}
				last := w.MustView("news").Status.LastNew
				for time.Since(last) <= time.Duration(c.hours)*time.Hour {
					quiet := time.Since(last) > time.Duration(c.hours-1)*time.Hour
					if v := w.MustView("news"); (v.Health == operate.HealthQuiet) != quiet {
						t.Errorf("after %v health is %d, usual gap %v", time.Since(last), v.Health, v.Status.UsualGap)
					}
					cycle(0)
				}
				f, ok := findings(t, w.Operator)["QUIET"]
				if e, err := w.ExplainSource(t.Context(), "news"); err != nil || e.Silent == nil || e.Silent.Silence(e.Now) != f.Message ||
					!strings.HasPrefix(f.Message, "nothing new for ") {
					t.Errorf("it is explained by %+v, %v, and found as %q", e, err, f.Message)
				}
				if !ok || f.Next != "waggle source history news" || !f.Since.Equal(last) || len(w.ofHealth(operate.HealthQuiet)) != 1 {
					t.Errorf("finding %+v, listed %v", f, w.ofHealth(operate.HealthQuiet))
				}
				if ids := w.ofHealth(operate.HealthEmpty); ids != nil {
					t.Errorf("%v are empty", ids)
				}
				cycle(2)
				v := w.MustView("news")
				if e, err := w.ExplainSource(t.Context(), "news"); err != nil || e.Silent != nil {
					t.Errorf("with news it is explained by %+v, %v", e, err)
				}
				if v.Health != operate.HealthOK || len(w.ofHealth(operate.HealthQuiet)) != 0 || v.NewByDay[len(v.NewByDay)-1]+v.NewByDay[len(v.NewByDay)-2] < 2 {
					t.Errorf("with news health is %d, new by day %v", v.Health, v.NewByDay)
				}
			})
		})
	}
}

// A document that has nothing of what it is for makes its source empty with its second cycle, by what it is.
func TestOperator_empty(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.Unhurried()
		follow := &dispatch.Follow{}
		documents := map[string]struct {
			document history.Document
			follow   *dispatch.Follow
			empty    bool
		}{
			"feed": {document: history.Feed, empty: true}, "sitemap": {document: history.Sitemap, empty: true},
			"listing": {document: history.Page, follow: follow, empty: true}, "page": {document: history.Page},
			"picture": {document: history.Other, follow: follow}, "nothing": {document: history.Empty, empty: true}, "unknown": {},
		}
		for id, d := range documents {
			w.Create(id, func(s *dispatch.SourceSpec) {
				s.Seeds, s.Schedule, s.Follow = dispatchtest.Seeds("http://"+id+".example/"), dispatch.Schedule{Every: time.Hour}, d.follow
			})
		}
		for n := range 3 {
			for _, g := range w.Take(len(documents)) {
				w.Settle(dispatch.Report{
					ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{HTTPStatus: 200, Document: documents[g.Task.SourceID].document},
				})
			}
			for id, d := range documents {
				if v := w.MustView(id); (v.Health == operate.HealthEmpty) != (d.empty && n > 0) {
					t.Errorf("after %d cycles the health of %s is %d, %d empty ones", n+1, id, v.Health, v.Status.EmptyCycles)
				}
			}
			time.Sleep(time.Hour)
			synctest.Wait()
		}
		f := findings(t, w.Operator)["EMPTY"]
		if ids := w.ofHealth(operate.HealthEmpty, operate.HealthQuiet); f.Count != 4 || len(ids) != 4 || f.Message != "no entries in its last 3 cycles" {
			t.Errorf("empty are %v, the finding is %+v", ids, f)
		}
	})
}

// A feed whose articles are all refused is not well although its own crawls succeed, and is well again as they are there. Failures of the
// feed itself, and of the collector, are none of its pages.
func TestOperator_pagesFail(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		const forbidden, other, disk = 2, 99, 201
		w.Unhurried()
		w.Create("news", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule = dispatchtest.Seeds("http://a.example/feed"), dispatch.Schedule{Every: time.Hour}
		})
		cycle := func(articles int, end func(g dispatch.Grant) dispatch.Report) {
			t.Helper()
			g := w.TakeOne()
			s := &dispatch.Succeeded{HTTPStatus: 200, Document: history.Feed}
			for i := range articles {
				url := fmt.Sprintf("http://a.example/%d/%d", time.Now().Unix(), i)
				s.Discovered = append(s.Discovered, dispatch.DiscoveredItem{URL: url, Relation: dispatch.RelationFeedItem})
			}
			w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: s})
			for _, g := range w.Take(articles) {
				w.Settle(end(g))
			}
			time.Sleep(time.Until(w.MustView("news").Status.NextDue))
			synctest.Wait()
		}
		failing := func(reason dispatch.FailureReason) func(g dispatch.Grant) dispatch.Report {
			return func(g dispatch.Grant) dispatch.Report {
				r := failure(g, reason, 0)
				r.Failed.Permanent = reason == forbidden // else each is tried again
				return r
			}
		}
		well := func(when string) {
			t.Helper()
			if v := w.MustView("news"); v.Health != operate.HealthOK || len(w.ofHealth(operate.HealthPagesFail)) != 0 {
				t.Errorf("%s the health is %d, last pages %+v", when, v.Health, v.Status.Pages)
			}
		}
		for range 12 { // attempts of the feed
			w.Settle(failure(w.TakeOne(), other, 0))
			time.Sleep(time.Until(w.MustView("news").Status.NextDue))
			synctest.Wait()
		}
		cycle(9, failing(forbidden))
		well("with too few pages")
		cycle(1, failing(forbidden))
		f, v := findings(t, w.Operator)["PAGES_FAIL"], w.MustView("news")
		if v.Health != operate.HealthPagesFail || len(w.ofHealth(operate.HealthPagesFail)) != 1 || len(w.ofHealth(operate.HealthQuiet)) != 0 {
			t.Errorf("with articles that are refused the health is %d, last pages %+v", v.Health, v.Status.Pages)
		}
		if f.Count != 1 || f.Names[0] != "news" || f.Message != "10 of its last 10 pages failed" || f.Reasons[forbidden] != 10 || f.Next != "waggle task list --source news" {
			t.Errorf("the finding is %+v", f)
		}
		cycle(4, dispatchtest.Success)
		well("with articles")
		if f, ok := findings(t, w.Operator)["PAGES_FAIL"]; ok {
			t.Errorf("with articles there is the finding %+v", f)
		}
		cycle(1, failing(disk))
		if got, want := w.MustView("news").Status.Pages, (history.Pages{Ended: 14, Failed: 10}); got != want {
			t.Errorf("the last pages are %+v, want %+v", got, want)
		}
	})
}
