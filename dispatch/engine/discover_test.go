package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// What several reports of one call discovered is submitted in one; each by
// itself where the store refuses that.
func TestDispatcher_Report_discoverTogether(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string][]*dispatchtest.Fault{
		"together":         nil,
		"refused together": {dispatchtest.Fail(errors.New("refused"), dispatchtest.Calls("Submit")).Once()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", func(s *dispatch.SourceSpec) {
					s.Follow = &dispatch.Follow{AllowHosts: []string{"*"}}
				})
				w.Submit("s", "", 3, 0)
				reports := make([]dispatch.Report, 0, 4)
				for _, g := range w.HoldTasks("c1", 3) {
					url := fmt.Sprintf("http://%s.example/", g.Task.ID)
					reports = append(reports, dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{
						Discovered: []dispatch.DiscoveredItem{{URL: url}, {URL: url + "2"}, {URL: "http://a.example/all"}},
					}})
				}
				stale := reports[0]
				stale.Token.Fence++
				reports = append(reports, stale)
				w.Inject(faults...)
				results, err := w.D[0].Report(t.Context(), "c1", reports)
				if err != nil || len(results) != 4 {
					t.Fatalf("%+v, %v", results, err)
				}
				for i, r := range results[:3] {
					if r.Code != engine.ReportOK || len(r.Discovered) != 3 || r.Discovered[0].Code != engine.DiscoverCreated || r.Discovered[1].Code != engine.DiscoverCreated ||
						(r.Discovered[2].Code == engine.DiscoverCreated) != (i == 0) || r.Discovered[2].ID != results[0].Discovered[2].ID {
						t.Errorf("report %d: %+v", i, r)
					}
				}
				if r := results[3]; r.Code != engine.ReportLeaseLost || r.Discovered != nil {
					t.Errorf("stale report: %+v", r)
				}
			})
		})
	}
}

func TestDispatcher_discover_appliesFollow(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		depth := 1
		w.Create("site", func(s *dispatch.SourceSpec) {
			s.Seeds = dispatchtest.Seeds("http://a.example/")
			s.Follow = &dispatch.Follow{MaxDepth: &depth, AllowHosts: []string{"a.example", "*.b.example"}, Include: []string{`/(p|q)`}, Exclude: []string{`\.zip$`}}
			s.Metadata = map[string]string{"k": "source"}
		})
		seed := w.TakeOne()
		r := w.Succeed(seed,
			dispatch.DiscoveredItem{URL: "http://a.example/p1#top", Metadata: map[string]string{"own": "1"}},
			dispatch.DiscoveredItem{URL: "http://a.example/p1"},
			dispatch.DiscoveredItem{URL: "http://x.b.example/q"},
			dispatch.DiscoveredItem{URL: "http://b.example/q"},
			dispatch.DiscoveredItem{URL: "http://a.example/other"},
			dispatch.DiscoveredItem{URL: "http://a.example/p.zip"},
			dispatch.DiscoveredItem{URL: "mailto:x@a.example"},
		)
		var codes []engine.DiscoverCode
		for _, d := range r.Discovered {
			codes = append(codes, d.Code)
		}
		want := []engine.DiscoverCode{
			engine.DiscoverCreated, engine.DiscoverExists, engine.DiscoverCreated, engine.DiscoverFiltered,
			engine.DiscoverFiltered, engine.DiscoverFiltered, engine.DiscoverInvalid,
		}
		if !slices.Equal(codes, want) {
			t.Fatalf("codes %v, want %v: %+v", codes, want, r.Discovered)
		}
		for _, g := range w.Take(10) {
			if g.Task.Depth != 1 || g.Task.Metadata["k"] != "source" {
				t.Errorf("discovered %+v", g.Task)
			}
			deeper := w.Succeed(g, dispatch.DiscoveredItem{URL: "http://a.example/p/deeper"})
			if deeper.Discovered[0].Code != engine.DiscoverFiltered || !strings.Contains(deeper.Discovered[0].Message, "max_depth") {
				t.Errorf("too deep: %+v", deeper.Discovered)
			}
		}
	})
}

// Another port is another server: a host without one means the default port of the URL's scheme.
func TestDispatcher_discover_hostsHavePorts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seed             string
		hosts            []string
		follows, refuses []string
	}{
		"exact":           {"http://s.example/", []string{"a.example"}, []string{"http://a.example:80/", "https://a.example:443/"}, []string{"http://a.example:8080/", "https://a.example:80/"}},
		"port":            {"http://s.example/", []string{"a.example:8080"}, []string{"http://a.example:8080/"}, []string{"http://a.example/", "http://b.a.example:8080/"}},
		"suffix":          {"http://s.example/", []string{"*.example"}, []string{"http://a.example/"}, []string{"http://a.example:8080/"}},
		"suffix and port": {"http://s.example/", []string{"*.example:8080"}, []string{"http://a.example:8080/"}, []string{"http://a.example/"}},
		"any":             {"http://s.example/", []string{"*"}, []string{"http://a.example/", "http://a.example:8080/"}, nil},
		"seed":            {"http://s.example/", nil, []string{"https://s.example/"}, []string{"http://s.example:8080/"}},
		"seed with port":  {"http://s.example:8080/", nil, []string{"http://s.example:8080/p"}, []string{"http://s.example/"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
				w.Unhurried()
				w.Create("site", func(s *dispatch.SourceSpec) {
					s.Seeds, s.Follow = dispatchtest.Seeds(c.seed), &dispatch.Follow{AllowHosts: c.hosts}
				})
				var items []dispatch.DiscoveredItem
				for _, url := range slices.Concat(c.follows, c.refuses) {
					items = append(items, dispatch.DiscoveredItem{URL: url})
				}
				for i, d := range w.Succeed(w.TakeOne(), items...).Discovered {
					want, why := engine.DiscoverCreated, dispatch.FilterNone
					if i >= len(c.follows) {
						want, why = engine.DiscoverFiltered, dispatch.FilterHost
					}
					if d.Code != want || d.Filter != why {
						t.Errorf("%s: %+v, want %v because of %v", items[i].URL, d, want, why)
					}
				}
			})
		})
	}
}

