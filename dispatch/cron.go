package dispatch

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cronLine is a cron line in its time zone. Of the kept libraries, none finds each tick around clock changes, and none
// refuses all that crontab(5) does not define.
//
// Days in UTC all have 24 hours, so the calendar is searched in UTC: a face is what the local clock shows, written as
// UTC. The face found is then turned into an instant, by the offsets of the zone around it.
type cronLine struct {
	minute, hour, day, month, weekday uint64 // a bit for each value
	// wild: minute or hour contains a *, so the line ticks whenever the clock shows a time that matches. Each time of
	// another line is due once.
	wild bool
	// eitherDay: day of month and day of week are both without a *, and one that matches is enough.
	eitherDay bool
	location  *time.Location
}

// cronHorizon is how far ahead a tick is looked for. The 29th of February on one day of the week comes after at most 40
// years.
const cronHorizon = 41 * 366 * 24 * time.Hour

// cronDescriptors are the names of lines.
var cronDescriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// cronField is one of the five fields, with the names of its values from the lowest on.
type cronField struct {
	name      string
	low, high uint64
	names     []string
}

var cronFields = [...]cronField{
	{name: "minute", high: 59},
	{name: "hour", high: 23},
	{name: "day of month", low: 1, high: 31},
	{name: "month", low: 1, high: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", high: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun"}},
}

// parseCronLine reads a line. The error completes "it ...".
func parseCronLine(text string, location *time.Location) (cronLine, error) {
	fields := strings.Fields(text)
	if len(fields) == 1 && strings.HasPrefix(fields[0], "@") {
		line, ok := cronDescriptors[fields[0]]
		if !ok {
			return cronLine{}, fmt.Errorf("must not be %.40q, which is no descriptor such as @daily", fields[0])
		}
		fields = strings.Fields(line)
	}
	if len(fields) != len(cronFields) {
		return cronLine{}, fmt.Errorf("must have five fields or be a descriptor such as @daily, but has %d fields", len(fields))
	}
	var sets [len(cronFields)]uint64
	var wild [len(cronFields)]bool
	for i, field := range cronFields {
		set, err := field.parse(fields[i])
		if err != nil {
			return cronLine{}, fmt.Errorf("has the %s %.40q, %w", field.name, fields[i], err)
		}
		sets[i], wild[i] = set, strings.Contains(fields[i], "*")
	}
	line := cronLine{
		minute: sets[0], hour: sets[1], day: sets[2], month: sets[3], weekday: sets[4] | sets[4]>>7, // 7 is Sunday, as 0
		wild:      wild[0] || wild[1],
		eitherDay: !wild[2] && !wild[4],
		location:  location,
	}
	if line.Next(time.Unix(0, 0)).IsZero() {
		return cronLine{}, errors.New("must name a date that comes")
	}
	return line, nil
}

// parse reads a list of values, ranges and steps as a set of bits.
func (f cronField) parse(text string) (uint64, error) {
	var set uint64
	for part := range strings.SplitSeq(text, ",") {
		low, high, step, err := f.span(part)
		if err != nil {
			return 0, err
		}
		for v := low; v <= high; v += step {
			set |= 1 << v
		}
	}
	return set, nil
}

// span reads one part of a list: *, a value, or a range, and perhaps a step. A value with a step begins a range up to
// the highest.
func (f cronField) span(part string) (low, high, step uint64, err error) {
	values, every, stepped := strings.Cut(part, "/")
	from, to, ranged := strings.Cut(values, "-")
	low, high, step = f.low, f.high, 1
	if values != "*" {
		if low, err = f.value(from, 0); err != nil {
			return 0, 0, 0, err
		}
		switch {
		case ranged:
			if high, err = f.value(to, low); err != nil {
				return 0, 0, 0, err
			}
		case !stepped:
			high = low
		}
	}
	if stepped {
		if step, err = strconv.ParseUint(every, 10, 8); err != nil || step < 1 || step > f.high-f.low {
			return 0, 0, 0, fmt.Errorf("whose step %.40q is not 1 to %d", every, f.high-f.low)
		}
	}
	if low > high {
		return 0, 0, 0, fmt.Errorf("whose range %.40q ends before it begins", values)
	}
	return low, high, step, nil
}

