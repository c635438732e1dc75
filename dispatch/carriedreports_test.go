package dispatch_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// reporting is a fetch that reports tasks as done.
func reporting(grants ...dispatch.Grant) engine.FetchRequest {
	req := ask("c", "", 0)
	for _, g := range grants {
		req.Reports = append(req.Reports, success(g))
	}
	return req
}

// wantReports checks the answers to the reports of a fetch.
func (w *world) wantReports(res *engine.FetchResult, want ...engine.ReportCode) {
	w.t.Helper()
	if len(res.Reports) != len(want) {
		w.t.Fatalf("%d reports were answered, want %d", len(res.Reports), len(want))
	}
	for i, r := range res.Reports {
		if r.Code != want[i] {
			w.t.Errorf("report %d of %s is answered %v, want %v", i, r.ID, r.Code, want[i])
		}
	}
}

func TestDispatcher_Fetch_carriesReports(t *testing.T) {
	t.Parallel()
	const queue = "q"
	cases := map[string]func(t *testing.T, w *world){
		"in its claim": func(_ *testing.T, w *world) {
			w.submit("s", queue, 3, 0)
			g := w.hold("c", 1)
			for range 2 {
				res := w.mustFetch(reporting(g...))
				w.wantReports(res, engine.ReportOK)
				g = res.Tasks
			}
		},
		"before one that finds nothing": func(t *testing.T, w *world) {
			w.submit("s", queue, 1, 0)
			g := w.hold("c", 1)
			res, err := w.d[0].Fetch(t.Context(), reporting(g...))
			if err != nil || res.Empty != engine.EmptyNoTasks {
				t.Fatalf("Fetch: %+v, %v", res, err)
			}
			w.wantReports(res, engine.ReportOK)
		},
		"at once where the fetch has to wait": func(t *testing.T, w *world) {
			ids := w.submit("s", queue, 1, 0)
			req := reporting(w.hold("c", 1)...)
			req.Wait = bounds.MaxWait
			end := w.fetch(t.Context(), 0, req)
			time.Sleep(time.Millisecond)
			if task := w.task(ids[0]); task.State != dispatch.StateDone {
				t.Errorf("task %+v, want DONE", task)
			}
			w.submit("s", queue, 1, 0)
			if a := <-end; a.err != nil || len(a.res.Tasks) != 1 {
				t.Fatalf("Fetch: %+v, %v", a.res, a.err)
			} else {
				w.wantReports(a.res, engine.ReportOK)
			}
		},
		"with each its answer": func(t *testing.T, w *world) {
			w.submit("s", queue, 4, 0)
			g := w.hold("c", 3)
			w.settle(success(g[0]))
			req := reporting(g...)
			req.Reports[1].Token.ClientToken = "another"
			w.wantReports(w.mustFetch(req), engine.ReportAlready, engine.ReportLeaseLost, engine.ReportOK)
		},
		"a seed's by what its schedule says": func(t *testing.T, w *world) {
			w.source("seeded", func(s *dispatch.SourceSpec) {
				s.Seeds, s.Pool = seeds("http://seed.example/"), "seeds"
				s.Schedule.Every = time.Hour
			})
			req := ask("c", "", 0)
			req.Pools = []string{"seeds"}
			g := w.mustFetch(req).Tasks
			w.submit("s", queue, 2, 0)
			w.hold("c", 1)
			res := w.mustFetch(reporting(g...))
			w.wantReports(res, engine.ReportOK)
			if r := res.Reports[0]; r.State != dispatch.StateScheduled || r.Due.IsZero() {
				t.Errorf("the seed is %v, due %v", r.State, r.Due)
			}
		},
		"ahead of it, what is more than that the work is done": func(_ *testing.T, w *world) {
			w.submit("s", queue, 3, 0)
			req := reporting(w.hold("c", 1)...)
			req.Reports[0].Succeeded, req.Reports[0].Failed = nil, &dispatch.Failed{Reason: dispatch.FailureReason(1)}
			w.wantReports(w.mustFetch(req), engine.ReportOK)
		},
		"ahead of it, another's": func(_ *testing.T, w *world) {
			w.submit("s", queue, 3, 0)
			g := w.hold("c", 1)
			req := reporting(g[0], g[0])
			req.Reports[0].Token.Collector = "d"
			w.wantReports(w.mustFetch(req), engine.ReportLeaseLost, engine.ReportOK)
		},
		"ahead of it, many": func(_ *testing.T, w *world) {
			const many = bounds.MaxTransitions / 2
			w.submit("s", queue, many+1, 0)
			req := reporting(w.hold("c", many)...)
			w.wantReports(w.mustFetch(req), reportedOK(many)...)
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{}, func(t *testing.T, w *world) {
				w.source("s", func(s *dispatch.SourceSpec) { s.Remember = time.Hour })
				w.knownAt(0, "c")
				test(t, w)
			})
		})
	}
}

