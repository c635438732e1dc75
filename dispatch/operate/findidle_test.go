package operate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// beat is a beat of a collector that holds these leases.
func (w *world) beat(id string, slots int, held ...dispatch.Grant) {
	w.T.Helper()
	leases := make([]engine.LeaseBeat, 0, len(held))
	for _, g := range held {
		leases = append(leases, engine.LeaseBeat{ID: g.Task.ID, Token: g.Token.String()})
	}
	if _, err := w.D[0].Beat(w.T.Context(), dispatch.CollectorInfo{ID: id, Session: "s1", Slots: slots}, leases); err != nil {
		w.T.Fatal(err)
	}
}

// A collector that beats, and neither fetches nor reports though it could and there is work, is found; the others are not.
func TestOperator_Findings_deaf(t *testing.T) {
	t.Parallel()
	const minutes = 3
	for name, one := range map[string]struct {
		slots  int
		before func(w *world) []dispatch.Grant // what it holds meanwhile
		each   func(w *world)                  // with each beat
		deaf   bool
	}{
		"it only beats":          {slots: 2, deaf: true},
		"a slot is free":         {slots: 2, deaf: true, before: func(w *world) []dispatch.Grant { return w.HoldTasks("c1", 1) }},
		"all its slots are busy": {slots: 2, before: func(w *world) []dispatch.Grant { return w.HoldTasks("c1", 2) }},
		"a hold stops it": {slots: 2, before: func(w *world) []dispatch.Grant {
			w.SetHold(dispatch.HoldTarget{Collector: "c1"}, time.Time{})
			return nil
		}},
		"a hold stops everything": {slots: 2, before: func(w *world) []dispatch.Grant {
			w.SetHold(dispatch.HoldTarget{Everything: true}, time.Time{})
			return nil
		}},
		"it fetches and gets something": {slots: 2, each: func(w *world) { w.Succeed(w.TakeOne()) }},
		"its fetch waits": {slots: 2, each: func(w *world) {
			req := dispatchtest.Ask("c1", "", 16*time.Second)
			req.Queues = []string{"no-such"}
			w.GoFetch(w.T.Context(), 0, req)
		}},
		"there is no work": {slots: 2, before: func(w *world) []dispatch.Grant {
			for _, g := range w.HoldTasks("c2", 50) {
				w.Succeed(g)
			}
			return nil
		}},
		"others work": {slots: 2, deaf: true, before: func(w *world) []dispatch.Grant { w.HoldTasks("c2", 50); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = time.Hour })
				w.Submit("s", "", 50, 0)
				w.beat("c1", one.slots)
				var held []dispatch.Grant
				if one.before != nil {
					held = one.before(w)
				}
				for range minutes * 4 {
					if one.each != nil {
						one.each(w)
					}
					time.Sleep(15 * time.Second)
					w.beat("c1", one.slots, held...)
				}
				f, deaf := findings(t, w.O[0])["DEAF"]
				if deaf != one.deaf {
					t.Fatalf("deaf: %v, want %v: %+v", deaf, one.deaf, f)
				}
				if !deaf {
					return
				}
				if idle := time.Since(f.Since); !slices.Equal(f.Names, []string{"c1"}) || idle < time.Minute || idle > (minutes+1)*time.Minute ||
					!strings.Contains(f.Message, "has not fetched or reported for 3m") {
					t.Errorf("%+v", f)
				}
				w.Take(1) // by c1
				if f, deaf := findings(t, w.O[0])["DEAF"]; deaf {
					t.Errorf("after a fetch: %+v", f)
				}
			})
		})
	}
}

// A collector whose hold was lifted has as long to fetch as one that has just come.
func TestOperator_Findings_deafAfterHold(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "", 1, 0)
		target := dispatch.HoldTarget{Collector: "c1"}
		w.SetHold(target, time.Time{})
		for range 40 {
			w.beat("c1", 2)
			time.Sleep(15 * time.Second)
		}
		w.LiftHold(target)
		if f, deaf := findings(t, w.O[0])["DEAF"]; deaf {
			t.Errorf("at once: %+v", f)
		}
		for range 5 {
			w.beat("c1", 2)
			time.Sleep(15 * time.Second)
		}
		w.beat("c1", 2)
		if _, deaf := findings(t, w.O[0])["DEAF"]; !deaf {
			t.Error("it is not found afterwards")
		}
	})
}

// All that a collector does fails, by whatever reason, while another one succeeds or it is alone: that is found, and ends by itself.
func TestOperator_Findings_fetchesFail(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		failures int
		every    time.Duration
		others   string // succeed, fail, or empty: there are none
		found    bool
	}{
		"alone":               {failures: 25, every: 5 * time.Second, found: true},
		"others succeed":      {failures: 25, every: 5 * time.Second, others: "succeed", found: true},
		"all fail":            {failures: 25, every: 5 * time.Second, others: "fail"},
		"too few":             {failures: 19, every: 5 * time.Second},
		"in too short a time": {failures: 25, every: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				const forbidden = 2
				w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = time.Hour })
				w.Submit("s", "", 2*one.failures+1, 0)
				mine, theirs := w.HoldTasks("c1", one.failures+1), []dispatch.Grant{}
				if one.others != "" {
					theirs = w.HoldTasks("c2", one.failures)
				}
				for i := range one.failures {
					time.Sleep(one.every)
					w.Settle(failure(mine[i], forbidden, 403))
					switch one.others {
					case "succeed":
						w.Succeed(theirs[i])
					case "fail":
						w.Settle(failure(theirs[i], forbidden, 403))
					}
					if i%3 == 0 {
						w.beat("c1", 30)
						w.beat("c2", 30)
					}
				}
				w.beat("c1", 30)
				f, found := findings(t, w.O[0])["FETCHES_FAIL"]
				if found != one.found || found && (!slices.Equal(f.Names, []string{"c1"}) || f.Since.IsZero() || !strings.Contains(f.Message, "25 failures in a row")) {
					t.Fatalf("found: %v, want %v: %+v", found, one.found, f)
				}
				w.Settle(dispatchtest.Success(mine[one.failures]))
				w.beat("c1", 30)
				if f, found := findings(t, w.O[0])["FETCHES_FAIL"]; found && slices.Contains(f.Names, "c1") {
					t.Errorf("after a success: %+v", f)
				}
			})
		})
	}
}
