package operate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// A hold on an id that no source has is lifted, whatever becomes of the id meanwhile.
func TestDispatcher_LiftHolds_ofAnIDThatChanges(t *testing.T) {
	t.Parallel()
	target := dispatch.HoldTarget{Source: "g"}
	for name, change := range map[string]func(*world){
		"another hold is set":   func(w *world) { w.setHolds(0, operate.HoldOrder{Name: "two"}, target) },
		"the source is created": func(w *world) { w.AddSource("g", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.setHolds(0, operate.HoldOrder{Name: "one"}, target)
				o := w.Second(dispatchtest.Before(func() { change(w) }, dispatchtest.Calls("MarkApplied")).Once())
				if did, err := o.LiftHolds(t.Context(), []dispatch.HoldTarget{target}, "one", false); err != nil || len(did.Changed) != 1 {
					t.Errorf("lifted %+v, %v", did, err)
				}
				for _, h := range w.listed(operate.HoldQuery{}) {
					if h.Name == "one" {
						t.Errorf("it still stands: %+v", h)
					}
				}
			})
		})
	}
}

// A source is created under an id whose hold is lifted, or set, in between.
func TestDispatcher_CreateSource_whileHoldsChange(t *testing.T) {
	t.Parallel()
	target := dispatch.HoldTarget{Source: "g"}
	for name, change := range map[string]func(*world) error{
		"lifted": func(w *world) error {
			_, err := w.LiftHolds(w.T.Context(), []dispatch.HoldTarget{target}, "one", false)
			return err
		},
		"set": func(w *world) error {
			_, err := w.SetHolds(w.T.Context(), []dispatch.HoldTarget{target}, operate.HoldOrder{Name: "two"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.setHolds(0, operate.HoldOrder{Name: "one"}, target)
				o := w.Second(dispatchtest.Before(func() {
					if err := change(w); err != nil {
						t.Error(err)
					}
				}, dispatchtest.Calls("PutSource")).From(1).Once())
				if _, err := o.CreateSource(t.Context(), "g", dispatch.SourceSpec{Priority: 5}); err != nil {
					t.Errorf("create: %v", err)
				}
			})
		})
	}
}

// A lift that was interrupted is finished by its repetition: what was held goes on.
func TestDispatcher_LiftHolds_repeated(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		target := dispatch.HoldTarget{Queue: "a.example"}
		w.AddSource("s", nil)
		w.SetHold(target, time.Time{})
		w.Submit("s", "a.example", 1, 0)
		time.Sleep(3 * time.Minute)
		parked := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "", bounds.MaxWait))
		time.Sleep(time.Second)
		w.Inject(dispatchtest.Spoil(dispatch.ErrStoreUnavailable, dispatchtest.Calls("PutHolds")).Once())
		lift := func() error {
			_, err := w.LiftHolds(t.Context(), []dispatch.HoldTarget{target}, dispatch.HoldDefault, false)
			return err
		}
		if err := lift(); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("lift: %v, want that the store is unavailable", err)
		}
		if err := lift(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if a := <-parked; a.Err != nil || len(a.Res.Tasks) != 1 || a.At.Sub(began) > time.Second {
			t.Errorf("%+v, %v after %v", a.Res, a.Err, a.At.Sub(began))
		}
	})
}

// The holds are not read in a loop while the store is away and one of them ends.
func TestDispatcher_Holds_storeAwayAtAnEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.SetHold(dispatch.HoldTarget{Pool: "p"}, time.Now().Add(time.Second))
		var mu sync.Mutex // guards reads
		reads := 0
		w.Inject(dispatchtest.On(func(context.Context, *dispatchtest.Call, func() error) error {
			mu.Lock()
			defer mu.Unlock()
			if reads++; reads > 1000 { // or the test never ends
				return nil
			}
			return dispatch.ErrStoreUnavailable
		}, dispatchtest.Calls("Holds")))
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if reads > 20 {
			t.Errorf("%d reads of the holds in 5s", reads)
		}
	})
}