// A page inherits the metadata of the one that led to it, under its own. With the source's it is within the limit, at
// submit and hand-out.
func TestDispatcher_metadata(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Follow = &dispatch.Follow{AllowHosts: []string{"*"}}
			s.Metadata = map[string]string{"of": strings.Repeat("s", 998)} // 1000 bytes
		})
		long := func(n int) map[string]string { return map[string]string{"k": strings.Repeat("v", n-1)} }
		results := w.MustSubmit(
			engine.NewTask{SourceID: "s", URL: "http://a.example/", Metadata: map[string]string{"lang": "en", "team": "x"}},
			engine.NewTask{SourceID: "s", URL: "http://a.example/full", Metadata: long(bounds.MaxMetadataLength - 1000), Due: time.Now().Add(time.Minute)},
			engine.NewTask{SourceID: "s", URL: "http://a.example/over", Metadata: long(bounds.MaxMetadataLength - 999)},
		)
		const over = `metadata is "8193 bytes with what is inherited"; it must be at most 8192 bytes`
		if err := results[2].Err; err == nil || err.Error() != over || !errors.Is(err, dispatch.ErrInvalid) || results[1].Err != nil {
			t.Errorf("over the limit with the source's: %v; at the limit: %v", err, results[1].Err)
		}
		r := w.Succeed(w.TakeOne(),
			dispatch.DiscoveredItem{URL: "http://a.example/1", Metadata: map[string]string{"lang": "de"}},
			dispatch.DiscoveredItem{URL: "http://a.example/2", Metadata: long(bounds.MaxMetadataLength - 1000 - 11 + 1)}, // beside lang and team
		)
		if got := r.Discovered[1]; got.Code != engine.DiscoverInvalid || got.Message != over {
			t.Errorf("over the limit with what is inherited: %+v", got)
		}
		page := w.TakeOne()
		w.Succeed(page)
		if got := page.Task; got.ID != r.Discovered[0].ID || got.Metadata["lang"]+got.Metadata["team"] != "dex" || len(got.Metadata["of"]) != 998 {
			t.Errorf("metadata %v", got.Metadata)
		}
		if _, _, err := w.UpdateSource(t.Context(), "s", 0, func(s *dispatch.SourceSpec) error {
			s.Metadata = map[string]string{"of": strings.Repeat("s", 999)}
			return nil
		}, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := w.TakeOne().Task; !maps.Equal(got.Metadata, long(bounds.MaxMetadataLength-1000)) {
			t.Errorf("there is no room beside the task's own metadata, and it is handed out with %d bytes of it and %d of the source", len(got.Metadata["k"]), len(got.Metadata["of"]))
		}
	})
}

// What a list says has changed since it was crawled is crawled again, with its
// memo.
func TestDispatcher_discover_modified(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("site", func(s *dispatch.SourceSpec) {
			s.Seeds = dispatchtest.Seeds("http://a.example/sitemap.xml")
			s.Schedule = dispatch.Schedule{Every: time.Hour}
			s.Follow = &dispatch.Follow{}
		})
		var crawled time.Time
		for cycle, test := range []struct {
			modified time.Duration // after the last crawl
			want     engine.DiscoverCode
		}{
			{0, engine.DiscoverCreated},
			{-time.Minute, engine.DiscoverExists},
			{time.Minute, engine.DiscoverRevisit},
			{365 * 24 * time.Hour, engine.DiscoverExists}, // a wrong clock
		} {
			item := dispatch.DiscoveredItem{URL: "http://a.example/page", Modified: crawled.Add(test.modified)}
			r := w.Succeed(w.TakeOne(), item)
			if r.Discovered[0].Code != test.want {
				t.Fatalf("cycle %d: %+v, want code %d", cycle, r.Discovered, test.want)
			}
			for _, g := range w.Take(9) {
				if cycle > 0 && string(g.Task.Memo) != "etag" {
					t.Errorf("cycle %d: memo %q", cycle, g.Task.Memo)
				}
				w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{Memo: []byte("etag")}})
				crawled = time.Now()
			}
			time.Sleep(time.Hour)
		}
	})
}
