package dispatch_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waggle-crawl/waggle/dispatch"
)

func TestSchedule_After_everyKeepsItsPhase(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		every := time.Duration(rapid.Int64Range(1000, 366*24*3600*1000).Draw(rt, "every ms")) * time.Millisecond
		first := time.UnixMilli(rapid.Int64Range(0, 2e12).Draw(rt, "first"))
		now := time.UnixMilli(rapid.Int64Range(0, 2e12).Draw(rt, "now"))
		next, err := dispatch.Schedule{Every: every}.After(now, first)
		if err != nil {
			rt.Fatal(err)
		}
		switch {
		case !next.After(now):
			rt.Fatalf("next %v is not after now %v", next, now)
		case next.Sub(first)%every != 0:
			rt.Fatalf("next %v is off the phase of %v by %v", next, first, next.Sub(first)%every)
		case next.After(first) && next.Add(-every).After(now):
			rt.Fatalf("next %v is not the first tick after %v", next, now)
		}
	})
}

func TestSchedule_After_cron(t *testing.T) {
	t.Parallel()
	at := func(s string) time.Time {
		parsed, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, test := range []struct{ name, cron, zone, now, want string }{
		{"next tick", "*/15 * * * *", "", "2026-03-01T10:07:00Z", "2026-03-01T10:15:00Z"},
		{"strictly after", "0 * * * *", "", "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"},
		{"in its zone", "30 6 * * *", "Europe/Berlin", "2026-01-10T00:00:00Z", "2026-01-10T05:30:00Z"},
		{"day of month or of week", "0 0 13 * 5", "", "2026-03-07T00:00:00Z", "2026-03-13T00:00:00Z"},
		{"a day of week alone", "0 0 13 * 5", "", "2026-03-13T00:00:00Z", "2026-03-20T00:00:00Z"},
		{"descriptor", "@daily", "", "2026-03-01T10:00:00Z", "2026-03-02T00:00:00Z"},
		{"a day of both fields if one holds a *", "0 0 1-7 * */7", "", "2026-03-02T00:00:00Z", "2026-04-05T00:00:00Z"},
		{"a leap day", "0 0 29 2 *", "", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			schedule := dispatch.Schedule{Cron: test.cron, TimeZone: test.zone}
			if err := schedule.Validate(); err != nil {
				t.Fatal(err)
			}
			got, err := schedule.After(at(test.now), time.Time{})
			if err != nil || !got.Equal(at(test.want)) {
				t.Errorf("after %s: %v, %v; want %s", test.now, got.Format(time.RFC3339), err, test.want)
			}
		})
	}
}

