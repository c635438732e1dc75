package engine

import (
	"context"
	"sync"
	"time"
)

const (
	// clockEach is how often the store's clock is compared with the time that has passed.
	clockEach = 5 * time.Second
	// clockStep is a difference that is a step: a store makes up for smaller ones slowly.
	clockStep = time.Second
)

// clockWatch finds steps of the store's clock while this dispatcher is the owner.
type clockWatch struct {
	mu     sync.Mutex // guards all fields
	read   time.Time  // when, with a reading of the monotonic clock; zero: not yet
	was    time.Time  // the store's clock then
	step   time.Duration
	stepAt time.Time
}

// watchClock compares the store's clock with the time that has passed since it was read last.
func (d *Dispatcher) watchClock(ctx context.Context) (bool, error) {
	asked := time.Now()
	is, err := d.store.Now(ctx)
	if err != nil {
		return false, err
	}
	read := time.Now()
	w := &d.clock
	w.mu.Lock()
	defer w.mu.Unlock()
	if slow := read.Sub(asked); slow > clockStep/2 {
		return false, nil // it says too little of when it was read
	}
	step := is.Sub(w.was) - read.Sub(w.read)
	if stepped := !w.read.IsZero() && step.Abs() > clockStep; stepped {
		w.step, w.stepAt = step, read
		d.cfg.Observer.ClockStepped(step)
	}
	w.read, w.was = read, is
	return false, nil
}

// ClockStep is the last step of the store's clock that this dispatcher has seen, and how long ago that was; 0: there was none.
func (d *Dispatcher) ClockStep() (by, ago time.Duration) {
	d.clock.mu.Lock()
	defer d.clock.mu.Unlock()
	if d.clock.step == 0 {
		return 0, 0
	}
	return d.clock.step, time.Since(d.clock.stepAt)
}
