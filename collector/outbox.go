package collector

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// maxReports is the most reports of one call, maxReportBytes the most bytes of them.
	maxReports     = 1000
	maxReportBytes = 2 << 20
)

// report is the outcome of one lease, kept until a dispatcher has answered it.
type report struct {
	lease   *lease
	message *wagglev1.TaskReport
	bytes   int

	// until is when the report of a lapsed lease is dropped; zero: the report is repeated until it is answered.
	until time.Time

	// direct says that the report loop sends it, even if fetches carry reports.
	direct bool

	// refused says that a dispatcher refused it before, and it was sent as a failure since.
	refused bool

	// notBefore is when it may be sent again, delay how that grows.
	notBefore time.Time
	delay     retryDelay
}

// outbox holds the reports that no dispatcher has answered. One that is taken stays counted until it is done or put back.
type outbox struct {
	wake chan struct{} // capacity 1: there may be something to send

	mu      sync.Mutex // guards everything below
	waiting []*report
	taken   int
	owed    int           // of both, those that a shutdown waits for
	awaited bool          // a fetch is to go out soon that carries reports: the report loop leaves them to it
	empty   chan struct{} // nil until a shutdown waits for it; closed when nothing is owed
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func (o *outbox) add(r *report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.bytes = proto.Size(r.message)
	o.waiting = append(o.waiting, r)
	if r.until.IsZero() {
		o.owed++
	}
	signal(o.wake)
}

// size counts the reports that no dispatcher has answered.
func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting) + o.taken
}

// awaitFetch sets whether a fetch goes out soon, or once a report frees a slot, and is not parked: then it carries the reports.
func (o *outbox) awaitFetch(soon bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.awaited = soon
	if !soon && len(o.waiting) > 0 {
		signal(o.wake)
	}
}

// carry takes what a fetch that is about to go out carries.
func (o *outbox) carry() []*report {
	return o.take(func(r *report, now time.Time) bool {
		return !r.direct && !r.notBefore.After(now)
	})
}

// due takes what the report loop should send now; next is when there will be more, zero when nothing waits for a time.
func (o *outbox) due() (batch []*report, next time.Time) {
	batch = o.take(func(r *report, now time.Time) bool {
		if o.awaited && !r.direct {
			return false
		}
		if r.notBefore.After(now) {
			if next.IsZero() || r.notBefore.Before(next) {
				next = r.notBefore
			}
			return false
		}
		return true
	})
	return batch, next
}

// late takes the reports to drop at a time.
func (o *outbox) late(at time.Time) []*report {
	return o.take(func(r *report, _ time.Time) bool { return !r.until.IsZero() && !r.until.After(at) })
}

// take takes the reports that fit one call, the oldest first.
func (o *outbox) take(fits func(*report, time.Time) bool) []*report {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, bytes := time.Now(), 0
	var batch, rest []*report
	for _, r := range o.waiting {
		full := len(batch) >= maxReports || (len(batch) > 0 && bytes+r.bytes > maxReportBytes)
		if !full && fits(r, now) {
			batch = append(batch, r)
			bytes += r.bytes
			continue
		}
		rest = append(rest, r)
	}
	o.waiting = rest
	o.taken += len(batch)
	return batch
}

// putBack returns what was taken and not answered.
func (o *outbox) putBack(reports []*report) {
	if len(reports) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken -= len(reports)
	o.waiting = slices.Concat(reports, o.waiting)
	signal(o.wake)
}

// sendDirectly puts reports back for the report loop.
func (o *outbox) sendDirectly(reports []*report) {
	for _, r := range reports {
		r.direct = true
	}
	o.putBack(reports)
}

// done counts a report that was taken and needs no more sending.
func (o *outbox) done(r *report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken--
	if !r.until.IsZero() {
		return
	}
	if o.owed--; o.owed == 0 && o.empty != nil {
		close(o.empty)
		o.empty = nil
	}
}

// whenEmpty is closed when only reports of lapsed leases are left: no shutdown waits for those. It is called once, when no more
// reports are added.
func (o *outbox) whenEmpty() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	empty := make(chan struct{})
	if o.owed == 0 {
		close(empty)
	} else {
		o.empty = empty
	}
	return empty
}

// messages are the reports as they travel.
func messages(reports []*report) []*wagglev1.TaskReport {
	list := make([]*wagglev1.TaskReport, 0, len(reports))
	for _, r := range reports {
		list = append(list, r.message)
	}
	return list
}
