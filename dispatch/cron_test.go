package dispatch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// cronZones are time zones with the first of ten years, chosen for how their clocks change.
var cronZones = []struct {
	name string
	year int
}{
	{"UTC", 2026},
	{"Europe/Berlin", 2026},
	{"Europe/London", 2026},
	{"Europe/Dublin", 2026}, // its winter time is the exception
	{"America/New_York", 2026},
	{"America/St_Johns", 2004},    // half an hour off, changed at 00:01
	{"Asia/Beirut", 2026},         // 00:00 becomes 01:00
	{"Africa/Cairo", 2026},        // 00:00 becomes 01:00 and 24:00 becomes 23:00
	{"America/Santiago", 2026},    // 24:00 becomes 01:00 and 24:00 becomes 23:00
	{"America/Havana", 2026},      // 00:00 becomes 01:00
	{"Atlantic/Azores", 2026},     // 00:00 becomes 01:00 and 01:00 becomes 00:00
	{"America/Nuuk", 2020},        // 23:00 becomes 00:00; the standard time moved in 2023
	{"Australia/Lord_Howe", 2026}, // half an hour
	{"Antarctica/Troll", 2026},    // two hours
	{"Africa/Casablanca", 2026},   // back and forth around Ramadan
	{"Asia/Kathmandu", 2026},      // 5:45 from UTC
	{"Pacific/Chatham", 2026},     // 12:45 from UTC
	{"Pacific/Apia", 2006},        // skipped 2011-12-30
	{"America/Sao_Paulo", 2010},   // 00:00 became 01:00, until 2019
	{"America/Caracas", 2007},     // half an hour, twice
	{"Asia/Pyongyang", 2012},      // half an hour, twice
	{"Asia/Amman", 2015},          // moved to permanent summer time in 2022
	{"Asia/Gaza", 2019},           // many rules
	{"Asia/Beirut", 2036},         // behind the table of the zone, where only its rule is left
	{"America/Santiago", 2036},
}

const cronYears = 10

func zone(tb testing.TB, name string) *time.Location {
	tb.Helper()
	location, err := time.LoadLocation(name)
	if err != nil {
		tb.Fatal(err)
	}
	return location
}

// cronTick reads a cron line.
func cronTick(tb testing.TB, line, zone string) func(time.Time) time.Time {
	tb.Helper()
	tick, err := dispatch.Schedule{Cron: line, TimeZone: zone}.CronTick()
	if err != nil {
		tb.Fatalf("%q: %v", line, err)
	}
	return tick
}

// Over ten years, days and weeks and years lose no tick and get none twice.
func TestSchedule_cron_tenYears(t *testing.T) {
	t.Parallel()
	const step = 15 * time.Minute // the clocks of all zones show multiples of it
	for _, z := range cronZones {
		t.Run(z.name, func(t *testing.T) {
			t.Parallel()
			from := time.Date(z.year, 1, 1, 0, 0, 0, 0, time.UTC)
			to := from.AddDate(cronYears, 0, 0)
			clock := readings(zone(t, z.name), from, to, step)
			for _, line := range []string{
				"@daily", "@weekly", "@monthly", "0 0 28 3 *", "0 0 1,15 * sun", "15 1 29 2 *", "45 */8 25-31 3,10 *",
			} {
				want := newCronScan(t, line).ticks(clock, from, step)
				tick := cronTick(t, line, z.name)
				now := from
				for _, at := range want {
					next := tick(now)
					if !next.Equal(at) {
						t.Errorf("%q after %v: %v, want %v", line, now.In(zone(t, z.name)), next, at.In(next.Location()))
						break
					}
					now = at
				}
			}
		})
	}
}

// clockChanges are the hours in which the offset of a zone changes.
func clockChanges(location *time.Location, from, to time.Time) []time.Time {
	var changes []time.Time
	_, before := from.In(location).Zone()
	for at := from; at.Before(to); at = at.Add(time.Hour) {
		_, offset := at.In(location).Zone()
		if offset != before {
			changes = append(changes, at)
		}
		before = offset
	}
	return changes
}

