package dispatch_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cronScan computes the ticks of a valid cron line a second way: it looks at every instant, one step after the other,
// and reads the local clock with [time.Time.In]. It shares nothing with the code under test.
type cronScan struct {
	minute, hour, day, month, weekday []bool // by value
	fixed, eitherDay                  bool
}

var cronDescriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// newCronScan reads a line that the code under test accepted.
func newCronScan(tb testing.TB, line string) cronScan {
	tb.Helper()
	fields := strings.Fields(line)
	if len(fields) == 1 {
		fields = strings.Fields(cronDescriptors[fields[0]])
	}
	if len(fields) != 5 {
		tb.Fatalf("%q was accepted, but has %d fields", line, len(fields))
	}
	wild := make([]bool, len(fields))
	for i, field := range fields {
		wild[i] = strings.Contains(field, "*")
	}
	scan := cronScan{
		minute:    cronValues(tb, fields[0], 0, 59, nil),
		hour:      cronValues(tb, fields[1], 0, 23, nil),
		day:       cronValues(tb, fields[2], 1, 31, nil),
		month:     cronValues(tb, fields[3], 1, 12, strings.Fields("- jan feb mar apr may jun jul aug sep oct nov dec")),
		weekday:   cronValues(tb, fields[4], 0, 7, strings.Fields("sun mon tue wed thu fri sat")),
		fixed:     !wild[0] && !wild[1],
		eitherDay: !wild[2] && !wild[4],
	}
	scan.weekday[0] = scan.weekday[0] || scan.weekday[7]
	return scan
}

// cronValues reports for each value up to the maximum whether one of the parts of a field names it.
func cronValues(tb testing.TB, field string, lowest, highest int, names []string) []bool {
	tb.Helper()
	number := func(text string) int {
		if i := slices.Index(names, strings.ToLower(text)); i >= 0 {
			return i
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			tb.Fatalf("field %q was accepted, but %q is no value", field, text)
		}
		return n
	}
	values := make([]bool, highest+1)
	for part := range strings.SplitSeq(field, ",") {
		span, every, stepped := strings.Cut(part, "/")
		from, to, ranged := strings.Cut(span, "-")
		low, high, step := lowest, highest, 1
		if span != "*" {
			low = number(from)
			switch {
			case ranged:
				high = number(to)
				if high == 0 && low > 0 && strings.EqualFold(to, "sun") {
					high = 7
				}
			case !stepped:
				high = low
			}
		}
		if stepped {
			step = number(every)
		}
		if low < lowest || high > highest || low > high || step < 1 {
			tb.Fatalf("field %q was accepted, but %q is no part of it", field, part)
		}
		for v := low; v <= high; v += step {
			values[v] = true
		}
	}
	return values
}

// matches reports whether the line names the time on the face of a local clock, given as UTC.
func (c cronScan) matches(face time.Time) bool {
	second := face.Unix()
	if !c.minute[second/60%60] || !c.hour[second/3600%24] || !c.month[face.Month()] {
		return false
	}
	day, weekday := c.day[face.Day()], c.weekday[face.Weekday()]
	if c.eitherDay {
		return day || weekday
	}
	return day && weekday
}

// reading is what a local clock shows at an instant.
type reading struct{ at, face time.Time }

// readings are those of the instants from one to another, and of the day before, which tells what has been shown
// already. Both instants must be whole steps.
func readings(location *time.Location, from, to time.Time, step time.Duration) []reading {
	begin := from.Add(-26 * time.Hour)
	all := make([]reading, 0, to.Sub(begin)/step+1)
	for at := begin; !at.After(to); at = at.Add(step) {
		local := at.In(location)
		year, month, day := local.Date()
		hour, minute, second := local.Clock()
		all = append(all, reading{at, time.Date(year, month, day, hour, minute, second, 0, time.UTC)})
	}
	return all
}

// ticks are the instants after from. A line with a wildcard ticks whenever the clock shows a time that matches. A line
// of fixed times ticks when the clock shows one, or has passed one, for the first time.
func (c cronScan) ticks(clock []reading, from time.Time, step time.Duration) []time.Time {
	var ticks []time.Time
	shown := clock[0].face
	for _, now := range clock[1:] {
		tick := false
		if c.fixed {
			for ; shown.Before(now.face) && !tick; shown = shown.Add(step) {
				tick = c.matches(shown.Add(step))
			}
			if shown.Before(now.face) {
				shown = now.face
			}
		} else {
			tick = c.matches(now.face)
		}
		if tick && now.at.After(from) {
			ticks = append(ticks, now.at)
		}
	}
	return ticks
}
