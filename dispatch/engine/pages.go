package engine

import (
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	// pageSlot times pageSlots is how long pages count: long enough for a share of them, and a trouble that is over clears soon.
	pageSlot, pageSlots = 30 * time.Second, 6
	// leastPages in that time make a share, and failedShare is one that something is wrong with.
	leastPages, failedShare = 20, 0.5
)

// pages count how pages ended lately. Failures for the collector's own reasons are none of a page.
type pages struct {
	mu    sync.Mutex // guards all fields
	slots [pageSlots]pageCounts
	since time.Time // when the share was first seen to be too high; zero: it is not
}

// pageCounts are those of a slot.
type pageCounts struct {
	slot     int64 // since 1970
	all      int
	failures map[dispatch.FailureReason]int // at most maxReasons; others count as OTHER
}

// FailingPages are pages that failed lately.
type FailingPages struct {
	All, Failed int
	Reasons     map[dispatch.FailureReason]int
	Since       time.Time     // when half of them had failed
	In          time.Duration // the time that counts
}

func (p *pages) note(ends []End, now time.Time) {
	slot := now.UnixNano() / int64(pageSlot)
	p.mu.Lock()
	defer p.mu.Unlock()
	at := &p.slots[slot%pageSlots]
	if at.slot != slot {
		*at = pageCounts{slot: slot}
	}
	for i := range ends {
		switch end := &ends[i]; {
		case end.Result == dispatch.ResultSucceeded:
			at.all++
		case end.Result == dispatch.ResultFailed && end.Reason.Scope() != dispatch.ScopeCollector:
			at.all++
			at.fail(end.Reason)
		}
	}
}

func (at *pageCounts) fail(reason dispatch.FailureReason) {
	if at.failures == nil {
		at.failures = make(map[dispatch.FailureReason]int, 1)
	}
	if _, known := at.failures[reason]; !known && len(at.failures) >= maxReasons {
		reason = dispatch.ReasonOther
	}
	at.failures[reason]++
}

// FailingPages are the pages of the last minutes, if half of them failed; nil: fewer did, or there were too few.
func (d *Dispatcher) FailingPages() *FailingPages {
	p := d.pages
	now := time.Now()
	oldest := now.UnixNano()/int64(pageSlot) - pageSlots
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := &FailingPages{Reasons: make(map[dispatch.FailureReason]int), In: pageSlots * pageSlot}
	for i := range p.slots {
		if at := &p.slots[i]; at.slot > oldest {
			sum.All += at.all
			for reason, n := range at.failures {
				sum.Failed += n
				sum.Reasons[reason] += n
			}
		}
	}
	if sum.All < leastPages || float64(sum.Failed) < failedShare*float64(sum.All) {
		p.since = time.Time{}
		return nil
	}
	if p.since.IsZero() {
		p.since = now
	}
	sum.Since = p.since
	return sum
}
