package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// reporting is a fetch that reports tasks as done.
func reporting(grants ...dispatch.Grant) engine.FetchRequest {
	req := dispatchtest.Ask("c", "", 0)
	for _, g := range grants {
		req.Reports = append(req.Reports, dispatchtest.Success(g))
	}
	return req
}

// wantReports checks the answers to the reports of a fetch.
func (w *world) wantReports(res *engine.FetchResult, want ...engine.ReportCode) {
	w.T.Helper()
	if len(res.Reports) != len(want) {
		w.T.Fatalf("%d reports were answered, want %d", len(res.Reports), len(want))
	}
	for i, r := range res.Reports {
		if r.Code != want[i] {
			w.T.Errorf("report %d of %s is answered %v, want %v", i, r.ID, r.Code, want[i])
		}
	}
}

func TestDispatcher_Fetch_carriesReports(t *testing.T) {
	t.Parallel()
	const queue = "q"
	cases := map[string]func(t *testing.T, w *world){
		"in its claim": func(_ *testing.T, w *world) {
			w.Submit("s", queue, 3, 0)
			g := w.HoldTasks("c", 1)
			for range 2 {
				res := w.MustFetch(reporting(g...))
				w.wantReports(res, engine.ReportOK)
				g = res.Tasks
			}
		},
		"before one that finds nothing": func(t *testing.T, w *world) {
			w.Submit("s", queue, 1, 0)
			g := w.HoldTasks("c", 1)
			res, err := w.D[0].Fetch(t.Context(), reporting(g...))
			if err != nil || res.Empty != engine.EmptyNoTasks {
				t.Fatalf("Fetch: %+v, %v", res, err)
			}
			w.wantReports(res, engine.ReportOK)
		},
		"at once where the fetch has to wait": func(t *testing.T, w *world) {
			ids := w.Submit("s", queue, 1, 0)
			req := reporting(w.HoldTasks("c", 1)...)
			req.Wait = bounds.MaxWait
			end := w.GoFetch(t.Context(), 0, req)
			time.Sleep(time.Millisecond)
			if task := w.MustTask(ids[0]); task.State != dispatch.StateDone {
				t.Errorf("task %+v, want DONE", task)
			}
			w.Submit("s", queue, 1, 0)
			if a := <-end; a.Err != nil || len(a.Res.Tasks) != 1 {
				t.Fatalf("Fetch: %+v, %v", a.Res, a.Err)
			} else {
				w.wantReports(a.Res, engine.ReportOK)
			}
		},
		"with each its answer": func(t *testing.T, w *world) {
			w.Submit("s", queue, 4, 0)
			g := w.HoldTasks("c", 3)
			w.Settle(dispatchtest.Success(g[0]))
			req := reporting(g...)
			req.Reports[1].Token.ClientToken = "another"
			w.wantReports(w.MustFetch(req), engine.ReportAlready, engine.ReportLeaseLost, engine.ReportOK)
		},
		"a seed's by what its schedule says": func(t *testing.T, w *world) {
			w.AddSource("seeded", func(s *dispatch.SourceSpec) {
				s.Seeds, s.Pool = dispatchtest.Seeds("http://seed.example/"), "seeds"
				s.Schedule.Every = time.Hour
			})
			req := dispatchtest.Ask("c", "", 0)
			req.Pools = []string{"seeds"}
			g := w.MustFetch(req).Tasks
			w.Submit("s", queue, 2, 0)
			w.HoldTasks("c", 1)
			res := w.MustFetch(reporting(g...))
			w.wantReports(res, engine.ReportOK)
			if r := res.Reports[0]; r.State != dispatch.StateScheduled || r.Due.IsZero() {
				t.Errorf("the seed is %v, due %v", r.State, r.Due)
			}
		},
		"ahead of it, what is more than that the work is done": func(_ *testing.T, w *world) {
			w.Submit("s", queue, 3, 0)
			req := reporting(w.HoldTasks("c", 1)...)
			req.Reports[0].Succeeded, req.Reports[0].Failed = nil, &dispatch.Failed{Reason: dispatch.FailureReason(1)}
			w.wantReports(w.MustFetch(req), engine.ReportOK)
		},
		"ahead of it, another's": func(_ *testing.T, w *world) {
			w.Submit("s", queue, 3, 0)
			g := w.HoldTasks("c", 1)
			req := reporting(g[0], g[0])
			req.Reports[0].Token.Collector = "d"
			w.wantReports(w.MustFetch(req), engine.ReportLeaseLost, engine.ReportOK)
		},
		"ahead of it, many": func(_ *testing.T, w *world) {
			const many = bounds.MaxTransitions / 2
			w.Submit("s", queue, many+1, 0)
			req := reporting(w.HoldTasks("c", many)...)
			w.wantReports(w.MustFetch(req), reportedOK(many)...)
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", func(s *dispatch.SourceSpec) { s.Remember = time.Hour })
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
			inWorld(t, dispatchtest.Setup{InFlight: 1}, func(t *testing.T, w *world) {
				w.AddSource("s", func(s *dispatch.SourceSpec) { s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://q/"), time.Hour })
				seed := w.HoldTasks("c", 1)
				w.Submit("s", "q", 2, 0)
				time.Sleep(3 * time.Second) // until nothing is known of the pool
				w.knownOnly("c")
				req := reporting(seed...)
				req.Wait = wait
				w.wantReports(w.MustFetch(req), engine.ReportOK)
			})
		})
	}
}

// What a fetch reports does not wait for a claim to come to it: here claims of others
// serve nobody, one after the other.
func TestDispatcher_Fetch_reportsDoNotStandInLine(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.Inject(dispatchtest.On(func(_ context.Context, c *dispatchtest.Call, ask func() error) error {
			time.Sleep(time.Millisecond)
			err := ask()
			if reply, ok := c.Reply.(*dispatch.ClaimReply); ok {
				reply.More = true
			}
			return err
		}, dispatchtest.Calls("Claim"), dispatchtest.InPool(dispatch.DefaultPool)))
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.Remember = time.Hour })
		ids := w.Submit("s", "", 1, 0)
		g := w.HoldTasks("c", 1)
		first := w.GoFetch(t.Context(), 0, dispatchtest.Ask("d", "", bounds.MaxWait))
		time.Sleep(100 * time.Millisecond)
		w.knownOnly("c")
		req := reporting(g...)
		req.Wait = bounds.MaxWait
		second := w.GoFetch(t.Context(), 0, req)
		time.Sleep(110 * time.Millisecond)
		if task := w.MustTask(ids[0]); task.State != dispatch.StateDone {
			t.Errorf("task %+v, want DONE", task)
		}
		for _, ch := range []<-chan dispatchtest.Answer{first, second} {
			if a := <-ch; a.Err != nil || a.Res.Empty != engine.EmptyNoTasks {
				t.Errorf("Fetch: %+v, %v", a.Res, a.Err)
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
			w.Inject(dispatchtest.Fail(dispatch.ErrStoreFull, dispatchtest.Calls("Claim")))
		}, want: dispatch.ErrStoreFull},
		"the dispatcher drains":   {refuse: func(w *world) { w.D[0].Drain() }},
		"the source is not known": {refuse: func(*world) {}, sources: []string{"unknown"}, want: dispatch.ErrSourceNotFound},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", func(s *dispatch.SourceSpec) { s.Remember = time.Hour })
				w.knownAt(0, "c")
				ids := w.Submit("s", "", 2, 0)
				req := reporting(w.HoldTasks("c", 1)...)
				req.Sources = test.sources
				test.refuse(w)
				res, err := w.D[0].Fetch(t.Context(), req)
				if !errors.Is(err, test.want) || err == nil && len(res.Tasks) > 0 {
					t.Errorf("Fetch: %+v, %v; want %v", res, err, test.want)
				}
				if task := w.MustTask(ids[0]); task.State != dispatch.StateDone {
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
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.Remember = time.Hour })
		w.knownAt(0, "c")
		w.Submit("s", "", 3, 0)
		req := reporting(w.HoldTasks("c", 1)...)
		req.ClientToken = "t"
		w.Inject(dispatchtest.Spoil(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Claim")))
		if res, err := w.D[0].Fetch(t.Context(), req); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("Fetch: %+v, %v; want ErrStoreUnavailable", res, err)
		}
		w.Heal()
		res := w.MustFetch(req)
		w.wantReports(res, engine.ReportAlready)
		if res.Reports[0].Result != dispatch.ResultSucceeded {
			t.Errorf("the report is answered with %v", res.Reports[0].Result)
		}
	})
}
