// Package history has what is remembered of the crawls of a source, and its packed form, which a store keeps: a few bytes a cycle and a
// few a day, so that tens of thousands of sources have one. It imports nothing of ours.
package history

import (
	"slices"
	"time"
)

const (
	// MaxCycles is how many cycles of a source are remembered.
	MaxCycles = 50
	// MaxDays is how many days of a source are remembered, with the last one.
	MaxDays = 90
	// EmptyCycles in a row make a source EMPTY.
	EmptyCycles = 2
	// QuietGaps of the usual gaps without news make a source QUIET, if they take QuietLeast: many publish nothing at a weekend.
	QuietGaps = 5
	// QuietLeast is the least silence.
	QuietLeast = 3 * 24 * time.Hour
	// LeastPages are enough to know whether the pages of a source fail, and failedShare of them make it PAGES_FAIL.
	LeastPages  = 10
	failedShare = 0.75
	// PagesDays after the last page none counts any more.
	PagesDays = 7
	// MostBytes is about how large a packed history can become.
	MostBytes = 6 << 10
	// maxFailures are the reasons that a day tells apart.
	maxFailures = 6
	// otherReason is the reason of failures that are not told apart: OTHER.
	otherReason = 99
	kib         = 1 << 10
)

// Document is what a collector has read. The numbers are the API's.
type Document uint8

// The kinds of documents.
const (
	Unknown Document = iota
	Feed
	Sitemap
	Page
	Other
	// Empty: the body had no bytes.
	Empty
)

// Filters is how many reasons there are for an entry that is not followed, with none: see dispatch.FilterReason.
const Filters = 6

// Entries counts what a document leads to, redirects left out.
type Entries struct {
	Found    int64          // entries in all
	New      int64          // of those, tasks that were created
	Filtered [Filters]int64 // of those, not followed, by the reason
}

// Add adds other counts.
func (e *Entries) Add(other Entries) {
	e.Found += other.Found
	e.New += other.New
	for i, n := range other.Filtered {
		e.Filtered[i] += n
	}
}

// Visit is what a report says of a page.
type Visit struct {
	HTTPStatus int           // 0: none
	Bytes      int64         // of the document
	Duration   time.Duration // of the fetch; 0: not known
	Document   Document
	Unchanged  bool // since the last crawl
	BrokenOff  bool // the document was cut off
	Entries
}

// Cycle is how a cycle of a seed ended.
type Cycle struct {
	Ended  time.Time // in whole seconds
	Failed bool      // it was given up
	Reason int32     // of the last failure: a number of dispatch.FailureReason; 0: the lease ran out
	Visit
}

// Failures are failed attempts of a reason.
type Failures struct {
	Reason int32 // as of a Cycle
	Count  int64
}

// Day is what a source did on a day.
type Day struct {
	Date   time.Time  // its begin, UTC
	Cycles int64      // of seeds, given up ones too
	Pages  int64      // tasks that succeeded, seeds too
	New    int64      // entries that became tasks
	Bytes  int64      // rounded up to kibibytes
	Failed []Failures // attempts, by ascending reasons
}

// History is what is remembered of a source, the oldest first. A day on which nothing happened is left out.
type History struct {
	Cycles []Cycle
	Days   []Day
}

// Pages count how pages ended.
type Pages struct {
	Ended  uint32 // all of them
	Failed uint32 // of these
}

// Add adds other counts.
func (p *Pages) Add(other Pages) {
	p.Ended += other.Ended
	p.Failed += other.Failed
}

// Fail reports whether most of them failed.
func (p Pages) Fail() bool {
	return p.Ended >= LeastPages && float64(p.Failed) >= failedShare*float64(p.Ended)
}

// Lately has the last pages of a source: those of as many whole days as it takes for [LeastPages], and those before. It has no pointers.
type Lately struct {
	Day         int32 // of the last page, since 1970
	Now, Before Pages
}

// Count counts a page.
func (l *Lately) Count(day int32, failed bool) {
	if day > l.Day && l.Now.Ended >= LeastPages {
		l.Before, l.Now = l.Now, Pages{}
	}
	l.Day = max(l.Day, day)
	l.Now.Ended++
	if failed {
		l.Now.Failed++
	}
}