func TestSchedule_Validate_names(t *testing.T) {
	t.Parallel()
	for _, fine := range []dispatch.Schedule{
		{},
		{Every: time.Hour, Jitter: 59 * time.Minute},
		{Cron: "0 6,7 * * *", Jitter: 59 * time.Minute},
		{Adaptive: dispatch.Adaptive{Min: time.Second, Max: time.Second}},
		{Cron: "@yearly", Jitter: 300 * 24 * time.Hour},
		{Cron: "0 12 30 12 *", TimeZone: "Pacific/Apia", Jitter: time.Hour}, // a zone that skipped this day once
	} {
		if err := fine.Validate(); err != nil {
			t.Errorf("%+v: %v", fine, err)
		}
	}
	for _, test := range []struct {
		schedule dispatch.Schedule
		field    string
	}{
		{dispatch.Schedule{Every: time.Hour, Cron: "@daily"}, "schedule.cron"},
		{dispatch.Schedule{Every: time.Millisecond}, "schedule.every"},
		{dispatch.Schedule{Every: 367 * 24 * time.Hour}, "schedule.every"},
		{dispatch.Schedule{Every: -time.Hour}, "schedule.every"},
		{dispatch.Schedule{Every: time.Hour, TimeZone: "UTC"}, "schedule.time_zone"},
		{dispatch.Schedule{Cron: "* * * *"}, "schedule.cron"},
		{dispatch.Schedule{Cron: "61 * * * *"}, "schedule.cron"},
		{dispatch.Schedule{Cron: "@every 1h"}, "schedule.cron"},
		{dispatch.Schedule{Cron: "CRON_TZ=UTC * * * * *"}, "schedule.cron"},
		{dispatch.Schedule{Cron: "0 0 30 2 *"}, "schedule.cron"},
		{dispatch.Schedule{Cron: strings.Repeat("1,", 200) + "1 * * * *"}, "schedule.cron"},
		{dispatch.Schedule{Cron: "@daily", TimeZone: "Mars/Olympus"}, "schedule.time_zone"},
		{dispatch.Schedule{Cron: "@daily", TimeZone: "Local"}, "schedule.time_zone"},
		{dispatch.Schedule{Every: time.Hour, Adaptive: dispatch.Adaptive{Min: time.Hour, Max: time.Hour}}, "schedule.adaptive"},
		{dispatch.Schedule{Adaptive: dispatch.Adaptive{Max: time.Hour}}, "schedule.adaptive.min_interval"},
		{dispatch.Schedule{Adaptive: dispatch.Adaptive{Min: 1500 * time.Millisecond, Max: time.Hour}}, "schedule.adaptive.min_interval"},
		{dispatch.Schedule{Adaptive: dispatch.Adaptive{Min: time.Hour, Max: time.Minute}}, "schedule.adaptive.max_interval"},
		{dispatch.Schedule{Adaptive: dispatch.Adaptive{Min: time.Hour, Max: 367 * 24 * time.Hour}}, "schedule.adaptive.max_interval"},
		{dispatch.Schedule{Every: time.Hour, Jitter: time.Hour}, "schedule.jitter"},
		{dispatch.Schedule{Every: time.Hour, Jitter: -1}, "schedule.jitter"},
		{dispatch.Schedule{Cron: "0 6,7 * * *", Jitter: time.Hour}, "schedule.jitter"},
		{dispatch.Schedule{Adaptive: dispatch.Adaptive{Min: time.Hour, Max: 9 * time.Hour}, Jitter: time.Hour}, "schedule.jitter"},
		{dispatch.Schedule{Jitter: 367 * 24 * time.Hour}, "schedule.jitter"},
		{dispatch.Schedule{Jitter: time.Hour}, "schedule.jitter"},
	} {
		err := test.schedule.Validate()
		var field *dispatch.FieldError
		if !errors.As(err, &field) || field.Field != test.field || !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("%+v: %v; want a FieldError for %s", test.schedule, err, test.field)
		}
	}
}

func TestSource_FirstDue_spreads(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	quarters := [4]int{}
	for i := range 400 {
		source := dispatch.Source{ID: strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26)}
		source.Spec.Schedule.Every = time.Hour
		if due := source.FirstDue(now, ""); !due.Equal(now) {
			t.Fatalf("without SPREAD: first due %v, want now", due)
		}
		source.Spec.FirstCrawl = dispatch.FirstCrawlSpread
		due := source.FirstDue(now, "")
		if due.Before(now) || !due.Before(now.Add(time.Hour)) {
			t.Fatalf("first due %v after now, want within the hour", due.Sub(now))
		}
		if again := source.FirstDue(now, ""); !again.Equal(due) {
			t.Fatalf("first due moved from %v to %v", due, again)
		}
		quarters[due.Sub(now)/(15*time.Minute)]++
	}
	for i, n := range quarters {
		if n < 50 {
			t.Errorf("quarter %d of the hour has %d of 400 first crawls: %v", i, n, quarters)
		}
	}
}

