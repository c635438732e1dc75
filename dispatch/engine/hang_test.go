package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// hungShard is the second of two shards, which answers none of those calls.
func hungShard() *dispatchtest.Fault {
	return dispatchtest.Hang(dispatchtest.Calls("BeginPoll", "Beat", "ListCollectors", "Renew", "Apply", "SourcesByID", "Tasks", "Submit"), dispatchtest.InShard(1))
}

// inTwoShards runs a test on two shards, of which the second can hang.
func inTwoShards(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
		test(t, w)
		w.Heal()
		time.Sleep(time.Minute) // for calls of the store in flight
	})
}

func inSecond(name string) bool { return dispatch.ShardOf(dispatch.SlotOf(name), 2) == 1 }

// homed are two names, of collectors or queues, whose homes are in the first shard
// and in the second.
func homed() []string {
	return []string{dispatchtest.NameIn(0, 2, "c"), dispatchtest.NameIn(1, 2, "c")}
}

// TestDispatcher_Beat_aShardThatHangs: as long as a collector waits for the answer
// to a beat, a sixth of a lease, it has to be there.
func TestDispatcher_Beat_aShardThatHangs(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{bounds.MinLeaseDuration, 6 * time.Second, 30 * time.Second} {
		t.Run(lease.String(), func(t *testing.T) {
			t.Parallel()
			inTwoShards(t, func(t *testing.T, w *world) {
				w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = lease })
				held := make(map[string][]dispatch.Grant)
				for _, queue := range homed() {
					w.Submit("s", queue, 2, 0)
					for _, collector := range homed() {
						held[collector] = append(held[collector], w.HoldTasks(collector, 1, queue)...)
					}
				}
				w.Inject(hungShard())
				var wg sync.WaitGroup
				for collector, grants := range held {
					wg.Go(func() { beatFor(t, w.D[0], collector, grants, lease) })
				}
				wg.Wait()
			})
		})
	}
}

// beatFor beats through ten leases, and wants those of the first shard to go on.
func beatFor(t *testing.T, d *engine.Dispatcher, collector string, grants []dispatch.Grant, lease time.Duration) {
	info := dispatch.CollectorInfo{ID: collector, Session: "s1"}
	for begin := time.Now(); time.Since(begin) < 10*lease; {
		_, call, cancel := dispatchtest.WithDeadline(t.Context(), lease/6)
		res, err := d.Beat(call, info, dispatchtest.LeaseBeats(grants))
		cancel()
		if err != nil || res.LeaseDuration != lease || len(res.Lost) != 0 {
			t.Errorf("beat of %s: %+v, %v; want leases of %v", collector, res, err, lease)
			return
		}
		if len(res.Limited) != 1 || dispatch.ShardOf(res.Limited[0].ID.Slot(), 2) != 1 || res.Limited[0].Remaining != 0 || res.Next > time.Second {
			t.Errorf("limited: %v, next beat in %v; want the lease of the second shard, soon", res.Limited, res.Next)
		}
		time.Sleep(res.Next)
	}
}

// TestDispatcher_Fetch_aShardThatHangs: only collectors whose home it is wait.
func TestDispatcher_Fetch_aShardThatHangs(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		w.Inject(hungShard())
		for _, collector := range homed() {
			go func() {
				for n := range 20 {
					req := dispatchtest.Ask(collector, fmt.Sprint(n), 0)
					began := time.Now()
					_, err := w.D[0].Fetch(t.Context(), req)
					if waited := time.Since(began) > 10*dispatchtest.Moment; waited != inSecond(collector) || waited != (err != nil) {
						t.Errorf("fetch %d of %s: %v after %v", n, collector, err, time.Since(began))
					}
				}
			}()
		}
		synctest.Wait()
		time.Sleep(5 * time.Minute)
	})
}

