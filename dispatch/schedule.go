package dispatch

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// Schedule is when a settled seed is due again. At most one of Every, Cron and Adaptive is set; with none, seeds are
// crawled once per trigger.
type Schedule struct {
	Every    time.Duration `json:"every,omitempty"`     // keeps its phase
	Cron     string        `json:"cron,omitempty"`      // five fields, or a descriptor such as @daily
	TimeZone string        `json:"time_zone,omitempty"` // of Cron, an IANA name; default UTC
	Adaptive Adaptive      `json:"adaptive,omitzero"`   // an interval that follows the page
	// Jitter shifts the due times of each seed by a stable part of it (see
	// [Schedule.Offset]), of an adaptive schedule the first one only.
	Jitter time.Duration `json:"jitter,omitempty"`
	// Revisit makes each cycle of a seed a pass: what it discovers is crawled again, even if it settled in an earlier
	// pass.
	Revisit bool `json:"revisit,omitempty"`
}

// Bounds of schedules.
const (
	maxCronLength = 256
)

// Once reports whether seeds of this schedule are due only when triggered.
func (s Schedule) Once() bool { return s.Every == 0 && s.Cron == "" && !s.IsAdaptive() }

// IsAdaptive reports whether the interval follows the page.
func (s Schedule) IsAdaptive() bool { return s.Adaptive != Adaptive{} }

// validate reports the first field that makes no schedule, as a [FieldError].
func (s Schedule) validate() error {
	switch {
	case s.Every != 0 && s.Cron != "":
		return Invalid("schedule.cron", s.Cron, "must be empty when every is set")
	case s.Every != 0 && (s.Every < bounds.MinEvery || s.Every > bounds.MaxEvery || s.Every%time.Millisecond != 0):
		return Invalid("schedule.every", s.Every, fmt.Sprintf("must be %v to %v, in whole milliseconds", bounds.MinEvery, bounds.MaxEvery))
	case s.TimeZone != "" && s.Cron == "":
		return Invalid("schedule.time_zone", s.TimeZone, "must be empty without cron")
	case s.IsAdaptive() && (s.Every != 0 || s.Cron != ""):
		return Invalid("schedule.adaptive", fmt.Sprintf("%v to %v", s.Adaptive.Min, s.Adaptive.Max), "must be absent when every or cron is set")
	case s.IsAdaptive():
		if err := s.Adaptive.validate(); err != nil {
			return err
		}
	case s.Cron != "":
		if _, err := s.parseCron(); err != nil {
			return err
		}
	}
	return s.validateJitter()
}

// jitterTicks is how many ticks of a cron line its shortest gap is looked for in.
const jitterTicks = 200

// validateJitter keeps due times in the interval that they belong to.
func (s Schedule) validateJitter() error {
	if s.Jitter < 0 || s.Jitter > bounds.MaxEvery || s.Jitter%time.Millisecond != 0 {
		return Invalid("schedule.jitter", s.Jitter, fmt.Sprintf("must be 0 to %v, in whole milliseconds", bounds.MaxEvery))
	}
	interval := s.Every
	switch {
	case s.Jitter == 0:
		return nil
	case s.Once():
		return Invalid("schedule.jitter", s.Jitter, "must be absent without every, cron or adaptive, whose due times it shifts")
	case s.IsAdaptive():
		interval = s.Adaptive.Min
	case s.Cron != "":
		parsed, err := s.parseCron()
		if err != nil {
			return err
		}
		interval = bounds.MaxEvery
		tick := parsed.Next(time.Unix(0, 0))
		for range jitterTicks {
			next := parsed.Next(tick)
			if next.IsZero() {
				break
			}
			interval = min(interval, next.Sub(tick))
			tick = next
		}
	}
	if s.Jitter >= interval {
		return Invalid("schedule.jitter", s.Jitter, fmt.Sprintf("must be less than the shortest interval, %v", interval))
	}
	return nil
}

// parseCron reads Cron by the rules of crontab(5): five fields, or a descriptor; day of month and day of week are
// alternatives when both are restricted. The doc comment of waggle.v1.Schedule has the rules for changes of the clock.
func (s Schedule) parseCron() (cronLine, error) {
	if len(s.Cron) > maxCronLength {
		return cronLine{}, Invalid("schedule.cron", s.Cron, fmt.Sprintf("must be at most %d bytes", maxCronLength))
	}
	location, err := time.LoadLocation(s.zone())
	if err != nil || strings.EqualFold(s.TimeZone, "local") {
		return cronLine{}, Invalid("schedule.time_zone", s.TimeZone, "must be an IANA time zone, such as \"Europe/Berlin\"")
	}
	line, err := parseCronLine(s.Cron, location)
	if err != nil {
		return cronLine{}, Invalid("schedule.cron", s.Cron, err.Error())
	}
	return line, nil
}

