package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jellydator/ttlcache/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine/internal/pump"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

// Config of a [Dispatcher].
type Config struct {
	// Store keeps all state; a dispatcher only caches. Required.
	Store dispatch.Store
	// Logger for events that no caller sees. Default: none.
	Logger *zap.Logger
	// ID names this dispatcher among those of one store. Required.
	ID string
	// MaxWaiters is the limit of waiting fetches; beyond it a fetch fails with ErrTooManyWaiters. Each costs some 16
	// KiB, with its share of the connection. Default 100,000.
	MaxWaiters int
	// Fallback is how often a pool that fetches wait for is claimed from in any case, since the store's clock may be stepped (P9).
	// Jitter shortens it by up to a quarter. Default 1 s.
	Fallback time.Duration
	// Rand gives numbers in [0, 1) for jitter. Default math/rand/v2.
	Rand func() float64
	// Observer gets the events of the loops, for metrics. Default: none.
	Observer Observer
}

// Validate fills in defaults and reports the first invalid field.
func (c *Config) Validate() error {
	if c.Store == nil {
		return errors.New("dispatch: Config.Store is required")
	}
	if c.ID == "" {
		return errors.New("dispatch: Config.ID is required")
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	c.MaxWaiters = cmp.Or(c.MaxWaiters, 100_000)
	c.Fallback = cmp.Or(c.Fallback, time.Second)
	switch {
	case c.MaxWaiters < 0:
		return fmt.Errorf("dispatch: Config.MaxWaiters is %d; it must be positive", c.MaxWaiters)
	case c.Fallback < 10*time.Millisecond || c.Fallback > time.Minute:
		return fmt.Errorf("dispatch: Config.Fallback is %v; it must be 10ms to 1m", c.Fallback)
	}
	return nil
}

// Dispatcher hands out tasks of a [dispatch.Store] and takes their reports. Its methods may be called concurrently while
// [Dispatcher.Run] runs.
type Dispatcher struct {
	cfg    Config
	store  dispatch.Store
	log    *zap.Logger
	policy dispatch.Policy

	pump      *pump.Pump
	lanes     *lanes
	sweeper   *sweeper
	catalog   *Catalog
	widened   *ttlcache.Cache[string, widened] // by the uids of sources
	slowed    *slowdown
	outcomes  *outcomes
	activity  *activity
	rates     *rates
	clock     clockWatch
	released  *ttlcache.Cache[dispatch.TaskID, string] // source ids of tasks, see noteReleased
	holds     *holdWatch
	pushes    *pushes
	newcomers *newcomers
	beginning singleflight.Group // of sessions
	endings   atomic.Int64       // of older sessions, under way
	drained   chan struct{}      // closed by Drain
	drain     sync.Once

	// callPrefix, which is unique to this dispatcher, and a number identify a run of FetchTask.
	callPrefix string
	calls      atomic.Uint64
}

// New makes a dispatcher. It is idle until [Dispatcher.Run].
func New(cfg Config) (*Dispatcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := &Dispatcher{cfg: cfg, store: cfg.Store, log: cfg.Logger, policy: dispatch.Policy{Rand: cfg.Rand}}
	d.catalog = newCatalog(cfg.Store)
	d.widened = ttlcache.New(ttlcache.WithCapacity[string, widened](maxCachedSources), ttlcache.WithDisableTouchOnHit[string, widened]())
	d.slowed = newSlowdown()
	d.outcomes, d.activity, d.rates = newOutcomes(), newActivity(), newRates()
	d.released = ttlcache.New(ttlcache.WithCapacity[dispatch.TaskID, string](maxReleased), ttlcache.WithDisableTouchOnHit[dispatch.TaskID, string]())
	d.pushes = &pushes{streams: make(map[string]map[*Stream]struct{})}
	d.newcomers = &newcomers{met: make(map[string]*newcomer), taken: make(map[string]int)}
	d.drained = make(chan struct{})
	d.lanes = &lanes{d: d, all: make(map[int]*lane)}
	d.callPrefix = uuid.NewString() + "-"
	d.holds = newHoldWatch(cfg, func() {
		d.pump.HoldsChanged()
		d.pushes.holdsChanged(d.holds.stops)
	})
	d.pump = pump.New(pump.Config{
		Store: cfg.Store, Log: cfg.Logger, Observer: cfg.Observer, Rand: cfg.Rand, Fallback: cfg.Fallback,
		Timeout: storeTimeout, MaxWaiters: cfg.MaxWaiters, Holds: d.holds.book.Load, CatchUp: d.holds.refresh, NextCall: d.nextCall,
	})
	d.sweeper = &sweeper{store: cfg.Store, log: cfg.Logger, observer: cfg.Observer, policy: d.policy, end: d.EndLeases}
	d.store.Subscribe(d.heed)
	return d, nil
}

// Run runs the loops of the dispatcher until ctx ends: the pump, the sweeper with its chores, the cache of holds, and what forgets
// newcomers. It returns nil if ctx ended, else the error that stopped a loop.
func (d *Dispatcher) Run(ctx context.Context, chores ...Chore) error {
	d.sweeper.chores = append([]Chore{{Name: "read the store's clock", Every: clockEach, Do: d.watchClock}}, chores...)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case <-d.holds.known: // nothing is granted before
		case <-ctx.Done():
		}
		d.pump.Run(ctx)
		return nil
	})
	g.Go(func() error { return d.sweeper.run(ctx) })
	g.Go(func() error { return d.holds.run(ctx) })
	g.Go(func() error { d.forgetNewcomers(ctx); return nil })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// Drain answers all waiting and all later fetches with [EmptyDispatcherDraining]. Reports, renewals and all other calls continue. It