// value reads a number or a name. Sunday has two numbers; as the end of a range it is the one that is not before least.
func (f cronField) value(text string, least uint64) (uint64, error) {
	value, err := strconv.ParseUint(text, 10, 8)
	named := false
	for i, name := range f.names {
		if v := f.low + uint64(i); strings.EqualFold(text, name) && (!named || value < least) {
			value, named = v, true
		}
	}
	switch {
	case named || err == nil && value >= f.low && value <= f.high:
		return value, nil
	case text == "":
		return 0, errors.New("where a value is missing")
	case f.names != nil:
		return 0, fmt.Errorf("where %.40q is neither %d to %d nor a name such as %s", text, f.low, f.high, f.names[0])
	default:
		return 0, fmt.Errorf("where %.40q is not %d to %d", text, f.low, f.high)
	}
}

// Next is the first tick after t, or zero if none comes within the horizon.
func (l cronLine) Next(t time.Time) time.Time {
	if l.wild {
		return l.nextShown(t.In(l.location))
	}
	return l.nextPassed(t.In(l.location))
}

// nextShown is the first instant after t at which the clock shows a time that matches. Between two changes of the clock,
// the faces follow each other without a gap.
func (l cronLine) nextShown(t time.Time) time.Time {
	horizon := t.Add(cronHorizon)
	from := face(t).Truncate(time.Minute).Add(time.Minute)
	for t.Before(horizon) {
		change, ok := nextChange(t)
		if !ok || change.After(horizon) {
			change = horizon
		}
		if found, ok := l.match(from, face(t).Add(change.Sub(t))); ok {
			return t.Add(found.Sub(face(t)))
		}
		t = change
		from = wholeMinute(face(t))
	}
	return time.Time{}
}

// nextPassed is the first instant after t at which the clock shows a time that matches, or has skipped it, and showed
// neither it nor a later one before.
func (l cronLine) nextPassed(t time.Time) time.Time {
	from := face(t).Truncate(time.Minute).Add(time.Minute)
	if start, _ := t.ZoneBounds(); !start.IsZero() {
		// If the clock went back, it showed all up to here before.
		if shown := wholeMinute(face(start.Add(-1)).Add(1)); shown.After(from) {
			from = shown
		}
	}
	found, ok := l.match(from, from.Add(cronHorizon))
	if !ok {
		return time.Time{}
	}
	// No offset is as long as a day, so the instant is not earlier.
	if earliest := found.Add(-24 * time.Hour); earliest.After(t) {
		t = earliest.In(l.location)
	}
	for {
		change, ok := nextChange(t)
		if !ok || found.Before(face(t).Add(change.Sub(t))) {
			// Behind a change that skipped it, the face is later already.
			return t.Add(max(found.Sub(face(t)), 0))
		}
		t = change
	}
}

// match is the first face from one to before another that the line names. The first is a whole minute.
func (l cronLine) match(from, until time.Time) (time.Time, bool) {
	year, month, date := from.Date()
	day := time.Date(year, month, date, 0, 0, 0, 0, time.UTC)
	for day.Before(until) {
		if l.month>>day.Month()&1 == 0 {
			day = time.Date(day.Year(), day.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if l.onDay(day) {
			if clock, ok := l.onClock(max(from.Sub(day), 0)); ok {
				found := day.Add(clock)
				return found, found.Before(until)
			}
		}
		day = day.Add(24 * time.Hour)
	}
	return time.Time{}, false
}

func (l cronLine) onDay(day time.Time) bool {
	date, weekday := l.day>>day.Day()&1 == 1, l.weekday>>day.Weekday()&1 == 1
	if l.eitherDay {
		return date || weekday
	}
	return date && weekday
}

// onClock is the first time of a day that matches, not before another.
func (l cronLine) onClock(from time.Duration) (time.Duration, bool) {
	hour, minute := int(from/time.Hour), int(from%time.Hour/time.Minute)
	for ; hour < 24; hour, minute = hour+1, 0 {
		if rest := l.minute >> minute; l.hour>>hour&1 == 1 && rest != 0 {
			return time.Duration(hour)*time.Hour + time.Duration(minute+bits.TrailingZeros64(rest))*time.Minute, true
		}
	}
	return 0, false
}

// nextChange is when the offset of t may change, if it ever does. The offset before and after can be the same.
func nextChange(t time.Time) (time.Time, bool) {
	_, change := t.ZoneBounds()
	if !change.IsZero() && !change.After(t) {
		// Behind the table of a zone, ZoneBounds takes each year to end after 365 days: on the last day of a leap year,
		// its answer is no later than t.
		change = time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).In(t.Location())
	}
	return change, !change.IsZero()
}

// face is what a local clock shows, as UTC.
func face(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// wholeMinute rounds up.
func wholeMinute(t time.Time) time.Time {
	if whole := t.Truncate(time.Minute); whole.Before(t) {
		return whole.Add(time.Minute)
	}
	return t
}
