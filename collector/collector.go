package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

const (
	// healthySilence is how long no dispatcher may answer before Health says so: three idle heartbeats.
	healthySilence = 3 * idleBeat

	// handlerGrace is how long a handler may take to return once its context has ended. One that takes longer is stuck.
	handlerGrace = 5 * time.Second
)

// Collector pulls tasks and runs a Handler on each. Make one with New.
type Collector struct {
	cfg      Config
	security security
	session  string
	current  atomic.Pointer[run] // nil before the first Run
	running  atomic.Bool
	metrics  *metrics
}

// New checks the configuration, reads the files that it names, and makes a Collector with a new session. It connects to
// nothing; Run does.
func New(cfg Config) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("collector config: %w", err)
	}
	cfg = cfg.withDefaults()
	security, err := cfg.security()
	if err != nil {
		return nil, fmt.Errorf("collector config: %w", err)
	}
	c := &Collector{cfg: cfg, security: security, session: uuid.NewString()}
	c.metrics = newMetrics(c)
	return c, nil
}

// Session is the UUID by which dispatchers tell this Collector from an earlier one with the same ID.
func (c *Collector) Session() string { return c.session }

// Run works until ctx ends, then finishes what runs and returns nil, or an error that wraps ErrUnclean when something had to be left
// behind. It returns before that, having finished too, when going on is of no use: ErrReplaced when a newer session took
// the ID, ErrRefused when this collector may not fetch, or the dispatcher's error when it refuses this collector for good. That
// no dispatcher can be reached, or that none accepts the credentials, is no such reason: Run goes on trying.
func (c *Collector) Run(ctx context.Context, handler Handler) error {
	if handler == nil {
		return errors.New("run collector: no handler")
	}
	if !c.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer c.running.Store(false)
	r, err := newRun(ctx, c, handler)
	if err != nil {
		return err
	}
	c.current.Store(r)
	return errors.Join(r.work(), r.close()) //nolint:contextcheck // a run has contexts of its own, made from ctx
}

// work runs the loops until fetching ends, then finishes.
func (r *run) work() error {
	var loops sync.WaitGroup
	loops.Go((&heartbeat{run: r}).loop)
	loops.Go(r.reportLoop)

	r.fetchLoop()
	r.stats.change(func(s *Stats) { s.Stopping = true })
	signal(r.beatNow) // report that this collector stops
	unclean := r.finish()

	r.working.end(ErrStopping)
	r.calling.end(ErrStopping)
	loops.Wait()
	r.dropLate(time.Now().Add(storeGrace)) // all
	r.goodbye()
	return errors.Join(r.stopCause(), unclean)
}

// finish waits for handlers and reports, each for its time.
func (r *run) finish() error {
	handlersDone := make(chan struct{})
	go func() {
		r.handlers.Wait()
		close(handlersDone)
	}()
	if !waitFor(handlersDone, r.working.ctx.Done(), max(r.cfg.StopTimeout, 0)) {
		r.working.end(ErrStopping)
	}
	var unclean error
	if !waitFor(handlersDone, nil, handlerGrace) {
		running, _ := r.leases.running()
		unclean = fmt.Errorf("%w: %d handlers did not return within %s of the end of their context", ErrUnclean, running, handlerGrace)
	}
	if errors.Is(r.stopCause(), ErrReplaced) {
		return unclean // nobody takes our reports any more
	}
	if !waitFor(r.outbox.whenEmpty(), nil, r.cfg.ReportTimeout) {
		return errors.Join(unclean, fmt.Errorf("%w: %d reports not answered within %s", ErrUnclean, r.outbox.size(), r.cfg.ReportTimeout))
	}
	return unclean
}

// Stats says what the current Run does and has done, or the last one. Before the first it is zero but for Slots.
func (c *Collector) Stats() Stats {
	r := c.current.Load()
	if r == nil {
		return Stats{Slots: c.cfg.Slots}
	}
	stats := r.stats.snapshot()
	stats.Slots = c.cfg.Slots
	stats.Running, stats.Stuck = r.leases.running()
	stats.Reports = r.outbox.size()
	return stats
}

// Health returns nil while Run goes on and is of use: a dispatcher has answered within 45 s, and a slot is not stuck.
// It is meant for a readiness probe.
func (c *Collector) Health() error {
	r := c.current.Load()
	if r == nil || !c.running.Load() {
		return errors.New("collector is not running")
	}
	stats := c.Stats()
	if silence := time.Since(cmp.Or(stats.LastAnswer, r.stats.began)); silence > healthySilence {
		return fmt.Errorf("no dispatcher has answered for %s", silence.Round(time.Second))
	}
	if stats.Stuck >= stats.Slots {
		return fmt.Errorf("all %d slots are held by handlers that do not return", stats.Slots)
	}
	return nil
}