func (s Schedule) zone() string {
	if s.TimeZone == "" {
		return "UTC"
	}
	return s.TimeZone
}

var errNoSchedule = errors.New("no schedule")

// after is the first due time after t, before jitter: of every, firstDue + k x
// every; of cron, the next tick. However many were missed, it is one. An adaptive
// schedule has none: its intervals are the seeds' own.
func (s Schedule) after(t, firstDue time.Time) (time.Time, error) {
	switch {
	case s.Every > 0:
		if firstDue.After(t) {
			// Under another schedule it may have been planned for far ahead.
			ticks := int64((firstDue.Sub(t) - 1) / s.Every)
			return firstDue.Add(-time.Duration(ticks) * s.Every), nil
		}
		ticks := int64(t.Sub(firstDue)/s.Every) + 1
		return firstDue.Add(time.Duration(ticks) * s.Every), nil
	case s.Cron != "":
		parsed, err := s.parseCron()
		if err != nil {
			return time.Time{}, err
		}
		next := parsed.Next(t)
		if next.IsZero() {
			return time.Time{}, fmt.Errorf("cron %q has no tick after %v: %w", s.Cron, t, errNoSchedule)
		}
		return next.UTC(), nil
	default:
		return time.Time{}, errNoSchedule
	}
}

// Offset is by how much jitter shifts the due times of a task: 0 to less than
// Jitter, always the same.
func (s Schedule) Offset(id TaskID) time.Duration {
	if s.Jitter < time.Millisecond {
		return 0
	}
	return hashWithin(string(id), s.Jitter)
}

// DueAfter is the first due time of a seed after t.
func (s Schedule) DueAfter(t time.Time, seed *Task) (time.Time, error) {
	offset := s.Offset(seed.ID)
	due, err := s.after(t.Add(-offset), seed.FirstDue)
	return due.Add(offset), err
}

// Interval is the gap between two due times around t, of an adaptive schedule the
// one it starts with; 0 without a schedule.
func (s Schedule) Interval(t time.Time) time.Duration {
	switch {
	case s.Every > 0:
		return s.Every
	case s.IsAdaptive():
		return s.Adaptive.start()
	}
	first, err := s.after(t, t)
	if err != nil {
		return 0
	}
	second, err := s.after(first, t)
	if err != nil {
		return 0
	}
	return second.Sub(first)
}

// hashWithin is a point from 0 to less than d that the hash of a name gives, in
// whole milliseconds.
func hashWithin(name string, d time.Duration) time.Duration {
	h := fnv.New64a()
	h.Write([]byte(name))
	return time.Duration(h.Sum64()%uint64(d/time.Millisecond)) * time.Millisecond
}

// Factors of an adaptive interval, from Apache Nutch's AdaptiveFetchSchedule: 0.4 of the interval is added if the page
// has not changed, 0.2 is subtracted if it has.
const (
	adaptiveGrowth = 1.4
	adaptiveShrink = 0.8
	// adaptiveUnit is what intervals are whole multiples of.
	adaptiveUnit = time.Second
)

// Adaptive is a schedule with a separate interval for each seed, which follows how often the page changes. The zero
// value means no adaptive schedule.
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
	case a.Min < bounds.MinEvery || a.Min > bounds.MaxEvery || a.Min%adaptiveUnit != 0:
		return Invalid("schedule.adaptive.min_interval", a.Min, fmt.Sprintf("must be %v to %v, in whole seconds", bounds.MinEvery, bounds.MaxEvery))
	case a.Max < a.Min || a.Max > bounds.MaxEvery || a.Max%adaptiveUnit != 0:
		return Invalid("schedule.adaptive.max_interval", a.Max, fmt.Sprintf("must be min_interval (%v) to %v, in whole seconds", a.Min, bounds.MaxEvery))
	}
	return nil
}

// start is the interval of a seed before its first crawl: the geometric mean of the bounds.
func (a Adaptive) start() time.Duration {
	return a.within(time.Duration(math.Sqrt(float64(a.Min) * float64(a.Max))))
}

// Interval is the one in force for a seed.
func (a Adaptive) Interval(t *Task) time.Duration {
	if t.SettledAt.IsZero() || !t.FirstDue.After(t.SettledAt) {
		return a.start() // not crawled yet, or by another schedule
	}
	return a.within(t.FirstDue.Sub(t.SettledAt))
}

// next is the interval of a seed after a success: shorter if the page changed, longer if it did not, the same if that
// is not known or after the first crawl.
func (a Adaptive) next(t *Task, changed *bool) time.Duration {
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

// wait is how long a seed rests whose page says that it stays as it is for a while.
func (a Adaptive) wait(interval, fresh time.Duration) time.Duration {
	return max(interval, min(fresh.Truncate(time.Millisecond), a.Max))
}

func (a Adaptive) within(interval time.Duration) time.Duration {
	return min(max(interval.Round(adaptiveUnit), a.Min), a.Max)
}
