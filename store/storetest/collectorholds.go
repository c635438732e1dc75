package storetest

import (
	"errors"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func collectorHoldCases() []testCase {
	return []testCase{
		{"Set_HoldsUntilDeleted", drainSet},
		{"Set_HoldsUntilThen", drainUntil},
		{"Labels_NameTheSameInAnyOrder", drainLabels},
		{"Set_IsBounded_P10", drainLimit},
		{"Holds_InTheOrderOfKeys", holdsOrder},
	}
}

// setDrain drains a collector, or those with the labels.
func (e *env) setDrain(id string, labels map[string]string, until time.Time) dispatch.Hold {
	e.Helper()
	return e.setHold(dispatch.HoldTarget{Collector: id, Labels: labels}, dispatch.HoldDefault, dispatch.Gate{
		Until: until, By: "ops", Reason: "we move", Time: start,
	})
}

func (e *env) deleteDrain(h *dispatch.Hold) (held bool) {
	e.Helper()
	return e.lift(h.Target, h.Name)
}

// holds reads the holds of pools and collectors.
func (e *env) holds() []dispatch.Hold {
	e.Helper()
	holds, err := e.Store.Holds(e.ctx)
	e.ok("read holds", err)
	return holds
}

func drainSet(e *env) {
	is(e, "before", len(e.holds()), 0)
	e.setDrain("c1", nil, start.Add(time.Second))
	first := e.setDrain("c1", nil, time.Time{}) // replaces the earlier one
	other := e.setDrain("c0", nil, time.Time{})
	is(e, "drains", e.holds(), []dispatch.Hold{other, first})
	e.advance(1000 * time.Hour)
	is(e, "held", e.deleteDrain(&first), true)
	is(e, "held again", e.deleteDrain(&first), false)
	is(e, "drains then", e.holds(), []dispatch.Hold{other})
}

func drainUntil(e *env) {
	drain := e.setDrain("c1", nil, start.Add(time.Minute))
	e.advance(time.Minute - time.Millisecond)
	is(e, "drains", e.holds(), []dispatch.Hold{drain})
	e.advance(time.Millisecond)
	is(e, "drains then", len(e.holds()), 0)
	is(e, "held", e.deleteDrain(&drain), false)
	drain = e.setDrain("c1", nil, time.Time{})
	is(e, "drains anew", e.holds(), []dispatch.Hold{drain})
}

func drainLabels(e *env) {
	eu := e.setDrain("", map[string]string{"region": "eu"}, time.Time{})
	e.setDrain("", map[string]string{"zone": "a=b,\n", "region": "eu"}, start.Add(time.Hour))
	both := e.setDrain("", map[string]string{"region": "eu", "zone": "a=b,\n"}, time.Time{})
	alone := e.setDrain("region", nil, time.Time{})
	is(e, "drains", e.holds(), []dispatch.Hold{alone, eu, both})
	is(e, "held", e.deleteDrain(&eu), true)
	is(e, "drains then", e.holds(), []dispatch.Hold{alone, both})
}

func drainLimit(e *env) {
	for n := range bounds.MaxHolds {
		e.setDrain("c"+strconv.Itoa(n), nil, start.Add(time.Minute))
	}
	e.pausePool("p", time.Time{}) // is not counted
	for name, more := range map[string]dispatch.HoldTarget{
		"collector_id": {Collector: "more"}, "labels": {Labels: map[string]string{"a": "b", "c": "d"}},
	} {
		var field *dispatch.FieldError
		if err := e.Store.SetHold(e.ctx, dispatch.Hold{Target: more, Name: dispatch.HoldDefault}); !errors.As(err, &field) || field.Field != name {
			e.Errorf("one more: %v, want an error that names field, value and limit", err)
		}
	}
	e.setDrain("c7", nil, time.Time{}) // again
	e.advance(time.Minute)
	e.setDrain("more", nil, time.Time{}) // the others are over
	is(e, "holds then", len(e.holds()), 3)
}

// holdsOrder reads holds of pools and collectors together, and none of queues.
func holdsOrder(e *env) {
	labels := e.setDrain("", map[string]string{"region": "eu"}, time.Time{})
	pool := e.setHold(dispatch.HoldTarget{Pool: "c1"}, dispatch.HoldDefault, dispatch.Gate{By: "ops", Time: start})
	e.block(queue, time.Time{})
	one := e.setDrain("c1", nil, start.Add(time.Minute))
	is(e, "holds", e.holds(), []dispatch.Hold{one, labels, pool})
	e.advance(time.Minute)
	is(e, "holds then", e.holds(), []dispatch.Hold{labels, pool})
}
