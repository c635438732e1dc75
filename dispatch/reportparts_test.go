package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// namedIn is a name, of a source or a queue, whose home is in the first shard of two
// or in the second.
func namedIn(prefix string, second bool) string {
	for n := 0; ; n++ {
		if name := fmt.Sprint(prefix, n); inSecond(name) == second {
			return name
		}
	}
}

// TestDispatcher_Report_partHangs: of the reports of one call those that need the
// shard that hangs are to be repeated, and the others are settled, and answered soon.
func TestDispatcher_Report_partHangs(t *testing.T) {
	t.Parallel()
	inHungWorld(t, func(t *testing.T, w *world, store *hungShard) {
		well, hung := namedIn("q", false), namedIn("q", true)
		atHome, away := namedIn("s", false), namedIn("s", true)
		follows := func(s *dispatch.SourceSpec) { s.Follow = &dispatch.Follow{AllowHosts: []string{"*"}} }
		w.source(atHome, follows)
		w.source(away, follows)
		links := func(queue string) *dispatch.Succeeded {
			return &dispatch.Succeeded{Discovered: []dispatch.DiscoveredItem{{Key: "link from " + queue, Queue: queue, Priority: 5}}}
		}
		failed := &dispatch.Failed{Reason: 1, Permanent: true}
		cases := []struct {
			name          string
			queue, source string
			report        dispatch.Report
			needsHung     bool
		}{
			{"a success", well, atHome, dispatch.Report{Succeeded: &dispatch.Succeeded{}}, false},
			{"a success there", hung, atHome, dispatch.Report{Succeeded: &dispatch.Succeeded{}}, true},
			{"a failure", well, atHome, dispatch.Report{Failed: failed}, false},
			{"a failure there", hung, atHome, dispatch.Report{Failed: failed}, true},
			{"a failure of a source there", well, away, dispatch.Report{Failed: failed}, false}, // by what was known last
			{"links", well, atHome, dispatch.Report{Succeeded: links(well)}, false},
			{"links to there", well, atHome, dispatch.Report{Succeeded: links(hung)}, true},
			{"links of a page there", hung, atHome, dispatch.Report{Succeeded: links(well)}, true},
		}
		reports := make([]dispatch.Report, len(cases))
		for i, c := range cases {
			g := w.grants(c.source, c.queue, 1)[0]
			reports[i] = c.report
			reports[i].ID, reports[i].Token = g.Task.ID, g.Token
		}
		time.Sleep(2 * time.Second) // what is known of the sources grows old
		store.hangs.Store(true)
		for range 2 {
			began := time.Now()
			results, err := w.d[0].Report(t.Context(), "c1", reports)
			if err != nil || time.Since(began) > 1500*time.Millisecond {
				t.Fatalf("answered after %v: %v", time.Since(began), err)
			}
			for i, c := range cases {
				if r := results[i]; r.ID != reports[i].ID || (r.Code == engine.ReportUnavailable) != c.needsHung {
					t.Errorf("%s: %+v", c.name, r)
				}
			}
		}
		store.hangs.Store(false)
		time.Sleep(10 * time.Second)
		results, err := w.d[0].Report(t.Context(), "c1", reports)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range cases {
			if code := results[i].Code; code != engine.ReportOK && code != engine.ReportAlready {
				t.Errorf("%s, once all is well: %+v", c.name, results[i])
			}
		}
	})
}

// TestDispatcher_Report_allHang: where no report can be settled the call fails, and
// ahead of its caller's deadline.
func TestDispatcher_Report_allHang(t *testing.T) {
	t.Parallel()
	inHungWorld(t, func(t *testing.T, w *world, store *hungShard) {
		w.source("s", nil)
		var reports []dispatch.Report
		for _, g := range w.grants("s", namedIn("q", true), 2) {
			reports = append(reports, dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{}})
		}
		store.hangs.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		results, err := w.d[0].Report(ctx, "c1", reports)
		if !errors.Is(err, dispatch.ErrStoreUnavailable) || ctx.Err() != nil {
			t.Errorf("%+v, %v; want the store to be unavailable, in time", results, err)
		}
	})
}

// TestDispatcher_Report_shortDeadline: a caller who waits only a moment is answered by a
// store that is well.
func TestDispatcher_Report_shortDeadline(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		g := w.grants("s", "q", 1)[0]
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		results, err := w.d[0].Report(ctx, "c1", []dispatch.Report{{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{}}})
		if err != nil || results[0].Code != engine.ReportOK {
			t.Errorf("%+v, %v", results, err)
		}
	})
}

// grants hands out n new tasks of a queue to c1.
func (w *world) grants(source, queue string, n int) []dispatch.Grant {
	w.t.Helper()
	var grants []dispatch.Grant
	w.submit(source, queue, n, 0)
	for len(grants) < n {
		req := ask("c1", "", 0)
		req.Queues, req.MaxTasks = []string{queue}, n
		grants = append(grants, w.mustFetch(req).Tasks...)
	}
	return grants
}
