package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// submitBytesAtWork is how many bytes of requests of large submits are at work at once:
	// some ten thousand tasks, or one request as large as may be. Fewer leave the nodes of a
	// Cluster without work.
	submitBytesAtWork = 4 << 20
	// smallRequest is how large a request may be that waits for no other: who submits few
	// tasks does not come behind those who submit thousands.
	smallRequest = 32 << 10
	// longestAtWork is how long a request is taken to be at work: behind those that a store
	// does not answer, others may come through.
	longestAtWork = 2 * time.Second
	// lineMargin is how long ahead of its caller's deadline a call leaves the line, so that
	// its refusal is there in time; at most a tenth of what is left.
	lineMargin = 500 * time.Millisecond
)

// submitLine keeps large submits from being decoded and prepared all at once: with two
// hundred calls of a thousand tasks a heartbeat waited half a second for its turn, and
// they took 400 MB. Those beyond submitBytesAtWork wait as the bytes that they came in as,
// in the order in which they came in. There are no more of them than may run at once.
// Only SubmitTasks is in the line: of collectors the leases run (inHand bounds those), and
// operators are few.
type submitLine struct {
	limits *limits
	work   *semaphore.Weighted
	calls  atomic.Int64 // at work or in line
}

func newSubmitLine(l *limits) *submitLine {
	return &submitLine{limits: l, work: semaphore.NewWeighted(submitBytesAtWork)}
}

// enter waits until a request of so many bytes may be decoded, or refuses it: nothing of
// it was done then. One as large as all that may be at work is at work alone. A small one
// is in no line, and has nothing to leave.
func (l *submitLine) enter(ctx context.Context, method string, bytes int) (leave func(), err error) {
	if bytes <= smallRequest {
		return nil, nil
	}
	most := l.limits.most[classSubmit]
	if n := l.calls.Add(1); n > int64(most) {
		l.calls.Add(-1)
		return nil, l.limits.refuse(classSubmit, method, most)
	}
	waiting, stop := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		waiting, stop = context.WithDeadline(ctx, deadline.Add(-min(lineMargin, time.Until(deadline)/10)))
	}
	defer stop()
	weight := int64(min(bytes, submitBytesAtWork))
	if err := l.work.Acquire(waiting, weight); err != nil {
		l.calls.Add(-1)
		if ctx.Err() == nil {
			return nil, l.limits.refuseBytes(classSubmit, method,
				"other large submits took all the time that the call's deadline left: give it more, or submit fewer at once", submitBytesAtWork, bytes)
		}
		return nil, fmt.Errorf("wait for other submits: %w", err)
	}
	release := sync.OnceFunc(func() { l.work.Release(weight) })
	timer := time.AfterFunc(longestAtWork, release)
	return func() {
		timer.Stop()
		release()
		l.calls.Add(-1)
	}, nil
}
