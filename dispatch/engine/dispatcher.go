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
	"golang.org/x/time/rate"

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
	// ID names this dispatcher among those of one store, in leadership and
	// stats. Required.
	ID string
	// MaxWaiters is the limit of waiting fetches; beyond it a fetch fails with ErrTooManyWaiters. Each costs some 16
	// KiB, with its share of the connection. Default 100,000.
	MaxWaiters int
	// Fallback is the polling interval of a pool that fetches wait for, in case a hint is lost (P9). A shorter one
	// finds work earlier after a lost hint and costs more idle commands. Jitter shortens it by up to a quarter. Default
	// 1 s.
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

// maxNoted limits the cache of sessions that the store has recorded.
const maxNoted = 100_000

// Dispatcher hands out tasks of a [Store] and takes their reports. Any dispatcher of a group serves any lease. Its
// methods may be called concurrently while [Dispatcher.Run] runs.
type Dispatcher struct {
	cfg    Config
	store  dispatch.Store
	log    *zap.Logger
	policy dispatch.Policy

	pump      *pump.Pump
	keeper    *keeper
	batches   *batches
	catalog   *Catalog
	widened   *ttlcache.Cache[string, widened] // by the uids of sources
	slowed    *slowdown
	outcomes  *outcomes
	released  *ttlcache.Cache[dispatch.TaskID, string] // source ids of tasks, see noteReleased
	reminders *rate.Limiter                            // of them
	holds     *holdWatch
	pushes    *pushes
	newcomers *newcomers
	noted     *ttlcache.Cache[string, string] // the current session of each collector, as lately noted
	beginning singleflight.Group              // of sessions
	endings   atomic.Int64                    // of older sessions, under way
	drained   chan struct{}                   // closed by Drain
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
	d.batches = newBatches(cfg.Store)
	d.catalog = newCatalog(cfg.Store)
	d.widened = ttlcache.New(ttlcache.WithCapacity[string, widened](maxCachedSources), ttlcache.WithDisableTouchOnHit[string, widened]())
	d.slowed = newSlowdown()
	d.outcomes = newOutcomes()
	d.released = ttlcache.New(ttlcache.WithCapacity[dispatch.TaskID, string](maxReleased), ttlcache.WithDisableTouchOnHit[dispatch.TaskID, string]())
	d.reminders = rate.NewLimiter(maxReminders, maxReminders)
	d.pushes = &pushes{streams: make(map[string]map[*Stream]struct{})}
	d.newcomers = &newcomers{met: make(map[string]*newcomer), taken: make(map[string]int)}
	d.noted = ttlcache.New(ttlcache.WithCapacity[string, string](maxNoted), ttlcache.WithDisableTouchOnHit[string, string]())
	d.drained = make(chan struct{})
	d.callPrefix = uuid.NewString() + "-"
	d.holds = newHoldWatch(cfg, func() {
		d.pump.HoldsChanged()
		d.pushes.holdsChanged(d.holds.stops)
	})
	d.pump = pump.New(pump.Config{
		Store: cfg.Store, Log: cfg.Logger, Observer: cfg.Observer, Rand: cfg.Rand, Fallback: cfg.Fallback,
		Timeout: storeTimeout, MaxWaiters: cfg.MaxWaiters, Holds: d.holds.book.Load, CatchUp: d.holds.catchUp,
	})
	d.keeper = &keeper{store: cfg.Store, log: cfg.Logger, observer: cfg.Observer, policy: d.policy, id: cfg.ID, end: d.EndLeases}
	return d, nil
}

// Run runs the loops of the dispatcher until ctx ends: the pump, the keeper with its chores, the cache of holds, the hint
// subscription, and what forgets newcomers. It returns nil if ctx ended, else the error that stopped a loop.
func (d *Dispatcher) Run(ctx context.Context, chores ...Chore) error {
	d.keeper.chores = chores
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case <-d.holds.known: // nothing is granted before
		case <-ctx.Done():
		}
		d.pump.Run(ctx)
		return nil
	})
	keeping, resign := context.WithCancel(ctx)
	g.Go(func() error {
		defer resign()
		select {
		case <-d.drained:
		case <-ctx.Done():
		}
		return nil
	})
	g.Go(func() error { return d.keeper.run(keeping) })
	g.Go(func() error { return d.holds.run(ctx) })
	g.Go(func() error { return d.listen(ctx) })
	g.Go(func() error { d.forgetNewcomers(ctx); return nil })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// Drain answers all waiting and all later fetches with [EmptyDispatcherDraining], and resigns as keeper. Reports, renewals
// and all other calls continue. It cannot be undone.
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

func (d *Dispatcher) shardOf(id dispatch.TaskID) int { return shardOf(id, max(d.store.Shards(), 1)) }

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

// listen keeps the hint subscription until ctx ends. Without hints the dispatcher polls.
func (d *Dispatcher) listen(ctx context.Context) error {
	backoff := firstBackoff
	var failing atomic.Bool
	for ctx.Err() == nil {
		began := time.Now()
		err := d.store.Subscribe(ctx, func(h dispatch.Hint) {
			if failing.CompareAndSwap(true, false) {
				d.log.Info("hint subscription restored")
			}
			d.heed(h)
		})
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > longestBackoff {
			backoff = firstBackoff
		}
		if failing.CompareAndSwap(false, true) {
			d.log.Warn("hint subscription lost; polling every second", zap.Error(err))
		}
		// Hints were lost in the meantime.
		d.heed(dispatch.Hint{Kind: dispatch.HintResync})
		if !pause(ctx, jittered(d.policy.Rand, backoff)) {
			return nil
		}
		backoff = min(2*backoff, longestBackoff)
	}
	return nil
}

// heed handles a hint. It does not block.
func (d *Dispatcher) heed(h dispatch.Hint) {
	switch h.Kind {
	case dispatch.HintReady:
		d.pump.Hint(h.Pool, h.Shard, h.In)
	case dispatch.HintSource:
		d.catalog.DropSource(h.ID)
	case dispatch.HintRules:
		d.catalog.DropRules()
	case dispatch.HintHolds:
		d.holds.hint()
	case dispatch.HintSession:
		d.sessionEnded(h.ID, h.Session)
	case dispatch.HintCancel:
		d.pushes.cancel(h.ID, CancelNotice{ID: h.Task, Reason: h.Reason})
	case dispatch.HintReleased:
		d.released.Set(h.Task, h.ID, releasedMemory)
	case dispatch.HintResync:
		d.catalog.dropAll()
		d.noted.DeleteAll()
		d.holds.hint()
		d.pump.HintAll()
	}
}
