package collector

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxMargin is the most by which work stops before its lease's deadline.
const maxMargin = 2 * time.Second

// margin is how long before the deadline of a lease work on it stops: room for clocks that run at different speeds, and
// for the handler to notice.
func margin(duration time.Duration) time.Duration { return min(duration/10, maxMargin) }

// lease is one task held. It is beaten while the handler works and while its report is not answered.
type lease struct {
	task     *Task
	token    string
	duration time.Duration // as granted; beats come at a third of it
	life                   // of the handler's context

	traceparent string // of the handler's span, if that is sampled; set before the handler runs

	mu       sync.Mutex // guards everything below
	deadline time.Time  // the true one, no later than the store's
	stopAt   time.Time  // deadline less the margin
	timer    *time.Timer
	working  bool // the handler has not returned
	stuck    bool // nor had it handlerGrace after the end of its context
	lost     bool // a dispatcher said so
	why      wagglev1.LostReason
	lapsed   bool // stopAt passed while the handler worked
	cursor   []byte
	progress *float32
	noted    int // counts changes of cursor and progress
	acked    int // the count that a dispatcher has
}

// newLease starts the clock of a lease that was granted at or after begin.
func newLease(parent context.Context, task *Task, token string, begin time.Time, duration time.Duration) *lease {
	l := &lease{
		task: task, token: token, duration: duration, life: newLife(parent), working: true,
		deadline: begin.Add(duration), stopAt: begin.Add(duration - margin(duration)),
	}
	task.lease = l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(time.Until(l.stopAt), l.lapse)
	return l
}

// lapse ends the work when the lease was not renewed in time.
func (l *lease) lapse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.working || l.lost || l.lapsed {
		return
	}
	if left := time.Until(l.stopAt); left > 0 {
		l.timer.Reset(left) // renewed while this was under way
		return
	}
	l.lapsed = true
	l.end(fmt.Errorf("%w: not renewed in time", ErrLeaseLost))
}

// renew moves the deadline, never to an earlier time. A lease that has lapsed stays so: its work was stopped.
func (l *lease) renew(sent time.Time, duration time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := sent.Add(duration)
	if l.lost || l.lapsed || !deadline.After(l.deadline) {
		return
	}
	l.deadline, l.stopAt = deadline, deadline.Add(-margin(duration))
	if l.working {
		l.timer.Reset(time.Until(l.stopAt))
	}
}

// lose notes that a dispatcher says the lease is gone.
func (l *lease) lose(reason wagglev1.LostReason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return
	}
	l.lost, l.why = true, reason
	l.timer.Stop()
	l.end(fmt.Errorf("%w: %s", ErrLeaseLost, strings.TrimPrefix(reason.String(), "LOST_REASON_")))
}

// finish notes that the handler has returned. It returns false if the lease was lost or had lapsed: then the result does not count.
func (l *lease) finish() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working = false
	l.timer.Stop()
	if !time.Now().Before(l.stopAt) {
		l.lapsed = true // the process was frozen, and the timer with it
	}
	return !l.lost && !l.lapsed
}

// beaten reports whether heartbeats name the lease.
func (l *lease) beaten() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lost && !l.lapsed
}

// isLost reports whether a dispatcher said that the lease is gone.
func (l *lease) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// lostReason is why a dispatcher said that the lease is gone; unspecified if none did.
func (l *lease) lostReason() wagglev1.LostReason {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// setStuck notes that the handler goes on although its context ended handlerGrace ago. It returns false if it has returned.
func (l *lease) setStuck() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuck = l.working
	return l.stuck
}

// isStuck reports whether the handler is stuck, and has not returned since.
func (l *lease) isStuck() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.working && l.stuck
}

func (l *lease) workDeadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopAt
}

func (l *lease) setCursor(cursor []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cursor == nil {
		cursor = []byte{}
	}
	l.cursor = cursor
	l.noted++
}

func (l *lease) setProgress(progress float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress = new(float32(progress))
	l.noted++
}

// beat is the lease's part of a heartbeat, and the count to acknowledge once it has arrived.
func (l *lease) beat() (*wagglev1.LeaseBeat, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pb := &wagglev1.LeaseBeat{TaskId: l.task.ID, LeaseToken: l.token}
	if l.noted > l.acked {
		pb.Cursor, pb.Progress = l.cursor, l.progress
	}
	return pb, l.noted
}

func (l *lease) acknowledge(noted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = max(l.acked, noted)
}

// hasNews reports whether there is a cursor that no dispatcher has yet.
func (l *lease) hasNews() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cursor != nil && l.noted > l.acked
}