// TestDispatcher_Report_aShardThatHangs: reports and submissions wait for the shard
// of their own tasks only.
func TestDispatcher_Report_aShardThatHangs(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		held := make(map[string][]dispatch.Grant)
		for _, queue := range homed() {
			w.Submit("s", queue, 40, 0)
			held[queue] = w.HoldTasks("c1", 40, queue)
		}
		w.Inject(hungShard())
		for queue, grants := range held {
			for n, g := range grants {
				report := dispatchtest.Success(g)
				if n%2 == 1 {
					report.Succeeded, report.Failed = nil, &dispatch.Failed{Reason: 1}
				}
				go waitsIf(t, inSecond(queue), fmt.Sprintf("report %d in queue %s", n, queue), func() error {
					_, err := w.D[0].Report(t.Context(), "c1", []dispatch.Report{report})
					return err
				})
				task := engine.NewTask{SourceID: "s", Key: fmt.Sprint("new", n), Queue: queue, Priority: 5}
				go waitsIf(t, inSecond(queue), fmt.Sprintf("submission %d to queue %s", n, queue), func() error {
					_, err := w.D[0].SubmitTasks(t.Context(), []engine.NewTask{task})
					return err
				})
			}
		}
		synctest.Wait()
		time.Sleep(5 * time.Minute)
	})
}

// waitsIf makes a call that waits, in vain, exactly if it is to hang.
func waitsIf(t *testing.T, hangs bool, what string, call func() error) {
	began := time.Now()
	err := call()
	if waited := time.Since(began) > 10*dispatchtest.Moment; waited != hangs || waited != (err != nil) {
		t.Errorf("%s: %v after %v; does its shard hang? %v", what, err, time.Since(began), hangs)
	}
}

// TestDispatcher_Report_partHangs: of the reports of one call those that need the
// shard that hangs are to be repeated, and the others are settled, and answered soon.
func TestDispatcher_Report_partHangs(t *testing.T) {
	t.Parallel()
	inTwoShards(t, func(t *testing.T, w *world) {
		well, hung := dispatchtest.NameIn(0, 2, "q"), dispatchtest.NameIn(1, 2, "q")
		atHome, away := dispatchtest.NameIn(0, 2, "s"), dispatchtest.NameIn(1, 2, "s")
		follows := func(s *dispatch.SourceSpec) { s.Follow = &dispatch.Follow{AllowHosts: []string{"*"}} }
		w.AddSource(atHome, follows)
		w.AddSource(away, follows)
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
			g := w.Grants(c.source, c.queue, 1)[0]
			reports[i] = c.report
			reports[i].ID, reports[i].Token = g.Task.ID, g.Token
		}
		time.Sleep(2 * time.Second) // what is known of the sources grows old
		w.Inject(hungShard())
		for range 2 {
			began := time.Now()
			results, err := w.D[0].Report(t.Context(), "c1", reports)
			if err != nil || time.Since(began) > 1500*time.Millisecond {
				t.Fatalf("answered after %v: %v", time.Since(began), err)
			}
			for i, c := range cases {
				if r := results[i]; r.ID != reports[i].ID || (r.Code == engine.ReportUnavailable) != c.needsHung {
					t.Errorf("%s: %+v", c.name, r)
				}
			}
		}
		w.Heal()
		time.Sleep(10 * time.Second)
		results, err := w.D[0].Report(t.Context(), "c1", reports)
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
	inTwoShards(t, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		var reports []dispatch.Report
		for _, g := range w.Grants("s", dispatchtest.NameIn(1, 2, "q"), 2) {
			reports = append(reports, dispatchtest.Success(g))
		}
		w.Inject(hungShard())
		ctx, call, cancel := dispatchtest.WithDeadline(t.Context(), 3*time.Second)
		defer cancel()
		results, err := w.D[0].Report(call, "c1", reports)
		if !errors.Is(err, dispatch.ErrStoreUnavailable) || ctx.Err() != nil {
			t.Errorf("%+v, %v; want the store to be unavailable, in time", results, err)
		}
	})
}

// inStaleWorld runs a test with a task that c1 holds, of a source that was changed since, on a store whose reads hang.
func inStaleWorld(t *testing.T, test func(t *testing.T, w *world, held dispatch.Grant)) {
	t.Helper()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.Follow = &dispatch.Follow{AllowHosts: []string{"*"}} })
		held := w.Grants("s", "q", 1)[0]
		w.Change("s")
		w.Inject(dispatchtest.Hang(dispatchtest.Calls("SourcesByID", "Rules")))
		test(t, w, held)
		w.Heal()
		time.Sleep(6 * time.Second) // reads that nobody waits for have ended
	})
}

