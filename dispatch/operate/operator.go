package operate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// changeTries bounds how often a change is computed anew because a record, a source or the
// queue rules changed under it.
const changeTries = 5

// Operator is what operators and producers do with a [Store]: sources, rules, holds, tasks,
// and what they look at. Its methods may be called concurrently.
type Operator struct {
	d       *engine.Dispatcher
	id      string
	store   dispatch.Store
	log     *zap.Logger
	policy  dispatch.Policy
	catalog *engine.Catalog
	watch   findingWatch
	seen    atomic.Pointer[look] // the last one that has seen all sources; nil: none has
	certs   atomic.Pointer[func() []Certificate]
}

// New makes an operator beside the dispatcher of the same process, with which it
// shares what is cached of sources and rules.
func New(d *engine.Dispatcher) *Operator {
	cfg := d.Config()
	return &Operator{d: d, id: cfg.ID, store: cfg.Store, log: cfg.Logger, policy: dispatch.Policy{Rand: cfg.Rand}, catalog: d.Catalog()}
}

// Dispatcher is the one beside which the operator works.
func (o *Operator) Dispatcher() *engine.Dispatcher { return o.d }

// Now is the store's clock, by which everything is decided.
func (o *Operator) Now(ctx context.Context) (time.Time, error) {
	now, err := o.store.Now(ctx)
	if err != nil {
		return now, fmt.Errorf("read the store's clock: %w", err)
	}
	return now, nil
}

// Ping answers whether the store can be worked with now.
func (o *Operator) Ping(ctx context.Context) error { return o.store.Ping(ctx) }

// Away are the shards that have no owner now.
func (o *Operator) Away() []int { return o.store.Away() }

// Overview is what an operator looks at first.
type Overview struct {
	Store      dispatch.StoreStats
	StoreKind  string
	Shards     int
	Now        time.Time
	Dispatcher string
	Parked     int
	Draining   bool
	Holds      []dispatch.Hold // without those on sources
	// Rates of everything, and of each pool by its name.
	Rates     engine.Rates
	PoolRates map[string]engine.Rates
	// Sources are as of the last look for findings.
	Sources SourceCounts
}

// Overview is what an operator looks at first, in O(shards).
func (o *Operator) Overview(ctx context.Context) (*Overview, error) {
	stats, err := o.store.Stats(ctx)
	if err != nil {
		return nil, fmt.Errorf("read stats: %w", err)
	}
	at, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &Overview{
		Store: stats, StoreKind: o.store.Kind(), Shards: o.store.Shards(), Now: at.now,
		Dispatcher: o.id, Parked: o.d.Parked(), Draining: o.d.Draining(), Holds: at.book.All,
		Rates: o.d.AllRates(), PoolRates: o.d.PoolRates(), Sources: o.sourceCounts(),
	}, nil
}
