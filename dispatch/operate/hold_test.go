package operate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// holdTargets are one of each kind that stops a task of source s in queue a.example and pool
// default, for the collector c, which has the labels european.
func holdTargets() map[string]dispatch.HoldTarget {
	return map[string]dispatch.HoldTarget{
		"everything": {Everything: true},
		"pool":       {Pool: dispatch.DefaultPool},
		"source":     {Source: "s"},
		"queue":      {Queue: "a.example"},
		"suffix":     {Queue: "*.example"},
		"collector":  {Collector: "c"},
		"labels":     {Labels: map[string]string{"region": "eu"}},
	}
}

// setHolds sets holds through a dispatcher.
func (w *world) setHolds(d int, order operate.HoldOrder, targets ...dispatch.HoldTarget) operate.HoldChanges {
	w.T.Helper()
	did, err := w.O[d].SetHolds(w.T.Context(), targets, order)
	if err != nil {
		w.T.Fatal(err)
	}
	return did
}

// listed are all holds, and blocks if they are asked for.
func (w *world) listed(q operate.HoldQuery) (holds []dispatch.Hold) {
	w.T.Helper()
	for after := ""; ; {
		page, next, err := w.O[0].ListHolds(w.T.Context(), q, after, 2)
		if err != nil {
			w.T.Fatal(err)
		}
		if holds = append(holds, page...); next == "" {
			return holds
		}
		after = next
	}
}

// A hold that was set through one dispatcher stops grants of all others before SetHolds has
// returned, though these hear no hints; lifting one of two of a target leaves the other.
func TestDispatcher_SetHolds_everyTarget(t *testing.T) {
	t.Parallel()
	for name, target := range holdTargets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.Submit("s", "a.example", 9, 0)
				fetch := func(wait time.Duration) <-chan dispatchtest.Answer {
					return w.GoFetch(t.Context(), 0, dispatchtest.As(dispatchtest.Ask("c", "", wait), dispatchtest.European))
				}
				if a := <-fetch(0); a.Err != nil || len(a.Res.Tasks) != 1 {
					t.Fatalf("before: %+v, %v", a.Res, a.Err)
				}
				w.setHolds(0, operate.HoldOrder{Name: "move", By: "ada"}, target)
				for range 3 {
					if a := <-fetch(0); a.Err != nil || len(a.Res.Tasks) != 0 {
						t.Fatalf("held: %+v, %v", a.Res, a.Err)
					}
				}
				w.setHolds(0, operate.HoldOrder{Name: "letter", By: "bob"}, target)
				if holds := w.listed(operate.HoldQuery{}); len(holds) != 2 || holds[0].Name != "letter" || holds[1].Name != "move" {
					t.Errorf("listed %+v", holds)
				}
				did, err := w.O[0].LiftHolds(t.Context(), []dispatch.HoldTarget{target}, "move", false)
				if err != nil || len(did.Changed) != 1 || did.Changed[0].By != "ada" || name != "labels" && (len(did.Remaining) != 1 || did.Remaining[0].By != "bob") {
					t.Errorf("lifted one: %+v, %v", did, err)
				}
				if a := <-fetch(0); a.Err != nil || len(a.Res.Tasks) != 0 {
					t.Fatalf("held by the other: %+v, %v", a.Res, a.Err)
				}
				parked := fetch(bounds.MaxWait)
				synctest.Wait()
				lifted := time.Now()
				if _, err := w.O[0].LiftHolds(t.Context(), []dispatch.HoldTarget{target}, "letter", false); err != nil {
					t.Fatal(err)
				}
				if name == "collector" || name == "labels" { // the parked fetch was answered at once
					<-parked
					time.Sleep(time.Second)
					parked = fetch(bounds.MaxWait)
				}
				if a := <-parked; a.Err != nil || len(a.Res.Tasks) != 1 || a.At.Sub(lifted) > 2*time.Second {
					t.Errorf("lifted: %+v, %v after %v", a.Res, a.Err, a.At.Sub(lifted))
				}
				if holds := w.listed(operate.HoldQuery{Blocks: true}); len(holds) != 0 {
					t.Errorf("listed %+v", holds)
				}
			})
		})
	}
}

