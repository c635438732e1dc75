package engine

import "time"

// Observer gets the events of the loops of a [Dispatcher], for metrics. Its methods are called concurrently and must
// not block.
type Observer interface {
	// Claimed reports one claim: its fetches, the tasks granted, the time in the store, and its error.
	Claimed(fetches, granted int, took time.Duration, err error)
	// GaveBack reports tasks that were granted to a caller that was gone.
	GaveBack(tasks int)
	// Requeued reports the end of an expired lease, lag after its deadline (P5).
	Requeued(lag time.Duration)
}

// noObserver is the default.
type noObserver struct{}

// Claimed does nothing, as the others.
func (noObserver) Claimed(int, int, time.Duration, error) {}

// GaveBack does nothing.
func (noObserver) GaveBack(int) {}

// Requeued does nothing.
func (noObserver) Requeued(time.Duration) {}