// cannot be undone.
func (d *Dispatcher) Drain() {
	d.drain.Do(func() { close(d.drained) })
	d.pump.Drain()
}

// Draining reports whether Drain was called.
func (d *Dispatcher) Draining() bool { return d.pump.Draining() }

// Parked is the number of fetches that wait.
func (d *Dispatcher) Parked() int { return d.pump.Waiting() }

// nextCall names a run of FetchTask; see [Poll].
func (d *Dispatcher) nextCall() string {
	return d.callPrefix + strconv.FormatUint(d.calls.Add(1), 36)
}

// Config is the dispatcher's configuration, with defaults filled in.
func (d *Dispatcher) Config() Config { return d.cfg }

// Catalog caches sources and queue rules.
func (d *Dispatcher) Catalog() *Catalog { return d.catalog }

// shardOf is the shard of a task; the first for an id that has none.
func (d *Dispatcher) shardOf(id dispatch.TaskID) int {
	return dispatch.ShardOf(max(id.Slot(), 0), d.store.Shards())
}

// Holds are the holds in force as the dispatcher knows them, without those on sources.
func (d *Dispatcher) Holds(ctx context.Context) (*holdbook.Book, error) {
	return d.holds.current(ctx)
}

// RefreshHolds reads the holds now.
func (d *Dispatcher) RefreshHolds(ctx context.Context) error { return d.holds.refresh(ctx) }

// OpenStream subscribes to the pushes for a collector between its beats.
func (d *Dispatcher) OpenStream(info dispatch.CollectorInfo) *Stream {
	p := d.pushes
	s := &Stream{pushes: p, info: info, ready: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.held = d.holds.stops(info.ID, info.Labels) // if they change from here on, that is pushed
	if p.streams[info.ID] == nil {
		p.streams[info.ID] = make(map[*Stream]struct{}, 1)
	}
	p.streams[info.ID][s] = struct{}{}
	return s
}

// heed handles a hint. It does not block.
func (d *Dispatcher) heed(h dispatch.Hint) {
	switch h.Kind {
	case dispatch.HintReady:
		d.pump.Hint(h.Pool, h.Shard, h.In)
	case dispatch.HintSource:
		d.catalog.dropSource(h.ID)
	case dispatch.HintRules:
		d.catalog.dropRules()
	case dispatch.HintHolds:
		d.holds.hint()
	case dispatch.HintCancel:
		d.pushes.cancel(h.ID, CancelNotice{ID: h.Task, Reason: h.Reason})
	case dispatch.HintResync:
		d.catalog.dropAll()
		d.holds.hint()
		d.pump.HintAll()
	}
}