// END_LEASES ends work in hand: its holder is told, whatever it reports but success spends no
// attempt, and renewals do not prolong the lease, so that it ends where nobody reports.
func TestDispatcher_SetHolds_endLeases(t *testing.T) {
	t.Parallel()
	for name, target := range holdTargets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.AddSource("other", nil)
				w.Submit("s", "a.example", 3, 0)
				var grants []dispatch.Grant
				for range 3 {
					a := <-w.GoFetch(t.Context(), 0, dispatchtest.As(dispatchtest.Ask("c", "", 0), dispatchtest.European))
					if a.Err != nil || len(a.Res.Tasks) != 1 {
						t.Fatalf("%+v, %v", a.Res, a.Err)
					}
					grants = append(grants, a.Res.Tasks...)
				}
				w.MustBeat(0, "c", dispatchtest.European)
				order := operate.HoldOrder{Name: dispatch.HoldDefault, By: "ada", Reason: "they asked", Effect: dispatch.EndLeases}
				would := order
				would.DryRun = true
				if did := w.setHolds(0, would, target); did.Ended != 3 || len(w.listed(operate.HoldQuery{})) != 0 {
					t.Errorf("it would end %d leases, want 3; or it did", did.Ended)
				}
				if did := w.setHolds(0, order, target); did.Ended != 3 {
					t.Errorf("ended %d leases, want 3", did.Ended)
				}
				result, err := w.D[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c", Session: "s1", Labels: dispatchtest.European}, dispatchtest.LeaseBeats(grants))
				if err != nil || len(result.Cancel) != 3 || result.Cancel[0].Reason != dispatch.CancelHeld {
					t.Fatalf("the beat is answered %+v, %v", result, err)
				}
				if done := w.MustReport(dispatchtest.Success(grants[0]))[0]; done.Code != engine.ReportOK || done.State != dispatch.StateDone {
					t.Errorf("a success: %+v", done)
				}
				failed := dispatch.Report{ID: grants[1].Task.ID, Token: grants[1].Token, Failed: &dispatch.Failed{Reason: dispatchtest.TaskReason, Message: "context canceled"}}
				if back := w.MustReport(failed)[0]; back.Code != engine.ReportOK || back.State == dispatch.StateDone {
					t.Errorf("a failure: %+v", back)
				}
				time.Sleep(time.Minute) // it is not renewed; its deadline was in 30 s
				for i, g := range grants[1:] {
					task := w.MustTask(g.Task.ID)
					var history []string
					for _, line := range task.History {
						history = append(history, fmt.Sprintf("%v %s by %s: %s", line.Result, line.Collector, line.By, line.Reason))
					}
					// The lease that was reported, and the one that ran out.
					if want := []string{"held  by ada: they asked", "revoked c by ada: they asked"}[:i+1]; !slices.Equal(history, want) {
						t.Errorf("history of task %s: %q, want %q", g.Task.ID, history, want)
					}
					if task.State != dispatch.StateReady || task.Counters != (dispatch.Counters{}) || task.CancelRequested != dispatch.CancelNone {
						t.Errorf("task %s is %v, %+v, cancel %v; want READY with nothing spent", g.Task.ID, task.State, task.Counters, task.CancelRequested)
					}
				}
				if _, err := w.O[0].LiftHolds(t.Context(), []dispatch.HoldTarget{target}, dispatch.HoldDefault, false); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if a := <-w.GoFetch(t.Context(), 0, dispatchtest.As(dispatchtest.Ask("c", "", 0), dispatchtest.European)); a.Err != nil || len(a.Res.Tasks) != 1 {
					t.Errorf("lifted: %+v, %v", a.Res, a.Err)
				}
			})
		})
	}
}

