package engine

import "time"

// Observer is told of what the loops of a [Dispatcher] do and no caller learns,
// for metrics. Its methods are called concurrently and must not block.
type Observer interface {
	// Claimed tells of one claim: how many fetches it was made for, how many
	// tasks it gave, how long the store took, and its error.
	Claimed(fetches, granted int, took time.Duration, err error)
	// GaveBack tells of tasks that were granted to a caller who had gone.
	GaveBack(tasks int)
	// Requeued tells that a lease that had run out was ended, lag after its
	// deadline (P5).
	Requeued(lag time.Duration)
	// Keeping tells whether this dispatcher is the keeper from now on.
	Keeping(leads bool)
}

// noObserver is the default.
type noObserver struct{}

// Claimed does nothing, as the others.
func (noObserver) Claimed(int, int, time.Duration, error) {}

// GaveBack does nothing.
func (noObserver) GaveBack(int) {}

// Requeued does nothing.
func (noObserver) Requeued(time.Duration) {}

// Keeping does nothing.
func (noObserver) Keeping(bool) {}