// Around each change of the clock, every minute is compared, and ticks are asked for from many instants.
func TestSchedule_cron_clockChanges(t *testing.T) {
	t.Parallel()
	lines := []string{
		"* * * * *", "*/7 * * * *", "@hourly", "30 * * * *", "*/20 1-2 * * *", "5 */2 * * *", "* 0 * * *", "59 23 * * *",
		"0 0 * * *", "30 0 * * *", "0 1 * * *", "15,45 1 * * *", "0 2 * * *", "1-59/29 2,3 * * 0", "0,30 0-4,22,23 * * *",
		"0 0 * * 0", "0 0 1 */2 *",
	}
	for _, z := range cronZones {
		t.Run(z.name, func(t *testing.T) {
			t.Parallel()
			location := zone(t, z.name)
			begin := time.Date(z.year, 1, 1, 0, 0, 0, 0, time.UTC)
			for _, change := range clockChanges(location, begin, begin.AddDate(cronYears, 0, 0)) {
				from, to := change.Add(-30*time.Hour), change.Add(30*time.Hour)
				clock := readings(location, from, to, time.Minute)
				for _, line := range lines {
					want := newCronScan(t, line).ticks(clock, from, time.Minute)
					compareTicks(t, line, location, want, from, to)
				}
			}
		})
	}
}

// compareTicks asks for the tick after instants between from and to, near each tick and on the way.
func compareTicks(t *testing.T, line string, location *time.Location, want []time.Time, from, to time.Time) {
	t.Helper()
	tick := cronTick(t, line, location.String())
	var asked []time.Time
	for at := from; at.Before(to); at = at.Add(47 * time.Minute) {
		asked = append(asked, at)
	}
	for i, at := range want {
		if i%max(len(want)/100, 1) == 0 {
			asked = append(asked, at.Add(-time.Nanosecond), at)
		}
	}
	for _, at := range asked {
		i, _ := slices.BinarySearchFunc(want, at, func(tick, at time.Time) int {
			if tick.After(at) {
				return 1
			}
			return -1
		})
		next := tick(at)
		switch {
		case i < len(want) && !next.Equal(want[i]):
			t.Errorf("%q after %v: %v, want %v", line, at.In(location), next.In(location), want[i].In(location))
			return
		case i == len(want) && !next.After(to):
			t.Errorf("%q after %v: %v, want none to %v", line, at.In(location), next.In(location), to.In(location))
			return
		}
	}
}

// What the manual promises about clock changes, in dates.
func TestSchedule_cron_promises(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, line, zone, now string
		want                  []string
	}{
		{"a midnight that is skipped", "0 0 28 3 *", "Asia/Beirut", "2026-10-01T00:00:00Z", []string{"2027-03-27T22:00:00Z", "2028-03-27T21:00:00Z"}},
		{"each day", "@daily", "Asia/Beirut", "2027-03-26T23:00:00Z", []string{"2027-03-27T22:00:00Z", "2027-03-28T21:00:00Z"}},
		{"a fixed time in the gap", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{"several fixed times in the gap", "0,30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:00:00Z"}},
		{"half an hour is skipped", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		{"a fixed time comes twice", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"hourly in the repeated hour", "@hourly", "Europe/Berlin", "2026-10-24T23:30:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"}},
		{"a step in the repeated hour", "*/30 2 * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:00:00Z"}},
		{"a step in the gap", "*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-30T00:00:00Z"}},
		{"a step over the gap", "*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{"2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"}},
		{"a day that was skipped", "0 12 30 12 *", "Pacific/Apia", "2011-01-01T00:00:00Z", []string{"2011-12-30T10:00:00Z", "2012-12-29T22:00:00Z"}},
		{"a leap day of one weekday", "0 0 29 2 */7", "UTC", "2088-03-01T00:00:00Z", []string{"2128-02-29T00:00:00Z"}},
		{"the same with a step", "*/30 3 29 2 */7", "Europe/Berlin", "2088-03-01T00:00:00Z", []string{"2128-02-29T02:00:00Z", "2128-02-29T02:30:00Z", "2156-02-29T02:00:00Z"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tick := cronTick(t, test.line, test.zone)
			at, err := time.Parse(time.RFC3339, test.now)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				next := tick(at)
				if got := next.UTC().Format(time.RFC3339); got != want {
					t.Errorf("%q after %v: %v, want %v", test.line, at, got, want)
				}
				at = next
			}
		})
	}
}