// What a call reads ends in time, and as what it is.
func TestDispatcher_readsHang(t *testing.T) {
	t.Parallel()
	links := &dispatch.Succeeded{Discovered: []dispatch.DiscoveredItem{{Key: "link", Queue: "q", Priority: 5}}}
	for name, call := range map[string]func(ctx context.Context, w *world, held dispatch.Grant) error{
		"a fetch from a source": func(ctx context.Context, w *world, _ dispatch.Grant) error {
			req := dispatchtest.Ask("c2", "", bounds.MaxWait)
			req.Sources = []string{"s"}
			_, err := w.D[0].Fetch(ctx, req)
			return err
		},
		"a report of links": func(ctx context.Context, w *world, held dispatch.Grant) error {
			_, err := w.D[0].Report(ctx, "c1", []dispatch.Report{{ID: held.Task.ID, Token: held.Token, Succeeded: links}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inStaleWorld(t, func(t *testing.T, w *world, held dispatch.Grant) {
				ctx, within, cancel := dispatchtest.WithDeadline(t.Context(), 10*time.Second)
				defer cancel()
				if err := call(within, w, held); !errors.Is(err, dispatch.ErrStoreUnavailable) || ctx.Err() != nil {
					t.Errorf("%v; want the store to be unavailable, in time", err)
				}
			})
		})
	}
}

// A report that fails is settled by what was known last of its source.
func TestDispatcher_Report_sourceHangs(t *testing.T) {
	t.Parallel()
	inStaleWorld(t, func(t *testing.T, w *world, held dispatch.Grant) {
		failed := dispatch.Report{ID: held.Task.ID, Token: held.Token, Failed: &dispatch.Failed{Reason: 1, Permanent: true}}
		if results, err := w.D[0].Report(t.Context(), "c1", []dispatch.Report{failed}); err != nil || results[0].Code != engine.ReportOK {
			t.Errorf("%+v, %v; want it settled", results, err)
		}
	})
}

// A fetch of which the grant cannot be completed answers in time though it cannot be given
// back either.
func TestDispatcher_Fetch_giveBackHangs(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "", 1, 0)
		w.Change("s")
		w.Inject(dispatchtest.Hang(dispatchtest.Calls("GiveBack", "SourcesByID")))
		ctx, call, cancel := dispatchtest.WithDeadline(t.Context(), 2*time.Second)
		defer cancel()
		if res, err := w.D[0].Fetch(call, dispatchtest.Ask("c", "", time.Second)); !errors.Is(err, dispatch.ErrStoreUnavailable) || ctx.Err() != nil {
			t.Errorf("%+v, %v, ctx: %v; want that the store is unavailable, before the deadline", res, err, ctx.Err())
		}
		w.Heal()
		time.Sleep(6 * time.Second)
		if gaveBack, _ := w.Seen[0].Read(); gaveBack != 1 {
			t.Errorf("%d tasks were given back, want 1", gaveBack)
		}
	})
}

// TestDispatcher_SetHolds_aShardThatHangs: a hold is not acknowledged while a shard does not
// know of it, and stops collectors all the same, those that wait and those that come.
func TestDispatcher_SetHolds_aShardThatHangs(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]dispatch.HoldTarget{
		"by id":     {Collector: homed()[0]},
		"by labels": {Labels: dispatchtest.European},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTwoShards(t, func(t *testing.T, w *world) {
				parked := make(map[string]<-chan dispatchtest.Answer)
				for _, id := range homed() {
					w.MustBeat(0, id, dispatchtest.European)
					parked[id] = w.GoFetch(t.Context(), 0, dispatchtest.As(dispatchtest.Ask(id, "t", bounds.MaxWait), dispatchtest.European))
				}
				synctest.Wait()
				// The change is made, and a shard does not answer that it knows.
				w.Inject(dispatchtest.Spoil(dispatch.ErrStoreUnavailable, dispatchtest.Calls("PutHolds")))
				began := time.Now()
				_, call, cancel := dispatchtest.WithDeadline(t.Context(), 10*time.Second)
				defer cancel()
				order := operate.HoldOrder{Name: dispatch.HoldDefault, By: "ada"}
				if _, err := w.O[0].SetHolds(call, []dispatch.HoldTarget{target}, order); !errors.Is(err, dispatch.ErrStoreUnavailable) {
					t.Fatalf("SetHolds: %v, want that the store is unavailable", err)
				}
				for _, id := range homed() {
					if holdbook.Has(&target, id, dispatchtest.European) {
						w.wantHeld("parked "+id, parked[id], began, time.Second)
					}
				}
				w.Heal()
				if did, err := w.O[0].SetHolds(t.Context(), []dispatch.HoldTarget{target}, order); err != nil || len(did.Changed) != 0 {
					t.Errorf("repeated: %+v, %v", did, err)
				}
			})
		})
	}
}
