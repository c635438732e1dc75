package engine

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	// sessionTries bounds how often the end of older sessions is tried where the
	// store is in trouble. What is left then runs out.
	sessionTries = 11
	// maxEndings of older sessions are under way at once. Beyond it one is left to the
	// next poll or beat of its collector, of which the store calls the session new again.
	maxEndings = 10_000
)

// endings end the older sessions of collectors. They go on by themselves: the call
// that begins one may have a deadline, and be repeated while the store does not answer.
type endings struct {
	mu       sync.Mutex // guards underWay
	underWay map[beginning]*ending
}

// beginning is the session of a collector that ends the older ones.
type beginning struct{ collector, session string }

// ending is the end of what a collector's older sessions have.
type ending struct {
	beginning
	tried chan struct{} // closed once that has been tried
}

func newEndings() *endings { return &endings{underWay: make(map[beginning]*ending)} }

// enter is the ending that b begins; fresh, where none was under way; nil, where there
// are too many.
func (e *endings) enter(b beginning) (under *ending, fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if under = e.underWay[b]; under != nil || len(e.underWay) >= maxEndings {
		return under, false
	}
	under = &ending{b, make(chan struct{})}
	e.underWay[b] = under
	return under, true
}

func (e *endings) leave(b beginning) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.underWay, b)
}

// beginSession ends what the older sessions of a collector have: their parked
// fetches, here and at other dispatchers, and their leases. It waits for that, as long
// as its caller can; what is not done then, and where the store was in trouble, is done
// in the background. Its error is why ctx ended. What failed of the older one's own
// means may be mended: the new one is not slowed.
func (d *Dispatcher) beginSession(ctx context.Context, collector, session string) error {
	d.forgetSessions(collector, session)
	d.slowed.note(collector, true)
	under, fresh := d.endings.enter(beginning{collector, session})
	if fresh && !d.pump.inBackground(func(ctx context.Context) { d.runEnding(ctx, under) }) {
		d.endings.leave(under.beginning)
		close(under.tried) // somebody may have come to wait for it
		return nil         // this dispatcher has ended; the next poll or beat comes to another
	}
	if under == nil {
		return nil
	}
	inTime, cancel := aheadOf(ctx)
	defer cancel()
	select {
	case <-under.tried:
	case <-inTime.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// runEnding ends the older sessions, and tries again where the store was in trouble.
func (d *Dispatcher) runEnding(ctx context.Context, e *ending) {
	defer d.endings.leave(e.beginning)
	// A lost hint does no harm: the shards refuse claims of replaced sessions.
	err := d.tryEnding(ctx, e, true)
	close(e.tried)
	if err == nil || ctx.Err() != nil {
		return
	}
	d.log.Warn("ending the older session of a collector is tried again", zap.String("collector", e.collector), zap.Error(err))
	for try := range sessionTries - 1 {
		if !pause(ctx, d.pump.jittered(min(firstBackoff<<try, MaxRetryAfter))) {
			return
		}
		if err = d.tryEnding(ctx, e, false); err == nil {
			return
		}
	}
	d.log.Warn("leases of the older session of a collector are left to run out", zap.String("collector", e.collector), zap.Error(err))
}

// tryEnding ends the older sessions within the time of one call of the store.
func (d *Dispatcher) tryEnding(ctx context.Context, e *ending, tell bool) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var err error
	if tell {
		err = d.store.Publish(ctx, dispatch.Hint{Kind: dispatch.HintSession, ID: e.collector, Session: e.session})
	}
	if failed := d.endSession(ctx, e.collector, e.session); failed != nil {
		err = failed
	}
	return err
}