func TestSchedule_cron_refused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ line, part string }{
		{"5-1 * * * *", `minute "5-1"`},
		{"1,,2 * * * *", `minute "1,,2"`},
		{"1, * * * *", `minute "1,"`},
		{", * * * *", `minute ","`},
		{"* ,1 * * *", `hour ",1"`},
		{"* 1- * * *", `hour "1-"`},
		{"* -1 * * *", `hour "-1"`},
		{"* 1-2-3 * * *", `hour "1-2-3"`},
		{"* 24 * * *", `hour "24"`},
		{"* +1 * * *", `hour "+1"`},
		{"* * 0 * *", `day of month "0"`},
		{"* * *-5 * *", `day of month "*-5"`},
		{"* * ** * *", `day of month "**"`},
		{"* * ? * *", `day of month "?"`},
		{"* * L * *", `day of month "L"`},
		{"* * 31-1 * *", `day of month "31-1"`},
		{"* * * 13 *", `month "13"`},
		{"* * * nov-feb *", `month "nov-feb"`},
		{"* * * january *", `month "january"`},
		{"* * * mon *", `month "mon"`},
		{"* * * * 8", `day of week "8"`},
		{"* * * * sat-fri", `day of week "sat-fri"`},
		{"* * * * 5-0", `day of week "5-0"`},
		{"*/0 * * * *", `minute "*/0"`},
		{"*/ * * * *", `minute "*/"`},
		{"/5 * * * *", `minute "/5"`},
		{"*/60 * * * *", `minute "*/60"`},
		{"*/-5 * * * *", `minute "*/-5"`},
		{"1-5/2/3 * * * *", `minute "1-5/2/3"`},
		{"99999999999999999999 * * * *", `minute "99999999999999999999"`},
		{"* * * *", "4 fields"},
		{"* * * * * *", "6 fields"},
		{"@daily 5", "2 fields"},
		{"@fortnightly", "@fortnightly"},
		{"   ", "0 fields"},
		{"0 0 30 2 *", "date"},
		{"0 0 31 4,6,9,11 */2", "date"},
	} {
		err := dispatch.Schedule{Cron: test.line}.Validate()
		var field *dispatch.FieldError
		if !errors.As(err, &field) || field.Field != "schedule.cron" || field.Value != test.line || !strings.Contains(field.Limit, test.part) {
			t.Errorf("%q: %v; want an error of schedule.cron that contains %q", test.line, err, test.part)
		}
	}
	for _, line := range []string{"0 0 * * 7", "0 0 * * fri-sun", "0 0 * * MON-Fri", "0 0 * jan,Dec *", "0/15 * * * *", "00 06 * * *", " @daily ", "5,* 1 * * *", "0 0 29 2 *"} {
		if err := (dispatch.Schedule{Cron: line}).Validate(); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// A tick is found quickly, however far away it is, and a line without one is refused as quickly.
func BenchmarkSchedule_cron(b *testing.B) {
	for _, line := range []string{"*/5 * * * *", "0 0 28 3 *", "0 0 29 2 */7", "*/5 0 29 2 */7"} {
		b.Run(line, func(b *testing.B) {
			tick := cronTick(b, line, "Asia/Beirut")
			now := time.Date(2068, 3, 1, 0, 0, 0, 0, time.UTC)
			for b.Loop() {
				if tick(now).IsZero() {
					b.Fatal("no tick")
				}
			}
		})
	}
	b.Run("never", func(b *testing.B) {
		for b.Loop() {
			if (dispatch.Schedule{Cron: "* * 30 2 *", TimeZone: "Asia/Beirut"}).Validate() == nil {
				b.Fatal("accepted")
			}
		}
	})
}

// Whatever a line holds, reading it does not panic. The next tick of a line that is accepted comes soon and agrees
// with a second way of computing it, minute by minute.
func FuzzSchedule_cron(f *testing.F) {
	f.Fuzz(func(t *testing.T, line string, zoneIndex uint8, second uint32) {
		name := cronZones[int(zoneIndex)%len(cronZones)].name
		schedule := dispatch.Schedule{Cron: line, TimeZone: name}
		begun := time.Now()
		if schedule.Validate() != nil {
			return
		}
		now := time.Unix(int64(second), 0).AddDate(10, 0, 0) // 1980 to 2116
		next, err := schedule.After(now, time.Time{})
		if took := time.Since(begun); took > time.Second {
			t.Errorf("%q in %s: took %v", line, name, took)
		}
		if err != nil {
			t.Fatalf("%q in %s after %v: %v", line, name, now, err)
		}
		if !next.After(now) {
			t.Fatalf("%q in %s after %v: %v, which is not after it", line, name, now, next)
		}
		location, scan := zone(t, name), newCronScan(t, line)
		const span = 50 * time.Hour
		for _, from := range []time.Time{now, next.Add(-span)} {
			from = from.Truncate(time.Minute)
			if from.Before(now) {
				from = now.Truncate(time.Minute)
			}
			to := from.Add(span)
			if to.After(next) {
				to = next
			}
			ticks := scan.ticks(readings(location, from, to, time.Minute), from, time.Minute)
			if len(ticks) > 0 && !ticks[0].Equal(next) || len(ticks) == 0 && to.Equal(next) {
				t.Fatalf("%q in %s after %v: %v, want %v", line, name, now.In(location), next.In(location), ticks)
			}
		}
	})
}
