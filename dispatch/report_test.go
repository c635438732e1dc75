package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func TestDispatcher_discover_appliesFollow(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		depth := 1
		o.create("site", func(s *dispatch.SourceSpec) {
			s.Seeds = seeds("http://a.example/")
			s.Follow = &dispatch.Follow{MaxDepth: &depth, AllowHosts: []string{"a.example", "*.b.example"}, Include: []string{`/(p|q)`}, Exclude: []string{`\.zip$`}}
			s.Metadata = map[string]string{"k": "source"}
		})
		seed := o.fetchOne()
		r := o.succeed(seed,
			dispatch.DiscoveredItem{URL: "http://a.example/p1#top", Metadata: map[string]string{"own": "1"}},
			dispatch.DiscoveredItem{URL: "http://a.example/p1"},
			dispatch.DiscoveredItem{URL: "http://x.b.example/q"},
			dispatch.DiscoveredItem{URL: "http://b.example/q"},
			dispatch.DiscoveredItem{URL: "http://a.example/other"},
			dispatch.DiscoveredItem{URL: "http://a.example/p.zip"},
			dispatch.DiscoveredItem{URL: "mailto:x@a.example"},
		)
		var codes []dispatch.DiscoverCode
		for _, d := range r.Discovered {
			codes = append(codes, d.Code)
		}
		want := []dispatch.DiscoverCode{
			dispatch.DiscoverCreated, dispatch.DiscoverExists, dispatch.DiscoverCreated, dispatch.DiscoverFiltered,
			dispatch.DiscoverFiltered, dispatch.DiscoverFiltered, dispatch.DiscoverInvalid,
		}
		if !slices.Equal(codes, want) {
			t.Fatalf("codes %v, want %v: %+v", codes, want, r.Discovered)
		}
		for _, g := range o.fetch(10) {
			if g.Task.Depth != 1 || g.Task.Metadata["k"] != "source" {
				t.Errorf("discovered %+v", g.Task)
			}
			deeper := o.succeed(g, dispatch.DiscoveredItem{URL: "http://a.example/p/deeper"})
			if deeper.Discovered[0].Code != dispatch.DiscoverFiltered || !strings.Contains(deeper.Discovered[0].Message, "max_depth") {
				t.Errorf("too deep: %+v", deeper.Discovered)
			}
		}
	})
}

func TestDispatcher_Report_repeatedAndStale(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("s", nil)
		id := o.submit(dispatch.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
		first := o.fetchOne()
		time.Sleep(dispatch.DefaultLeaseDuration + time.Second) // it expires, and the queue's delay passes
		second := o.fetchOne()
		if stale := o.succeed(first); stale.Code != dispatch.ReportLeaseLost || stale.Lost != dispatch.LostExpired && stale.Lost != dispatch.LostTaken {
			t.Errorf("stale report: %+v", stale)
		}
		if task := o.task(id); task.State != dispatch.StateLeased || task.Counters.Expirations != 1 || len(task.History) != 1 {
			t.Errorf("after a stale report: %+v", task)
		}
		done := o.succeed(second)
		again := o.succeed(second)
		if done.Code != dispatch.ReportOK || again.Code != dispatch.ReportAlready || again.State != dispatch.StateDone || again.Result != dispatch.ResultSucceeded {
			t.Errorf("done %+v, repeated %+v", done, again)
		}
		wrong := second
		wrong.Token.Collector = "c2"
		mixed := o.report(
			dispatch.Report{ID: id, Token: wrong.Token, Succeeded: &dispatch.Succeeded{}},
			dispatch.Report{ID: "1-aaaaaaaaaaaaaaaaaaaaaaaaaa", Token: second.Token, Succeeded: &dispatch.Succeeded{}},
			dispatch.Report{ID: id, Token: second.Token, Released: &dispatch.Released{}},
		)
		if mixed[0].Code != dispatch.ReportLeaseLost || mixed[1].Code != dispatch.ReportNotFound || mixed[2].Code != dispatch.ReportAlready {
			t.Errorf("%+v", mixed)
		}
	})
}

// A pass crawls what earlier passes settled once more, and each page once.
func TestDispatcher_passes(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.unhurried()
		o.create("site", func(s *dispatch.SourceSpec) {
			s.Seeds = seeds("http://a.example/")
			s.Schedule = dispatch.Schedule{Every: time.Hour, Revisit: true}
			s.Follow = &dispatch.Follow{}
		})
		links := []dispatch.DiscoveredItem{{URL: "http://a.example/1"}, {URL: "http://a.example/2"}, {URL: "http://a.example/"}}
		for pass := range 3 {
			var fetched []string
			for {
				grants := o.fetch(10)
				if len(grants) == 0 {
					break
				}
				for _, g := range grants {
					fetched = append(fetched, g.Task.URL)
					if pass > 0 && !g.Task.Recurring && string(g.Task.Memo) != "etag" {
						t.Errorf("pass %d: memo of %s is %q", pass, g.Task.URL, g.Task.Memo)
					}
					o.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{Memo: []byte("etag"), Discovered: links}})
				}
			}
			slices.Sort(fetched)
			if want := []string{"http://a.example/", "http://a.example/1", "http://a.example/2"}; !slices.Equal(fetched, want) {
				t.Errorf("pass %d fetched %q, want %q", pass, fetched, want)
			}
			time.Sleep(time.Hour)
		}
	})
}