func reportedOK(n int) []engine.ReportCode {
	codes := make([]engine.ReportCode, n)
	for i := range codes {
		codes[i] = engine.ReportOK
	}
	return codes
}

// What a seed's report frees can be had by the fetch that carries it.
func TestDispatcher_Fetch_claimsWhatASeedFrees(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Second} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{inFlight: 1}, func(t *testing.T, w *world) {
				w.source("s", func(s *dispatch.SourceSpec) { s.Seeds, s.Schedule.Every = seeds("http://q/"), time.Hour })
				seed := w.hold("c", 1)
				w.submit("s", "q", 2, 0)
				time.Sleep(3 * time.Second) // until nothing is known of the pool
				w.knownOnly("c")
				req := reporting(seed...)
				req.Wait = wait
				w.wantReports(w.mustFetch(req), engine.ReportOK)
			})
		})
	}
}

// What a fetch reports does not wait for a claim to come to it: here claims of others
// serve nobody, one after the other.
func TestDispatcher_Fetch_reportsDoNotStandInLine(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.inject(on(func(_ context.Context, c *call, ask func() error) error {
			time.Sleep(time.Millisecond)
			err := ask()
			if reply, ok := c.reply.(*dispatch.ClaimReply); ok {
				reply.More = true
			}
			return err
		}, calls("Claim"), inPool(dispatch.DefaultPool)))
		w.source("s", func(s *dispatch.SourceSpec) { s.Remember = time.Hour })
		ids := w.submit("s", "", 1, 0)
		g := w.hold("c", 1)
		first := w.fetch(t.Context(), 0, ask("d", "", bounds.MaxWait))
		time.Sleep(100 * time.Millisecond)
		w.knownOnly("c")
		req := reporting(g...)
		req.Wait = bounds.MaxWait
		second := w.fetch(t.Context(), 0, req)
		time.Sleep(110 * time.Millisecond)
		if task := w.task(ids[0]); task.State != dispatch.StateDone {
			t.Errorf("task %+v, want DONE", task)
		}
		for _, ch := range []<-chan answer{first, second} {
			if a := <-ch; a.err != nil || a.res.Empty != engine.EmptyNoTasks {
				t.Errorf("Fetch: %+v, %v", a.res, a.err)
			}
		}
	})
}

// What a fetch reports is settled also where the fetch is given nothing.
func TestDispatcher_Fetch_settlesReportsOfRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		refuse  func(w *world)
		sources []string
		want    error
	}{
		"the store is full": {refuse: func(w *world) {
			w.inject(fail(dispatch.ErrStoreFull, calls("Claim")))
		}, want: dispatch.ErrStoreFull},
		"the dispatcher drains":   {refuse: func(w *world) { w.d[0].Drain() }},
		"the source is not known": {refuse: func(*world) {}, sources: []string{"unknown"}, want: dispatch.ErrSourceNotFound},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{}, func(t *testing.T, w *world) {
				w.source("s", func(s *dispatch.SourceSpec) { s.Remember = time.Hour })
				w.knownAt(0, "c")
				ids := w.submit("s", "", 2, 0)
				req := reporting(w.hold("c", 1)...)
				req.Sources = test.sources
				test.refuse(w)
				res, err := w.d[0].Fetch(t.Context(), req)
				if !errors.Is(err, test.want) || err == nil && len(res.Tasks) > 0 {
					t.Errorf("Fetch: %+v, %v; want %v", res, err, test.want)
				}
				if task := w.task(ids[0]); task.State != dispatch.StateDone {
					t.Errorf("task %+v, want DONE", task)
				}
			})
		})
	}
}

// A fetch whose claim is not answered is to be repeated: its report answers then with what became
// of it first (P7).
func TestDispatcher_Fetch_repeatsWhatItCarried(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", func(s *dispatch.SourceSpec) { s.Remember = time.Hour })
		w.knownAt(0, "c")
		w.submit("s", "", 3, 0)
		req := reporting(w.hold("c", 1)...)
		req.ClientToken = "t"
		w.inject(spoil(dispatch.ErrStoreUnavailable, calls("Claim")))
		if res, err := w.d[0].Fetch(t.Context(), req); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("Fetch: %+v, %v; want ErrStoreUnavailable", res, err)
		}
		w.heal()
		res := w.mustFetch(req)
		w.wantReports(res, engine.ReportAlready)
		if res.Reports[0].Result != dispatch.ResultSucceeded {
			t.Errorf("the report is answered with %v", res.Reports[0].Result)
		}
	})
}