// Several who set holds on one source at the same time keep to its limit together.
func TestDispatcher_SetHolds_limitOfASource(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		target := dispatch.HoldTarget{Source: "s"}
		for i := range bounds.MaxSourceHolds - 1 {
			w.setHolds(0, operate.HoldOrder{Name: fmt.Sprint("b", i)}, target)
		}
		o := w.Second(dispatchtest.Delay(10*time.Millisecond, dispatchtest.Calls("PutSource")))
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				_, err := o.SetHolds(t.Context(), []dispatch.HoldTarget{target}, operate.HoldOrder{Name: fmt.Sprint("n", i)})
				if err != nil && !errors.Is(err, dispatch.ErrInvalid) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := len(w.listed(operate.HoldQuery{})); n != bounds.MaxSourceHolds {
			t.Errorf("%d holds on a source, want the limit of %d", n, bounds.MaxSourceHolds)
		}
		if page, next, err := w.ListHolds(t.Context(), operate.HoldQuery{}, "", 1); err != nil || len(page) != 1 || next == "" {
			t.Errorf("a page of 1 has %d, next %q, %v", len(page), next, err)
		}
	})
}

// A look at what a lift would do changes nothing, not even what an interrupted call has left.
func TestDispatcher_LiftHolds_dryRun(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		target := []dispatch.HoldTarget{{Source: "s"}}
		o := w.Second(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("MarkApplied")).Once())
		if _, err := o.SetHolds(t.Context(), target, operate.HoldOrder{Name: "one"}); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("set: %v, want that the store is unavailable", err)
		}
		did, err := w.LiftHolds(t.Context(), target, "one", true)
		if err != nil || len(did.Changed) != 1 {
			t.Errorf("it would lift %+v, %v", did, err)
		}
		if kept, err := w.Store.SourcesByID(t.Context(), []string{"s"}); err != nil || kept[0].Applied == kept[0].Version || len(kept[0].Holds) != 1 {
			t.Errorf("after a look: %+v, %v", kept[0], err)
		}
	})
}

// What a host asks for with a failure holds, though a hold has ended the lease.
func TestDispatcher_SetHolds_hostThatAsksToWait(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "a.example", 2, 0)
		g := w.MustFetch(dispatchtest.Ask("c", "", 0)).Tasks[0]
		w.setHolds(0, operate.HoldOrder{Name: dispatch.HoldDefault, Effect: dispatch.EndLeases}, dispatch.HoldTarget{Collector: "c"})
		w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: dispatchtest.HostReason, RetryAfter: 10 * time.Minute}})
		if task := w.MustTask(g.Task.ID); task.Counters != (dispatch.Counters{}) {
			t.Errorf("spent: %+v", task.Counters)
		}
		if a := <-w.GoFetch(t.Context(), 0, dispatchtest.Ask("other", "", 0)); a.Err != nil || len(a.Res.Tasks) > 0 {
			t.Errorf("the host is asked again at once: %+v, %v", a.Res, a.Err)
		}
		// A lift of blocks that is refused for one target opens none.
		blocks := len(w.listed(operate.HoldQuery{Blocks: true}))
		_, err := w.LiftHolds(t.Context(), []dispatch.HoldTarget{{Queue: "a.example"}, {Pool: "p"}}, dispatch.HoldWaggle, false)
		if after := len(w.listed(operate.HoldQuery{Blocks: true})); !errors.Is(err, dispatch.ErrInvalid) || after != blocks {
			t.Errorf("%d blocks, then %d, %v", blocks, after, err)
		}
	})
}

// An id that no source has is forgotten when its holds are over.
func TestSweeper_forgetsHolds(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.SetHold(dispatch.HoldTarget{Source: "g"}, time.Now().Add(time.Minute))
		w.SetHold(dispatch.HoldTarget{Source: "h"}, time.Now().Add(time.Hour))
		time.Sleep(30 * time.Minute)
		found, err := w.Store.SourcesByID(t.Context(), []string{"g", "h"})
		if err != nil || found[0] != nil || found[1] == nil {
			t.Errorf("kept are %+v, %v", found, err)
		}
	})
}
