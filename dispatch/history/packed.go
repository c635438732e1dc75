package history

import (
	"encoding/binary"
	"time"
)

// The packed form. Cycles: the instant before the first in seconds, and of each cycle its flags, the seconds since the one before, and the fields
// that the flags name. Days: the number of the day before the first, and of each day the days since the one before, its flags and the
// fields that these name. All are varints; what may fall, such as the clock, is zigzag.

// The flags of a cycle. The lowest three bits are the document.
const (
	cycleFailed = 1 << (iota + 3)
	cycleUnchanged
	cycleBrokenOff
	cycleCounted // it has entries
	cycleFiltered
	cycleStatus // another one than 200
)

// The flags of a day.
const (
	dayCycles = 1 << iota
	dayPages
	dayNew
	dayBytes // kibibytes
	dayFailed
)

// reader reads varints. After an error all that follows is 0.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.rest, r.bad = nil, true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.rest, r.bad = nil, true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) numberIf(there bool) int64 {
	if !there {
		return 0
	}
	return int64(r.number()) //nolint:gosec // it was an int64
}

func appendNumber(out []byte, v int64) []byte {
	return binary.AppendUvarint(out, uint64(max(v, 0))) //nolint:gosec // it is not negative
}

// cycle reads a cycle; seconds is the end of the one before.
func (r *reader) cycle(seconds int64) (Cycle, int64) {
	flags := r.number()
	seconds += r.signed()
	c := Cycle{Ended: time.Unix(seconds, 0).UTC(), Failed: flags&cycleFailed != 0}
	c.Document, c.Unchanged, c.BrokenOff = Document(flags&7), flags&cycleUnchanged != 0, flags&cycleBrokenOff != 0
	c.Duration = time.Duration(r.number()) * 10 * time.Millisecond //nolint:gosec // it was a duration
	if c.HTTPStatus = 200; flags&cycleStatus != 0 {
		c.HTTPStatus = int(r.number()) //nolint:gosec // it was an int
	}
	if c.Failed {
		c.Reason = int32(r.number()) //nolint:gosec // it was an int32
	} else {
		c.Bytes = r.numberIf(true)
	}
	counted := flags&cycleCounted != 0
	c.Found, c.New = r.numberIf(counted), r.numberIf(counted)
	if flags&cycleFiltered != 0 {
		which := r.number()
		for i := range c.Filtered {
			c.Filtered[i] = r.numberIf(which>>i&1 != 0)
		}
	}
	return c, seconds
}

func appendCycle(out []byte, c *Cycle, before int64) []byte {
	flags := uint64(c.Document & 7)
	set := func(flag uint64, on bool) bool {
		if on {
			flags |= flag
		}
		return on
	}
	which := uint64(0)
	for i, n := range c.Filtered {
		if n > 0 {
			which |= 1 << i
		}
	}
	set(cycleFailed, c.Failed)
	set(cycleUnchanged, c.Unchanged)
	set(cycleBrokenOff, c.BrokenOff)
	set(cycleFiltered, which != 0)
	status, counted := set(cycleStatus, c.HTTPStatus != 200), set(cycleCounted, c.Found+c.New > 0)
	out = binary.AppendUvarint(out, flags)
	out = binary.AppendVarint(out, c.Ended.Unix()-before)
	out = appendNumber(out, int64((c.Duration+5*time.Millisecond)/(10*time.Millisecond)))
	if status {
		out = appendNumber(out, int64(c.HTTPStatus))
	}
	if c.Failed {
		out = appendNumber(out, int64(c.Reason))
	} else {
		out = appendNumber(out, c.Bytes)
	}
	if counted {
		out = appendNumber(appendNumber(out, c.Found), c.New)
	}
	if which != 0 {
		out = binary.AppendUvarint(out, which)
		for _, n := range c.Filtered {
			if n > 0 {
				out = appendNumber(out, n)
			}
		}
	}
	return out
}

// AddCycle gives packed cycles with one more, and without the oldest if there are too many. What is damaged is dropped.
func AddCycle(packed []byte, c *Cycle) []byte {
	return add(packed, c.Ended.Unix()-1, MaxCycles, func(r *reader, at int64) int64 {
		_, at = r.cycle(at)
		return at
	}, func(out []byte, last int64) []byte { return appendCycle(out, c, last) })
}

