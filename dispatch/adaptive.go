package dispatch

import (
	"fmt"
	"math"
	"time"
)

// How far one crawl moves the interval of an adaptive schedule: the factors of
// Apache Nutch's AdaptiveFetchSchedule, which adds 0.4 of the interval when a page
// has not changed and takes 0.2 off when it has.
const (
	adaptiveGrowth = 1.4
	adaptiveShrink = 0.8
	// adaptiveUnit is what intervals are whole multiples of.
	adaptiveUnit = time.Second
)

// Adaptive is a schedule whose interval, of each seed its own, follows how often
// the page changes. Its zero value is none.
//
// The record of a seed keeps no interval: FirstDue is when the schedule planned
// the next crawl as the last cycle settled, so the interval in force is FirstDue
// less SettledAt. A trigger or a gap after failures moves Due alone. The plan is
// made a moment before the store settles the cycle, which whole seconds absorb.
type Adaptive struct {
	Min time.Duration `json:"min"`
	Max time.Duration `json:"max"`
}

// validate reports the first bound that makes no interval, as a [FieldError].
func (a Adaptive) validate() error {
	switch {
	case a.Min < MinEvery || a.Min > MaxEvery || a.Min%adaptiveUnit != 0:
		return Invalid("schedule.adaptive.min_interval", a.Min, fmt.Sprintf("must be %v to %v, in whole seconds", MinEvery, MaxEvery))
	case a.Max < a.Min || a.Max > MaxEvery || a.Max%adaptiveUnit != 0:
		return Invalid("schedule.adaptive.max_interval", a.Max, fmt.Sprintf("must be min_interval (%v) to %v, in whole seconds", a.Min, MaxEvery))
	}
	return nil
}

// Start is the interval of a seed that has not been crawled yet: the geometric
// mean of the bounds, as many steps away from the one as from the other.
func (a Adaptive) Start() time.Duration {
	return a.within(time.Duration(math.Sqrt(float64(a.Min) * float64(a.Max))))
}

// Interval is the one in force for a seed.
func (a Adaptive) Interval(t *Task) time.Duration {
	if t.SettledAt.IsZero() || !t.FirstDue.After(t.SettledAt) {
		return a.Start() // not crawled yet, or by another schedule
	}
	return a.within(t.FirstDue.Sub(t.SettledAt))
}

// Next is the interval of a seed after a success: shorter when the page changed,
// longer when it did not, the same when nobody can tell, as of the first crawl.
func (a Adaptive) Next(t *Task, changed *bool) time.Duration {
	interval := a.Interval(t)
	switch {
	case changed == nil || t.SettledAt.IsZero():
		return interval
	case *changed:
		// At least a second, so that rounding stops no interval.
		return a.within(min(time.Duration(float64(interval)*adaptiveShrink), interval-adaptiveUnit))
	default:
		return a.within(max(time.Duration(float64(interval)*adaptiveGrowth), interval+adaptiveUnit))
	}
}

func (a Adaptive) within(interval time.Duration) time.Duration {
	return min(max(interval.Round(adaptiveUnit), a.Min), a.Max)
}
