package dispatch

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// Bounds of schedules.
const (
	MinEvery      = time.Second
	MaxEvery      = 366 * 24 * time.Hour
	maxCronLength = 256
)

// Once reports whether seeds of this schedule are due only when triggered.
func (s Schedule) Once() bool { return s.Every == 0 && s.Cron == "" && !s.IsAdaptive() }

// IsAdaptive reports whether the interval follows the page.
func (s Schedule) IsAdaptive() bool { return s.Adaptive != Adaptive{} }

// Validate reports the first field that makes no schedule, as a [FieldError].
func (s Schedule) Validate() error {
	switch {
	case s.Every != 0 && s.Cron != "":
		return Invalid("schedule.cron", s.Cron, "must be empty when every is set")
	case s.Every != 0 && (s.Every < MinEvery || s.Every > MaxEvery || s.Every%time.Millisecond != 0):
		return Invalid("schedule.every", s.Every, fmt.Sprintf("must be %v to %v, in whole milliseconds", MinEvery, MaxEvery))
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
	if s.Jitter < 0 || s.Jitter > MaxEvery || s.Jitter%time.Millisecond != 0 {
		return Invalid("schedule.jitter", s.Jitter, fmt.Sprintf("must be 0 to %v, in whole milliseconds", MaxEvery))
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
		interval = MaxEvery
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

// parseCron reads Cron by the rules of crontab(5): five fields, or a
// descriptor; day of month and day of week are alternatives when both are
// restricted. At the change to daylight saving a time that is skipped is due as
// much later as the clock was put forward; at the change back a time that comes
// twice is due twice.
func (s Schedule) parseCron() (cron.Schedule, error) {
	if len(s.Cron) > maxCronLength {
		return nil, Invalid("schedule.cron", s.Cron, fmt.Sprintf("must be at most %d bytes", maxCronLength))
	}
	location, err := time.LoadLocation(s.zone())
	if err != nil || strings.EqualFold(s.TimeZone, "local") {
		return nil, Invalid("schedule.time_zone", s.TimeZone, "must be an IANA time zone, such as \"Europe/Berlin\"")
	}
	// The parser would take a zone or an interval inside the line; both have
	// fields of their own here.
	if strings.Contains(s.Cron, "TZ=") || strings.HasPrefix(strings.TrimSpace(s.Cron), "@every") {
		return nil, Invalid("schedule.cron", s.Cron, "must hold neither a zone nor @every: use time_zone and every")
	}
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)
	if err != nil {
		return nil, fmt.Errorf("make cron parser: %w", err)
	}
	parsed, err := parser.Parse("CRON_TZ=" + location.String() + " " + s.Cron)
	if err != nil {
		return nil, Invalid("schedule.cron", s.Cron, "does not parse as five cron fields or a descriptor: "+err.Error())
	}
	if parsed.Next(time.Unix(0, 0)).IsZero() {
		return nil, Invalid("schedule.cron", s.Cron, "must name a date that comes")
	}
	return parsed, nil
}

func (s Schedule) zone() string {
	if s.TimeZone == "" {
		return "UTC"
	}
	return s.TimeZone
}

var errNoSchedule = errors.New("no schedule")

// After is the first due time after t, before jitter: of every, firstDue + k x
// every; of cron, the next tick. However many were missed, it is one. An adaptive
// schedule has none: its intervals are the seeds' own.
func (s Schedule) After(t, firstDue time.Time) (time.Time, error) {
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
	due, err := s.After(t.Add(-offset), seed.FirstDue)
	return due.Add(offset), err
}

// Interval is the gap between two due times around t, of an adaptive schedule the
// one it starts with; 0 without a schedule.
func (s Schedule) Interval(t time.Time) time.Duration {
	switch {
	case s.Every > 0:
		return s.Every
	case s.IsAdaptive():
		return s.Adaptive.Start()
	}
	first, err := s.After(t, t)
	if err != nil {
		return 0
	}
	second, err := s.After(first, t)
	if err != nil {
		return 0
	}
	return second.Sub(first)
}

// FirstDue is when the seeds of a source made at now are due first, before
// jitter.
func (s *Source) FirstDue(now time.Time) time.Time {
	interval := s.Spec.Schedule.Interval(now)
	if s.Spec.FirstCrawl != FirstCrawlSpread || interval < time.Millisecond {
		return now
	}
	return now.Add(hashWithin(s.ID, interval))
}

// hashWithin is a point from 0 to less than d that the hash of a name gives, in
// whole milliseconds.
func hashWithin(name string, d time.Duration) time.Duration {
	h := fnv.New64a()
	h.Write([]byte(name))
	return time.Duration(h.Sum64()%uint64(d/time.Millisecond)) * time.Millisecond
}
