package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/server"
)

// serveOptions are the flags of a dispatcher.
type serveOptions struct {
	server server.Config
	store  storeOptions
	log    logOptions
}

func newServe(c console) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run a dispatcher",
		GroupID: "run",
		Long: `Run a dispatcher. Several on one Redis form a group of equals.

A Redis that is away or loads its files is waited for. Until it is there, /readyz
is 503 and calls answer UNAVAILABLE.

SIGTERM or SIGINT drains: parked fetches are answered, reports taken to the last.
A second signal ends the process at once; no lease is lost by that.

Each flag can be set by the variable behind it. Passwords in --store are better
off in WAGGLE_STORE, where other users of the machine do not see them.`,
		Example: `  waggle serve
  waggle serve --store redis://127.0.0.1:6379/0 --listen 0.0.0.0:7070`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseZero(cmd, "shards"); err != nil {
				return err
			}
			err := withHeapFloor(c.env, func() error { return serve(cmd.Context(), o, cmd.ErrOrStderr()) })
			var usage *usageError
			if errors.As(err, &usage) && usage.cmd == nil {
				usage.cmd = cmd
			}
			return err
		},
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.StringVar(&o.server.Listen, "listen", defaultServer, "`address` for gRPC; there is no authentication, so beware of 0.0.0.0")
	flags.StringVar(&o.server.HTTP, "http", "127.0.0.1:7080", "`address` for /metrics, /healthz and /readyz; off: none")
	o.store.register(flags)
	flags.StringVar(&o.server.TLSCertFile, "tls-cert", "", "PEM `file` with the certificate to serve TLS with")
	flags.StringVar(&o.server.TLSKeyFile, "tls-key", "", "PEM `file` with its key")
	flags.BoolVar(&o.server.Reflection, "reflection", true, "let grpcurl work without .proto files")
	flags.DurationVar(&o.server.DrainTimeout, "drain-timeout", 0, "how long calls may go on once it is to stop (default 20s)")
	flags.IntVar(&o.server.MaxFetches, "max-fetches", 0, "`number` of FetchTask calls that may be parked at once (default 100,000)")
	flags.IntVar(&o.server.MaxFetchesPerCollector, "max-fetches-per-collector", 0, "`number` of them for one collector (default 100)")
	flags.DurationVar(&o.server.MaxConnectionAge, "max-connection-age", 0, "age at which clients are asked to connect anew, and find new dispatchers (default 30m)")
	flags.BoolVar(&o.server.LogCalls, "log-calls", false, "log calls that succeed, too")
	o.log.register(flags)
	fromEnv(cmd, c, flags)
	cmd.Flags().AddFlagSet(flags)
	return cmd
}

// serve runs a dispatcher until ctx ends.
func serve(ctx context.Context, o serveOptions, logTo io.Writer) error {
	log, err := o.log.logger(logTo)
	if err != nil {
		return err
	}
	if err := o.server.Validate(); err != nil {
		return usagef(nil, "%w", flagNames(err))
	}
	store, away := o.store.open(ctx, log)
	if ctx.Err() != nil {
		return closeStore(store)
	}
	if away != nil && !isAway(away) {
		return away
	}
	n, err := newNode(o.server, store, log)
	if err != nil {
		return errors.Join(flagNames(err), closeStore(store))
	}
	if err := n.server.Listen(ctx); err != nil {
		return errors.Join(listenAdvice(flagNames(err)), closeStore(store))
	}
	log.Info("waggle "+version(), zap.String("dispatcher", n.id), zap.String("store", o.store.name()), zap.Bool("tls", o.server.TLSCertFile != ""))
	if o.store.url == storeMemory {
		log.Warn("the store is memory: nothing is kept over a restart, and other dispatchers do not share it; --store redis://... keeps")
	}
	return n.run(ctx, func(ctx context.Context) (dispatch.Store, error) { return o.store.await(ctx, log, away) })
}

// node is a dispatcher with its store and its server.
type node struct {
	id         string
	server     *server.Server
	metrics    *server.Metrics
	maxFetches int
	log        *zap.Logger

	store      dispatch.Store // nil until it is opened
	dispatcher *engine.Dispatcher
	operator   *operate.Operator
}

// newNode makes a node that runs nothing yet, without a store if that is nil. The caller
// closes the store until run is called.
func newNode(cfg server.Config, store dispatch.Store, log *zap.Logger) (*node, error) {
	cfg.Version = version()
	cfg.Metrics = server.NewMetrics()
	s, err := server.New(cfg, nil, log)
	if err != nil {
		return nil, err
	}
	n := &node{id: hostname() + "-" + uuid.NewString()[:8], server: s, metrics: cfg.Metrics, maxFetches: cfg.MaxFetches, log: log}
	if store != nil {
		err = n.attach(store)
	}
	return n, err
}

// attach makes the dispatcher, of a store that was opened.
func (n *node) attach(store dispatch.Store) error {
	d, err := engine.New(engine.Config{Store: store, Logger: n.log, ID: n.id, MaxWaiters: n.maxFetches, Observer: n.metrics})
	if err != nil {
		return err
	}
	n.log.Info("opened the store", zap.String("kind", store.Kind()), zap.Int("shards", store.Shards()))
	n.store, n.dispatcher, n.operator = store, d, operate.New(d)
	n.server.Attach(n.operator)
	return nil
}

// run serves until ctx ends, then drains. Without a store it first waits for open to give
// one, and meanwhile refuses calls. The dispatcher runs until the server has taken the last
// report; the store is closed when both have ended.
func (n *node) run(ctx context.Context, open func(context.Context) (dispatch.Store, error)) error {
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
				return closeStore(store)
			}
			if err == nil {
				err = n.attach(store)
			}
			if err != nil {
				return errors.Join(err, closeStore(store))
			}
		}
		return n.dispatcher.Run(loops, n.operator.Chores()...)
	})
	g.Go(func() error {
		defer stopServing()
		defer stopLoops()
		return n.server.Run(serving)
	})
	return errors.Join(g.Wait(), closeStore(n.store))
}

// closeStore closes a store, if there is one.
func closeStore(store dispatch.Store) error {
	if store == nil {
		return nil
	}
	return store.Close()
}

// flagNames writes flags where an error names fields of a Config.
func flagNames(err error) error {
	text := err.Error()
	names := strings.NewReplacer(
		"server: ", "", "Config.Listen", "--listen", "Config.HTTP", "--http", "Config.TLSCertFile", "--tls-cert", "TLSKeyFile", "--tls-key",
		"Config.DrainTimeout", "--drain-timeout", "Config.MaxFetchesPerCollector", "--max-fetches-per-collector",
		"Config.MaxFetches", "--max-fetches", "Config.MaxConnectionAge ", "--max-connection-age ",
	)
	return &renamed{text: names.Replace(text), err: err}
}

// renamed is an error told in other words.
type renamed struct {
	text string
	err  error
}

func (e *renamed) Error() string { return e.text }
func (e *renamed) Unwrap() error { return e.err }

// listenAdvice says what to do about a port that cannot be had.
func listenAdvice(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return advise(err, "another dispatcher? `waggle stats` asks it",
			"a second one on this machine needs both addresses of its own: say --listen 127.0.0.1:7071 --http 127.0.0.1:7081")
	case errors.Is(err, syscall.EACCES):
		return advise(err, "ports below 1024 are for root")
	default:
		return fmt.Errorf("cannot listen: %w", err)
	}
}
