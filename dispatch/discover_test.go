package dispatch_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// What several reports of one call discovered is submitted in one; each by
// itself where the store refuses that.
func TestDispatcher_Report_discoverTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		refused int // of the first calls
		want    int // calls
	}{{"together", 0, 1}, {"refused together", 1, 4}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{}, func(t *testing.T, w *world) {
				w.source("s", func(s *dispatch.SourceSpec) {
					s.Follow = &dispatch.Follow{AllowHosts: []string{"*"}}
				})
				w.submit("s", "", 3, 0)
				reports := make([]dispatch.Report, 0, 4)
				for _, g := range w.mustFetch(func() engine.FetchRequest { r := ask("c1", "t1", 0); r.MaxTasks = 3; return r }()).Tasks {
					url := fmt.Sprintf("http://%s.example/", g.Task.ID)
					reports = append(reports, dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{
						Discovered: []dispatch.DiscoveredItem{{URL: url}, {URL: url + "2"}, {URL: "http://a.example/all"}},
					}})
				}
				stale := reports[0]
				stale.Token.Fence++
				reports = append(reports, stale)
				before := w.spies[0].count("Submit")
				w.spies[0].set(func(s *spy) {
					s.fail = func(call string) error {
						if call == "Submit" && s.count(call)-before <= c.refused {
							return errors.New("refused")
						}
						return nil
					}
				})
				results, err := w.d[0].Report(t.Context(), "c1", reports)
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
				if n := w.spies[0].count("Submit") - before; n != c.want {
					t.Errorf("%d calls, want %d", n, c.want)
				}
			})
		})
	}
}