// Pages are the last ones, as of a day: at least [LeastPages], if there were so many.
func (l *Lately) Pages(day int32) (last Pages) {
	if day-l.Day >= PagesDays {
		return Pages{}
	}
	if last = l.Now; last.Ended < LeastPages {
		last.Add(l.Before)
	}
	return last
}

// Merge joins what two shards remember of a source.
func (h *History) Merge(other *History) {
	h.Cycles = append(h.Cycles, other.Cycles...)
	slices.SortStableFunc(h.Cycles, func(a, b Cycle) int { return a.Ended.Compare(b.Ended) })
	h.Cycles = h.Cycles[max(len(h.Cycles)-MaxCycles, 0):]
	for i := range other.Days {
		d := &other.Days[i]
		at, found := slices.BinarySearchFunc(h.Days, d.Date, func(d Day, date time.Time) int { return d.Date.Compare(date) })
		if !found {
			h.Days = slices.Insert(h.Days, at, *d)
			continue
		}
		sum := &h.Days[at]
		sum.Cycles, sum.Pages, sum.New, sum.Bytes = sum.Cycles+d.Cycles, sum.Pages+d.Pages, sum.New+d.New, sum.Bytes+d.Bytes
		sum.Failed = slices.Clone(sum.Failed)
		for _, f := range d.Failed {
			sum.Failed = addFailures(sum.Failed, f)
		}
	}
	if n := len(h.Days); n > 0 {
		oldest := h.Days[n-1].Date.AddDate(0, 0, 1-MaxDays)
		h.Days = slices.DeleteFunc(h.Days, func(d Day) bool { return d.Date.Before(oldest) })
	}
}

// addFailures adds failures to those of their reason.
func addFailures(all []Failures, f Failures) []Failures {
	at, found := slices.BinarySearchFunc(all, f.Reason, func(f Failures, reason int32) int { return int(f.Reason - reason) })
	if !found {
		return slices.Insert(all, at, f)
	}
	all[at].Count += f.Count
	return all
}

// Today counts a day that goes on. It has no pointers, and a count costs no memory.
type Today struct {
	Number int32 // of the day since 1970; 0: nothing was counted
	Cycles uint32
	Pages  uint32
	New    uint32
	Bytes  int64
	Failed [maxFailures]struct {
		Reason int32
		Count  uint32
	}
}

// DayOf is the number of the day of an instant in milliseconds.
func DayOf(millis int64) int32 { return int32(millis / (24 * 3600 * 1000)) }

// Fail counts a failed attempt. Of reasons beyond the first few it counts one as other.
func (t *Today) Fail(reason int32) {
	for i := range t.Failed {
		f := &t.Failed[i]
		if f.Count == 0 {
			if f.Reason = reason; i == len(t.Failed)-1 {
				f.Reason = otherReason
			}
		}
		if f.Reason == reason || i == len(t.Failed)-1 {
			f.Count++
			return
		}
	}
}

// Continue counts on from a day, as far as that can be, and reports whether it can: all of it is counted then.
func (t *Today) Continue(d *Day) bool {
	if len(d.Failed) > len(t.Failed) {
		return false
	}
	*t = Today{
		Number: DayOf(d.Date.UnixMilli()), Cycles: uint32(d.Cycles), Pages: uint32(d.Pages), New: uint32(d.New), Bytes: d.Bytes, //nolint:gosec // of a day
	}
	for i, f := range d.Failed {
		t.Failed[i].Reason, t.Failed[i].Count = f.Reason, uint32(f.Count) //nolint:gosec // of a day
	}
	return true
}

// Day is what was counted; false: nothing.
func (t *Today) Day() (Day, bool) {
	d := Day{
		Date: time.Unix(int64(t.Number)*24*3600, 0).UTC(), Cycles: int64(t.Cycles), Pages: int64(t.Pages), New: int64(t.New),
		Bytes: (t.Bytes + kib - 1) / kib * kib,
	}
	for _, f := range t.Failed {
		if f.Count > 0 {
			d.Failed = addFailures(d.Failed, Failures{f.Reason, int64(f.Count)})
		}
	}
	return d, d.Cycles+d.Pages+d.New > 0 || len(d.Failed) > 0
}
