package collector

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"
)

// Collector pulls tasks and runs a Handler on each. Make one with New.
type Collector struct {
	cfg     Config
	session string
	current atomic.Pointer[run] // nil before the first Run
	running atomic.Bool
}

// New checks the configuration and makes a Collector with a new session. It connects to nothing; Run does.
func New(cfg Config) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("collector config: %w", err)
	}
	session, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("make session: %w", err)
	}
	return &Collector{cfg: cfg.withDefaults(), session: session.String()}, nil
}

// Session is the UUID by which dispatchers tell this Collector from an earlier one with the same ID.
func (c *Collector) Session() string { return c.session }

// Run works until ctx ends, then drains and returns nil, or an error that wraps ErrUnclean when something had to be left
// behind. It returns before that, having drained too, when going on is of no use: ErrReplaced when a newer session took
// the ID, or the dispatcher's error when it refuses this collector for good. That no dispatcher can be reached is no
// such reason: Run goes on trying.
func (c *Collector) Run(ctx context.Context, handler Handler) error {
	if handler == nil {
		return errors.New("run collector: no handler")
	}
	if !c.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer c.running.Store(false)
	r, err := newRun(ctx, c.cfg, c.session, handler)
	if err != nil {
		return err
	}
	c.current.Store(r)
	return errors.Join(r.work(), r.close()) //nolint:contextcheck // a run has contexts of its own, made from ctx
}
