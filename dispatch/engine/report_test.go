package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestDispatcher_Report_repeatedAndStale(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", nil)
		id := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
		first := w.TakeOne()
		time.Sleep(dispatch.DefaultLeaseDuration + time.Second) // it expires, and the queue's delay passes
		second := w.TakeOne()
		if stale := w.Succeed(first); stale.Code != engine.ReportLeaseLost || stale.Lost != dispatch.LostExpired && stale.Lost != dispatch.LostTaken {
			t.Errorf("stale report: %+v", stale)
		}
		if task := w.MustTask(id); task.State != dispatch.StateLeased || task.Counters.Expirations != 1 || len(task.History) != 1 {
			t.Errorf("after a stale report: %+v", task)
		}
		foreign, err := w.Report(t.Context(), "c9", []dispatch.Report{{ID: id, Token: second.Token, Succeeded: &dispatch.Succeeded{}}})
		if err != nil || foreign[0].Code != engine.ReportLeaseLost || w.MustTask(id).State != dispatch.StateLeased {
			t.Errorf("report of a collector that the token does not name: %+v, %v", foreign, err)
		}
		done := w.Succeed(second)
		again := w.Succeed(second)
		if done.Code != engine.ReportOK || again.Code != engine.ReportAlready || again.State != dispatch.StateDone || again.Result != dispatch.ResultSucceeded {
			t.Errorf("done %+v, repeated %+v", done, again)
		}
		wrong := second
		wrong.Token.Collector = "c2"
		mixed := w.MustReport(
			dispatch.Report{ID: "1-aaaaaaaaaaaaaaaaaaaaaaaaaa", Token: second.Token, Succeeded: &dispatch.Succeeded{}},
			dispatch.Report{ID: id, Token: wrong.Token, Succeeded: &dispatch.Succeeded{}},
			dispatch.Report{ID: id, Token: second.Token, Released: &dispatch.Released{}},
		)
		if mixed[0].Code != engine.ReportNotFound || mixed[1].Code != engine.ReportLeaseLost || mixed[2].Code != engine.ReportAlready {
			t.Errorf("%+v", mixed)
		}
	})
}

// Of two reports of one lease in one call the first counts, whatever they say.
func TestDispatcher_Report_twiceInOneCall(t *testing.T) {
	for name, first := range map[string]dispatch.Report{
		"released":  {Released: &dispatch.Released{}},
		"failed":    {Failed: &dispatch.Failed{Reason: 1, Permanent: true}},
		"succeeded": {Succeeded: &dispatch.Succeeded{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
				w.Create("s", nil)
				id := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
				g := w.TakeOne()
				first.ID, first.Token = id, g.Token
				results := w.MustReport(first,
					dispatch.Report{ID: id, Token: g.Token, Succeeded: &dispatch.Succeeded{}},
					dispatch.Report{ID: id, Token: g.Token, Failed: &dispatch.Failed{Reason: 1}},
				)
				if results[0].Code != engine.ReportOK {
					t.Errorf("the first: %+v", results[0])
				}
				for _, r := range results[1:] {
					if r.Code != engine.ReportAlready || r.Result != results[0].Result {
						t.Errorf("a later one: %+v, after %+v", r, results[0])
					}
				}
			})
		})
	}
}

// TestDispatcher_Report_shortDeadline: a caller who waits only a moment is answered by a
// store that is well.
func TestDispatcher_Report_shortDeadline(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		g := w.Grants("s", "q", 1)[0]
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		results, err := w.D[0].Report(ctx, "c1", []dispatch.Report{dispatchtest.Success(g)})
		if err != nil || results[0].Code != engine.ReportOK {
			t.Errorf("%+v, %v", results, err)
		}
	})
}

// A pass crawls what earlier passes settled once more, and each page once.
func TestDispatcher_passes(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("site", func(s *dispatch.SourceSpec) {
			s.Seeds = dispatchtest.Seeds("http://a.example/")
			s.Schedule = dispatch.Schedule{Every: time.Hour, Revisit: true}
			s.Follow = &dispatch.Follow{}
		})
		links := []dispatch.DiscoveredItem{{URL: "http://a.example/1"}, {URL: "http://a.example/2"}, {URL: "http://a.example/"}}
		for pass := range 3 {
			var fetched []string
			for {
				grants := w.Take(10)
				if len(grants) == 0 {
					break
				}
				for _, g := range grants {
					fetched = append(fetched, g.Task.URL)
					if pass > 0 && !g.Task.Recurring && string(g.Task.Memo) != "etag" {
						t.Errorf("pass %d: memo of %s is %q", pass, g.Task.URL, g.Task.Memo)
					}
					w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{Memo: []byte("etag"), Discovered: links}})
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

// What a host asks for holds from the report on that tells of it, for a success
// and for a failure.
func TestDispatcher_Report_queueDelay(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("s", nil)
		for _, n := range []string{"1", "2", "3", "4"} {
			w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/" + n})
		}
		five, none := 5*time.Second, time.Duration(0)
		g := w.TakeOne()
		w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{QueueDelay: &five}})
		for range 2 {
			if early := w.Take(9); len(early) > 0 {
				t.Fatalf("granted %d tasks within the host's delay", len(early))
			}
			queue, err := w.FindQueue(t.Context(), "a.example")
			if err != nil || queue.QueueDelay != five || len(queue.Gates) != 1 || !strings.Contains(queue.Gates[0].Reason, "5s") {
				t.Fatalf("queue %+v, %v", queue, err)
			}
			time.Sleep(five)
			g = w.TakeOne()
		}
		w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1, Permanent: true, QueueDelay: &none}})
		if rest := w.Take(9); len(rest) != 1 {
			t.Errorf("granted %d tasks once the host asks for nothing, want 1", len(rest))
		}
	})
}
