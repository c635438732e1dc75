package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// payloadBytes is the size of a task's payload, which is the task's number.
	payloadBytes = 200
	// limit is when one measurement has failed.
	limit = 10 * time.Minute
	// longLease is long enough that no task is handed out again while it is worked on.
	longLease = 2 * time.Minute
)

// producersOf is how many calls at once submit tasks, as many as Waggle's with a batch.
func producersOf(batch int) int {
	if batch == 1 {
		return producers
	}
	return 16
}

// worker is a running system. Tasks wait in it, and handlers that do nothing work on them.
type worker interface {
	// submit submits n tasks, and returns when all of them were answered.
	submit(ctx context.Context, n int) error
	// work fetches and reports n tasks, and returns how long that took without what came before and after.
	work(ctx context.Context, n int) (time.Duration, error)
	// check fails unless each submitted task was handed out once and reported, and none is left.
	check(ctx context.Context) error
}

// lives measures the phases.
func lives(ctx context.Context, tasks int, w worker) (r rate, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	perSecond := func(took time.Duration) float64 { return float64(tasks) / took.Seconds() }
	began := time.Now()
	if err := w.submit(ctx, tasks); err != nil {
		return r, err
	}
	r[0] = perSecond(time.Since(began))
	took, err := w.work(ctx, tasks)
	if err != nil {
		return r, err
	}
	r[1] = perSecond(took)
	if err := w.submit(ctx, tasks); err != nil { // what waits
		return r, err
	}
	var submitted, worked time.Duration
	both, bothCtx := errgroup.WithContext(ctx)
	both.Go(func() error {
		began := time.Now()
		err := w.submit(bothCtx, tasks)
		submitted = time.Since(began)
		return err
	})
	both.Go(func() (err error) {
		worked, err = w.work(bothCtx, tasks)
		return err
	})
	if err := both.Wait(); err != nil {
		return r, err
	}
	r[2] = perSecond(max(submitted, worked))
	if _, err := w.work(ctx, tasks); err != nil {
		return r, err
	}
	return r, w.check(ctx)
}

// ledger checks that a peer hands out each task once, and counts what was reported.
type ledger struct {
	mu       sync.Mutex // guards what follows
	given    []bool     // by a submitted task's number: it was handed out
	reported int
	target   int           // how many reported tasks close reached
	reached  chan struct{} // nil: nobody waits
	fault    error         // the first one
}

// add returns the number of the first of n new tasks.
func (l *ledger) add(n int) (first int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = len(l.given)
	l.given = append(l.given, make([]bool, n)...)
	return first
}

// payload is that of the task with a number.
func payload(number int) []byte { return fmt.Appendf(nil, "%0*d", payloadBytes, number) }

// receive notes that a task was handed out. check returns what was wrong with it, so that handlers need not.
func (l *ledger) receive(payload []byte) {
	number, err := strconv.Atoi(string(payload))
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.fault != nil:
	case err != nil || len(payload) != payloadBytes || number >= len(l.given):
		l.fault = fmt.Errorf("task %q was never submitted", payload)
	case l.given[number]:
		l.fault = fmt.Errorf("task %d was handed out twice", number)
	default:
		l.given[number] = true
	}
}

// report counts reported tasks.
func (l *ledger) report(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reported += n
	l.signal()
}

// await returns a channel that is closed once n more tasks were reported than those awaited before.
func (l *ledger) await(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target += n
	l.reached = make(chan struct{})
	reached := l.reached
	l.signal()
	return reached
}

// signal closes reached when it is time. The caller holds mu.
func (l *ledger) signal() {
	if l.reached != nil && l.reported >= l.target {
		close(l.reached)
		l.reached = nil
	}
}

// check fails unless each task was handed out once and reported.
func (l *ledger) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault == nil && l.reported != len(l.given) {
		return fmt.Errorf("%d tasks of %d were reported", l.reported, len(l.given))
	}
	return l.fault // none was handed out twice and all were reported, so each was handed out
}