// add gives a packed list with one more: skip skips a member, and put appends the new one.
func add(packed []byte, first int64, most int, skip func(r *reader, at int64) int64, put func(out []byte, last int64) []byte) []byte {
	r := reader{rest: packed}
	begin := r.signed()
	n, last, members := 0, begin, r.rest
	second, secondBegin := members, begin
	for ; len(r.rest) > 0; n++ {
		if last = skip(&r, last); n == 0 {
			second, secondBegin = r.rest, last
		}
	}
	switch {
	case n == 0 || r.bad:
		return put(binary.AppendVarint(make([]byte, 0, 32), first), first)
	case n >= most:
		members, begin = second, secondBegin
	}
	out := binary.AppendVarint(make([]byte, 0, len(packed)+64), begin)
	return put(append(out, members...), last)
}

// PackCycles packs cycles, the oldest first, at most [MaxCycles].
func PackCycles(cycles []Cycle) (packed []byte) {
	for i := range cycles {
		c, last := &cycles[i], cycles[max(i-1, 0)].Ended.Unix()
		if i == 0 {
			last = c.Ended.Unix() - 1
			packed = binary.AppendVarint(packed, last)
		}
		packed = appendCycle(packed, c, last)
	}
	return packed
}

// PackDays packs days, the oldest first, at most [MaxDays] less the one that goes on.
func PackDays(days []Day) (packed []byte) {
	for i := range days {
		d, last := &days[i], numberOf(&days[max(i-1, 0)])
		if i == 0 {
			last = numberOf(d) - 1
			packed = binary.AppendVarint(packed, last)
		}
		packed = appendDay(packed, d, last)
	}
	return packed
}

// Cycles reads packed cycles; of what is damaged it gives what stands before that.
func Cycles(packed []byte) (cycles []Cycle) {
	if len(packed) == 0 {
		return nil
	}
	r := reader{rest: packed}
	for at := r.signed(); len(r.rest) > 0; {
		var c Cycle
		if c, at = r.cycle(at); r.bad {
			break
		}
		cycles = append(cycles, c)
	}
	return cycles
}

// day reads a day; number is that of the one before.
func (r *reader) day(number int64) (Day, int64) {
	number += r.signed()
	flags := r.number()
	d := Day{Date: time.Unix(number*24*3600, 0).UTC()}
	d.Cycles, d.Pages = r.numberIf(flags&dayCycles != 0), r.numberIf(flags&dayPages != 0)
	d.New, d.Bytes = r.numberIf(flags&dayNew != 0), r.numberIf(flags&dayBytes != 0)*kib
	for n := r.numberIf(flags&dayFailed != 0); n > 0 && !r.bad; n-- {
		d.Failed = append(d.Failed, Failures{int32(r.number()), r.numberIf(true)}) //nolint:gosec // it was an int32
	}
	return d, number
}

func appendDay(out []byte, d *Day, before int64) []byte {
	flags, counts := uint64(0), [...]int64{d.Cycles, d.Pages, d.New, d.Bytes / kib, int64(len(d.Failed))}
	for i, n := range counts {
		if n > 0 {
			flags |= 1 << i
		}
	}
	out = binary.AppendUvarint(binary.AppendVarint(out, numberOf(d)-before), flags)
	for _, n := range counts {
		if n > 0 {
			out = appendNumber(out, n)
		}
	}
	for _, f := range d.Failed {
		out = appendNumber(appendNumber(out, int64(f.Reason)), f.Count)
	}
	return out
}

func numberOf(d *Day) int64 { return d.Date.Unix() / (24 * 3600) }

// AddDay gives packed days with one more, and without the oldest if there are too many: the day that goes on is not among them. What is damaged is dropped.
func AddDay(packed []byte, d *Day) []byte {
	return add(packed, numberOf(d)-1, MaxDays-1, func(r *reader, at int64) int64 {
		_, at = r.day(at)
		return at
	}, func(out []byte, last int64) []byte { return appendDay(out, d, last) })
}

// Days reads packed days; of what is damaged it gives what stands before that.
func Days(packed []byte) (days []Day) {
	if len(packed) == 0 {
		return nil
	}
	r := reader{rest: packed}
	for at := r.signed(); len(r.rest) > 0; {
		var d Day
		if d, at = r.day(at); r.bad {
			break
		}
		days = append(days, d)
	}
	return days
}