// With a cron line, SPREAD is the first tick, shifted by the jitter: no crawl is at a time that the line does not have, and
// none is missed.
func TestSource_FirstDue_cron(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 28, 12, 30, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		schedule dispatch.Schedule
		want     time.Duration // after now, before jitter
	}{
		"later today":            {dispatch.Schedule{Cron: "0 13 * * *"}, 30 * time.Minute},
		"a year's":               {dispatch.Schedule{Cron: "@yearly"}, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).Sub(now)},
		"at a tick, the next":    {dispatch.Schedule{Cron: "*/30 * * * *"}, 30 * time.Minute},
		"in the gap of a zone":   {dispatch.Schedule{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}, 12*time.Hour + 30*time.Minute},
		"jitter after the tick":  {dispatch.Schedule{Cron: "0 13 * * *", Jitter: 20 * time.Minute}, 30 * time.Minute},
		"jitter around creation": {dispatch.Schedule{Cron: "0 12 * * *", Jitter: 3 * time.Hour}, -30 * time.Minute},
	} {
		for n := range 40 {
			source := dispatch.Source{ID: strconv.Itoa(n)}
			source.Spec.Schedule, source.Spec.FirstCrawl = test.schedule, dispatch.FirstCrawlSpread
			seed := dispatch.NewTaskID(dispatch.Identity{Scope: "s", Queue: "q", Key: strconv.Itoa(n)})
			offset, want := test.schedule.Offset(seed), test.want
			if want+offset <= 0 { // its time today has passed
				want += 24 * time.Hour
			}
			if got := source.FirstDue(now, seed).Sub(now); got != want {
				t.Fatalf("%s: first due %v after now and jitter of %v, want %v", name, got, offset, want)
			}
		}
	}
}

// jittered is a task's id with its offset.
func jittered(t *testing.T, s dispatch.Schedule, n int) (dispatch.TaskID, time.Duration) {
	t.Helper()
	id := dispatch.NewTaskID(dispatch.Identity{Scope: "s", Queue: "q", Key: strconv.Itoa(n)})
	offset := s.Offset(id)
	if offset < 0 || offset >= s.Jitter || offset%time.Millisecond != 0 || s.Offset(id) != offset {
		t.Fatalf("offset %v, want a stable one of whole milliseconds below %v", offset, s.Jitter)
	}
	return id, offset
}

// Jitter shifts each tick of a seed by the same amount, over the changes of
// daylight saving too.
func TestPolicy_jitter_cron(t *testing.T) {
	t.Parallel()
	s := dispatch.Schedule{Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Jitter: 3 * time.Hour}
	source := spec(func(spec *dispatch.SourceSpec) { spec.Schedule = s })
	plain := s
	plain.Jitter = 0
	for n := range 50 {
		task := leased(true, dispatch.Counters{})
		var offset time.Duration
		task.ID, offset = jittered(t, s, n)
		for _, from := range []string{"2026-03-27T12:00:00Z", "2026-10-23T12:00:00Z"} {
			now, err := time.Parse(time.RFC3339, from)
			if err != nil {
				t.Fatal(err)
			}
			tick := now
			for range 5 {
				if tick, err = plain.After(tick, now); err != nil {
					t.Fatal(err)
				}
				tr := middle.Report(task, source, succeeded(), now)
				if !tr.Due.Equal(tick.Add(offset)) {
					t.Fatalf("due %v, want %v after the tick %v", tr.Due, offset, tick)
				}
				now = tr.Due.Add(time.Second)
			}
		}
	}
}

func TestPolicy_jitter_everyKeepsItsPhase(t *testing.T) {
	t.Parallel()
	source := spec(func(s *dispatch.SourceSpec) { s.Schedule.Jitter = 40 * time.Minute })
	quarters := [4]int{}
	for n := range 200 {
		task := leased(true, dispatch.Counters{})
		var offset time.Duration
		task.ID, offset = jittered(t, source.Schedule, n)
		quarters[offset/(10*time.Minute)]++
		phase := task.FirstDue.Add(offset)
		for _, now := range []time.Duration{0, 45 * time.Minute, 7 * time.Hour} {
			tr := middle.Report(task, source, succeeded(), epoch.Add(now))
			if wait := tr.Due.Sub(epoch.Add(now)); wait <= 0 || wait > time.Hour || tr.Due.Sub(phase)%time.Hour != 0 {
				t.Fatalf("at %v: due in %v, %v out of phase", now, wait, tr.Due.Sub(phase)%time.Hour)
			}
		}
	}
	for i, n := range quarters {
		if n < 25 {
			t.Errorf("quarter %d of the jitter has %d of 200 seeds: %v", i, n, quarters)
		}
	}
}
