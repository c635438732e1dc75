package operate

import (
	"context"
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
}

// New makes an operator beside the dispatcher of the same process, with which it
// shares what is cached of sources and rules.
func New(d *engine.Dispatcher) *Operator {
	cfg := d.Config()
	return &Operator{d: d, id: cfg.ID, store: cfg.Store, log: cfg.Logger, policy: dispatch.Policy{Rand: cfg.Rand}, catalog: d.Catalog()}
}

// Chores are what the dispatchers of a store have one of them do for operators: it finishes
// what calls that were interrupted have left.
func (o *Operator) Chores() []engine.Chore {
	finished := "" // the last source of the page that was looked at
	return []engine.Chore{
		{Name: "finish changes of sources", Every: 10 * time.Second, Do: func(ctx context.Context) (more bool, err error) {
			finished, more, err = o.finishSources(ctx, finished)
			return more, err
		}},
		{Name: "bring shards to the queue rules", Every: time.Minute, Do: func(ctx context.Context) (bool, error) {
			return false, o.syncRules(ctx)
		}},
	}
}

// Dispatcher is the one beside which the operator works.
func (o *Operator) Dispatcher() *engine.Dispatcher { return o.d }