// One that stands is replaced only by who says so, and all of a call is refused with it.
func TestDispatcher_SetHolds_exists(t *testing.T) {
	t.Parallel()
	for name, target := range holdTargets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
				w.Create("s", nil)
				ctx := t.Context()
				lawyer := operate.HoldOrder{Name: dispatch.HoldDefault, By: "ada", Reason: "a letter"}
				w.setHolds(0, lawyer, target)
				maintenance := operate.HoldOrder{Name: dispatch.HoldDefault, By: "bob", Until: time.Now().Add(2 * time.Hour)}
				other := dispatch.HoldTarget{Queue: "other.test"}
				var exists *operate.HoldExistsError
				if _, err := w.SetHolds(ctx, []dispatch.HoldTarget{other, target}, maintenance); !errors.As(err, &exists) || !errors.Is(err, dispatch.ErrHoldExists) || exists.Hold.By != "ada" {
					t.Errorf("over a permanent hold: %v", err)
				}
				if holds := w.listed(operate.HoldQuery{}); len(holds) != 1 || holds[0].By != "ada" {
					t.Errorf("after the refusal: %+v", holds)
				}
				if did, err := w.SetHolds(ctx, []dispatch.HoldTarget{target}, lawyer); err != nil || len(did.Changed) != 0 {
					t.Errorf("again in the same words: %+v, %v", did, err)
				}
				maintenance.Etag = "other"
				if _, err := w.SetHolds(ctx, []dispatch.HoldTarget{target}, maintenance); !errors.Is(err, dispatch.ErrEtagMismatch) {
					t.Errorf("by the etag of another one: %v", err)
				}
				before := w.listed(operate.HoldQuery{})[0]
				maintenance.Etag = operate.HoldEtag(&before)
				if did := w.setHolds(0, maintenance, target); len(did.Changed) != 1 || len(did.Replaced) != 1 || did.Replaced[0].Reason != "a letter" {
					t.Errorf("by its etag: %+v", did)
				}
				maintenance.Etag, maintenance.Replace, maintenance.Reason = "", true, "longer"
				if did := w.setHolds(0, maintenance, target); len(did.Replaced) != 1 {
					t.Errorf("replaced: %+v", did)
				}
				time.Sleep(3 * time.Hour)
				if did := w.setHolds(0, lawyer, target); len(did.Changed) != 1 || len(did.Replaced) != 0 {
					t.Errorf("after the end of the other: %+v", did)
				}
			})
		})
	}
}

func TestDispatcher_SetHolds_invalid(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		order := operate.HoldOrder{Name: dispatch.HoldDefault}
		for name, target := range map[string]dispatch.HoldTarget{
			"nothing": {}, "two": {Pool: "p", Source: "s"}, "any queue": {Queue: "*"}, "upper case": {Queue: "A.example"}, "star within": {Queue: "a.*.example"},
		} {
			if _, err := w.SetHolds(t.Context(), []dispatch.HoldTarget{target}, order); !errors.Is(err, dispatch.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		order.Until = time.Now()
		if _, err := w.SetHolds(t.Context(), []dispatch.HoldTarget{{Everything: true}}, order); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("until now: %v", err)
		}
		order.Until = time.Time{}
		for n := range bounds.MaxSourceHolds + 1 {
			order.Name = fmt.Sprintf("n%d", n)
			_, err := w.SetHolds(t.Context(), []dispatch.HoldTarget{{Source: "s"}}, order)
			if (err != nil) != (n == bounds.MaxSourceHolds) || err != nil && !errors.Is(err, dispatch.ErrInvalid) {
				t.Errorf("hold %d on a source: %v", n, err)
			}
		}
	})
}

