package engine

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Observer gets the events of the loops of a [Dispatcher], for metrics. Its methods are called concurrently and must
// not block.
type Observer interface {
	// Claimed reports one claim: its fetches, the tasks granted, the time in the store, and its error.
	Claimed(fetches, granted int, took time.Duration, err error)
	// GaveBack reports tasks that were granted to a caller that was gone.
	GaveBack(tasks int)
	// Granted reports what a claim of a pool granted to its fetches, at that instant of the store's clock.
	Granted(pool string, now time.Time, grants [][]dispatch.Grant)
	// Requeued reports the end of an expired lease, lag after its deadline (P5).
	Requeued(lag time.Duration)
	// ClockStepped reports a step of the store's clock, forward or back.
	ClockStepped(by time.Duration)
	// Ended reports how leases ended, by reports or because they ran out. It must not keep them.
	Ended(ends []End)
}

// End is how a lease ended.
type End struct {
	Pool, Source string
	// Result is ResultSucceeded, ResultFailed, ResultReleased or ResultExpired, which stands for all leases that ended without a report.
	Result dispatch.Result
	Reason dispatch.FailureReason // of ResultFailed
	// Settled: the task is over, or its cycle was a success.
	Settled bool
	Bytes   int64 // of the page; 0: not reported
	// FetchDuration of the page; 0: not reported.
	FetchDuration time.Duration
}

// noObserver is the default.
type noObserver struct{}

// Claimed does nothing, as the others.
func (noObserver) Claimed(int, int, time.Duration, error) {}

// GaveBack does nothing.
func (noObserver) GaveBack(int) {}

// Granted does nothing.
func (noObserver) Granted(string, time.Time, [][]dispatch.Grant) {}

// ClockStepped does nothing.
func (noObserver) ClockStepped(time.Duration) {}

// Ended does nothing.
func (noObserver) Ended([]End) {}

// Requeued does nothing.
func (noObserver) Requeued(time.Duration) {}
