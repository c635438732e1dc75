// Package dispatcher runs a dispatcher: its store, its engine and its server.
package dispatcher

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/server"
)

// node is a dispatcher with its store and its server.
type node struct {
	ID         string
	Server     *server.Server
	metrics    *server.Metrics
	maxFetches int
	log        *zap.Logger

	store      dispatch.Store // nil until it is opened
	dispatcher *engine.Dispatcher
	operator   *operate.Operator
}

// NewNode makes a node that runs nothing yet, without a store if that is nil. The caller closes the store until run is
// called.
func NewNode(cfg server.Config, store dispatch.Store, log *zap.Logger) (*node, error) {
	cfg.Version = cli.Version()
	cfg.Metrics = server.NewMetrics()
	s, err := server.New(cfg, nil, log)
	if err != nil {
		return nil, err
	}
	n := &node{ID: cli.Hostname() + "-" + uuid.NewString()[:8], Server: s, metrics: cfg.Metrics, maxFetches: cfg.MaxFetches, log: log}
	if store != nil {
		err = n.attach(store)
	}
	return n, err
}

// attach makes the dispatcher, of a store that was opened.
func (n *node) attach(store dispatch.Store) error {
	d, err := engine.New(engine.Config{Store: store, Logger: n.log, ID: n.ID, MaxWaiters: n.maxFetches, Observer: n.metrics})
	if err != nil {
		return err
	}
	n.log.Info("opened the store", zap.String("kind", store.Kind()), zap.Int("shards", store.Shards()))
	n.store, n.dispatcher, n.operator = store, d, operate.New(d)
	n.Server.Attach(n.operator)
	return nil
}

// Run serves until ctx ends, then drains. Without a store it first waits for open to give one, and meanwhile refuses
// calls. The dispatcher runs until the server has taken the last report; the store is closed when both have ended.
func (n *node) Run(ctx context.Context, open func(context.Context) (dispatch.Store, error)) error {
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	var g errgroup.Group
	g.Go(func() error {
		defer stopServing()
		if n.store == nil {
			store, err := open(serving)
			if serving.Err() != nil {
				return CloseStore(store)
			}
			if err == nil {
				err = n.attach(store)
			}
			if err != nil {
				return errors.Join(err, CloseStore(store))
			}
		}
		return n.dispatcher.Run(loops, n.operator.Chores()...)
	})
	g.Go(func() error {
		defer stopServing()
		defer stopLoops()
		return n.Server.Run(serving)
	})
	return errors.Join(g.Wait(), CloseStore(n.store))
}

// CloseStore closes a store, if there is one.
func CloseStore(store dispatch.Store) error {
	if store == nil {
		return nil
	}
	return store.Close()
}
