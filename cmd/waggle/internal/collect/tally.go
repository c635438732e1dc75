package collect

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/collector"
)

// tally counts what the collector library does not: bytes, HTTP answers, why tasks failed, and how late they began.
type tally struct {
	mu     sync.Mutex // guards counts
	counts totals
}

// totals are counts since the start.
type totals struct {
	bytes   int64
	answers map[int]int64    // by HTTP status
	reasons map[string]int64 // by why tasks failed

	// begun tasks had a due time; lag is how long after it they began, added up, by the clock of this machine.
	begun int64
	lag   time.Duration
}

func newTally() *tally {
	return &tally{counts: totals{answers: map[int]int64{}, reasons: map[string]int64{}}}
}

// counting counts what a handler does.
func (t *tally) counting(h collector.Handler) collector.Handler {
	return collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
		began := time.Now()
		done, err := h.Handle(ctx, task)
		t.mu.Lock()
		defer t.mu.Unlock()
		if !task.DueTime.IsZero() {
			t.counts.begun++
			t.counts.lag += max(began.Sub(task.DueTime), 0)
		}
		t.counts.outcome(ctx, done, err)
		return done, err
	})
}

// outcome counts how a task ended. A task that was released or interrupted did not end.
func (c *totals) outcome(ctx context.Context, done collector.Succeeded, err error) {
	status := done.HTTPStatus
	if err != nil {
		var released *collector.Released
		if ctx.Err() != nil || errors.As(err, &released) {
			return
		}
		failed := &collector.Failed{Reason: collector.ReasonHandler}
		errors.As(err, &failed)
		c.reasons[human.Word(failed.Reason, "FAILURE_REASON_")]++
		status = failed.HTTPStatus
	} else {
		c.bytes += done.Bytes
	}
	if status > 0 {
		c.answers[status]++
	}
}

// snapshot is a copy of the counts.
func (t *tally) snapshot() totals {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := t.counts
	counts.answers, counts.reasons = maps.Clone(counts.answers), maps.Clone(counts.reasons)
	return counts
}
