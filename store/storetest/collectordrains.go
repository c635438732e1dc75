package storetest

import (
	"errors"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func drainCases() []testCase {
	return []testCase{
		{"Set_HoldsUntilDeleted", drainSet},
		{"Set_HoldsUntilThen", drainUntil},
		{"Labels_NameTheSameInAnyOrder", drainLabels},
		{"Set_IsBounded_P10", drainLimit},
	}
}

// setDrain drains a collector, or those with the labels.
func (e *env) setDrain(id string, labels map[string]string, until time.Time) dispatch.Drain {
	e.Helper()
	drain := dispatch.Drain{Collector: id, Labels: labels, Gate: dispatch.Gate{
		Kind: dispatch.GateDrained, Until: until, By: "ops", Reason: "we move", Time: start,
	}}
	e.ok("set drain", e.Store.SetDrain(e.ctx, drain))
	return drain
}

func (e *env) deleteDrain(d *dispatch.Drain) (held bool) {
	e.Helper()
	held, err := e.Store.DeleteDrain(e.ctx, d.Name())
	e.ok("delete drain", err)
	return held
}

func (e *env) drains() []dispatch.Drain {
	e.Helper()
	drains, err := e.Store.Drains(e.ctx)
	e.ok("read drains", err)
	return drains
}

func drainSet(e *env) {
	is(e, "before", len(e.drains()), 0)
	e.setDrain("c1", nil, start.Add(time.Second))
	first := e.setDrain("c1", nil, time.Time{}) // replaces the earlier one
	other := e.setDrain("c0", nil, time.Time{})
	is(e, "drains", e.drains(), []dispatch.Drain{other, first})
	e.advance(1000 * time.Hour)
	is(e, "held", e.deleteDrain(&first), true)
	is(e, "held again", e.deleteDrain(&first), false)
	is(e, "drains then", e.drains(), []dispatch.Drain{other})
}

func drainUntil(e *env) {
	drain := e.setDrain("c1", nil, start.Add(time.Minute))
	e.advance(time.Minute - time.Millisecond)
	is(e, "drains", e.drains(), []dispatch.Drain{drain})
	e.advance(time.Millisecond)
	is(e, "drains then", len(e.drains()), 0)
	is(e, "held", e.deleteDrain(&drain), false)
	drain = e.setDrain("c1", nil, time.Time{})
	is(e, "drains anew", e.drains(), []dispatch.Drain{drain})
}

func drainLabels(e *env) {
	eu := e.setDrain("", map[string]string{"region": "eu"}, time.Time{})
	e.setDrain("", map[string]string{"zone": "a=b,\n", "region": "eu"}, start.Add(time.Hour))
	both := e.setDrain("", map[string]string{"region": "eu", "zone": "a=b,\n"}, time.Time{})
	alone := e.setDrain("region", nil, time.Time{})
	is(e, "drains", e.drains(), []dispatch.Drain{alone, eu, both})
	is(e, "held", e.deleteDrain(&eu), true)
	is(e, "drains then", e.drains(), []dispatch.Drain{alone, both})
}

func drainLimit(e *env) {
	for n := range dispatch.MaxDrains {
		e.setDrain("c"+strconv.Itoa(n), nil, start.Add(time.Minute))
	}
	for name, more := range map[string]dispatch.Drain{
		"collector_id": {Collector: "more"}, "labels": {Labels: map[string]string{"a": "b", "c": "d"}},
	} {
		var field *dispatch.FieldError
		if err := e.Store.SetDrain(e.ctx, more); !errors.As(err, &field) || field.Field != name {
			e.Errorf("one more: %v, want an error that names field, value and limit", err)
		}
	}
	e.setDrain("c7", nil, time.Time{}) // again
	e.advance(time.Minute)
	e.setDrain("more", nil, time.Time{}) // the others are over
	is(e, "drains then", len(e.drains()), 2)
}