// A hold on a source stands on its id: it outlives the source, and holds one that is created
// under the id again, or for the first time.
func TestDispatcher_SetHolds_onTheID(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		target := dispatch.HoldTarget{Source: "s"}
		if did := w.setHolds(0, operate.HoldOrder{Name: dispatch.HoldDefault, By: "ada"}, target); len(did.Unknown) != 1 {
			t.Errorf("a hold on an id that nobody has used: %+v", did)
		}
		create := func() {
			t.Helper()
			w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
			if view := w.MustView("s"); view.Health != operate.HealthHeld || len(view.Source.Holds) != 1 {
				t.Errorf("created: %+v", view)
			}
			if grants := w.Take(1); len(grants) != 0 {
				t.Error("fetched a seed of a held source")
			}
		}
		create()
		if err := w.DeleteSource(ctx, "s", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Source(ctx, "s"); !errors.Is(err, dispatch.ErrSourceNotFound) {
			t.Errorf("the deleted source: %v", err)
		}
		if views, _, err := w.ListSources(ctx, operate.SourceQuery{}, "", 9); err != nil || len(views) != 0 {
			t.Errorf("sources %+v, %v", views, err)
		}
		if holds := w.listed(operate.HoldQuery{}); len(holds) != 1 {
			t.Errorf("holds after the deletion: %+v", holds)
		}
		results, err := w.ApplySources(ctx, []operate.NamedSpec{dispatchtest.Wanted("s", "http://a.example/")}, false)
		if err != nil || results[0].Code != operate.SpecCreated {
			t.Fatalf("applied: %+v, %v", results, err)
		}
		if grants := w.Take(1); len(grants) != 0 {
			t.Error("fetched a seed of a held source that was applied again")
		}
		if err := w.DeleteSource(ctx, "s", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		create()
		w.LiftHold(target)
		w.Succeed(w.TakeOne())
		w.SetHold(target, time.Time{})
		if err := w.DeleteSource(ctx, "s", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		w.LiftHold(target)
		if found, err := w.Store.SourcesByID(ctx, []string{"s"}); err != nil || found[0] != nil {
			t.Errorf("nothing is held, and kept is %+v, %v", found[0], err)
		}
	})
}

// Whatever is stopped is listed, and a query finds what stops something.
func TestDispatcher_ListHolds(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", nil)
		w.MustBeat(0, "c", dispatchtest.European)
		order := operate.HoldOrder{Name: dispatch.HoldDefault, By: "ada"}
		for _, target := range holdTargets() {
			w.setHolds(0, order, target)
		}
		w.setHolds(0, order, dispatch.HoldTarget{Source: "t"}, dispatch.HoldTarget{Queue: "b.test"}, dispatch.HoldTarget{Pool: "p"}, dispatch.HoldTarget{Collector: "d"})
		for name, c := range map[string]struct {
			q    operate.HoldQuery
			want []string
		}{
			"all":       {operate.HoldQuery{}, []string{"collector c", "collector d", "everything", "labels region eu", "pool default", "pool p", "queue *.example", "queue a.example", "queue b.test", "source s", "source t"}},
			"source":    {operate.HoldQuery{SourceID: "s"}, []string{"everything", "source s"}},
			"prefix":    {operate.HoldQuery{SourcePrefix: "t"}, []string{"everything", "source t"}},
			"pool":      {operate.HoldQuery{Pool: "p"}, []string{"everything", "pool p"}},
			"queue":     {operate.HoldQuery{Queue: "a.example"}, []string{"everything", "queue *.example", "queue a.example"}},
			"suffix":    {operate.HoldQuery{QueueSuffix: "example"}, []string{"everything", "queue *.example", "queue a.example"}},
			"collector": {operate.HoldQuery{Collector: "c"}, []string{"collector c", "everything", "labels region eu"}},
		} {
			var got []string
			for _, h := range w.listed(c.q) {
				got = append(got, targetOf(h.Target))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	})
}

func targetOf(t dispatch.HoldTarget) string { return strings.ReplaceAll(t.Key(), "\x00", " ") }

// A block that failures have caused is listed and lifted as a hold of Waggle's own.
func TestDispatcher_LiftHolds_waggle(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Create("s", nil)
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"}, engine.NewTask{SourceID: "s", URL: "http://a.example/2"})
		g := w.TakeOne()
		w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: dispatchtest.HostReason, Message: "429", RetryAfter: time.Hour}})
		failed := time.Now()
		if holds := w.listed(operate.HoldQuery{}); len(holds) != 0 {
			t.Errorf("listed without being asked for: %+v", holds)
		}
		holds := w.listed(operate.HoldQuery{Blocks: true})
		if len(holds) != 1 || holds[0].Name != dispatch.HoldWaggle || holds[0].By != dispatch.HoldWaggle || holds[0].Target.Queue != "a.example" || !holds[0].Created.Equal(failed) {
			t.Fatalf("blocks %+v", holds)
		}
		target := []dispatch.HoldTarget{{Queue: "a.example"}}
		if did, err := w.LiftHolds(ctx, target, dispatch.HoldDefault, false); err != nil || len(did.Changed) != 0 {
			t.Errorf("lifting operators' holds: %+v, %v", did, err)
		}
		if did, err := w.LiftHolds(ctx, target, dispatch.HoldWaggle, false); err != nil || len(did.Changed) != 1 {
			t.Errorf("lifted %+v, %v", did, err)
		}
		if _, err := w.LiftHolds(ctx, []dispatch.HoldTarget{{Pool: "p"}}, dispatch.HoldWaggle, false); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("a block of a pool: %v", err)
		}
		time.Sleep(time.Second)
		w.TakeOne()
	})
}

// A shard that knows of newer holds refuses claims. The dispatcher does not ask in a loop meanwhile.
func TestDispatcher_Holds_stale(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		refused := dispatchtest.Fail(dispatch.ErrStaleHolds, dispatchtest.Calls("Claim"))
		w.Inject(refused)
		w.Submit("s", "", 1, 0)
		parked := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "", bounds.MaxWait))
		before := w.Stores[0].Count("Claim")
		time.Sleep(10 * time.Second)
		if n := w.Stores[0].Count("Claim") - before; n > 100 {
			t.Errorf("%d claims in 10s while all are refused", n)
		}
		w.Heal(refused)
		healed := time.Now()
		if a := <-parked; a.Err != nil || len(a.Res.Tasks) != 1 || a.At.Sub(healed) > 2*time.Second {
			t.Errorf("%+v, %v after %v", a.Res, a.Err, a.At.Sub(healed))
		}
	})
}
