// Package dispatcher runs a dispatcher: its store, its engine and its server.
package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/notify"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/redis"
)

// Node is a dispatcher with its store and its server.
type Node struct {
	ID         string
	Server     *server.Server
	metrics    *server.Metrics
	maxFetches int
	log        *zap.Logger

	store      *store.Store // nil until it is opened
	dispatcher *engine.Dispatcher
	operator   *operate.Operator
	notifier   *notify.Notifier // nil: findings are told to nobody

	backend atomic.Pointer[redis.Backend] // of a store that is owned: the last one
	secret  []byte                        // of that store, as it was read last
}

// NewNode makes a node that runs nothing yet. The caller closes the store until Run is called. A nil store is for RunOwned.
func NewNode(cfg server.Config, store *store.Store, log *zap.Logger) (*Node, error) {
	cfg.Version = cli.Version()
	cfg.Metrics = server.NewMetrics()
	n := &Node{ID: cli.Hostname() + "-" + uuid.NewString()[:8], metrics: cfg.Metrics, maxFetches: cfg.MaxFetches, log: log}
	cfg.HigherEpoch, cfg.Feed, cfg.Moved = n.higherEpoch, n.feed, n.lookSoon
	s, err := server.New(cfg, nil, log)
	if err != nil {
		return nil, err
	}
	n.Server = s
	if store != nil {
		err = n.attach(store, 0)
	}
	cfg.Metrics.ShowOwnership(n.ownership)
	return n, err
}

// Notify has findings posted, while this dispatcher owns the store. It is called before the node runs.
func (n *Node) Notify(cfg notify.Config) (err error) {
	cfg.Dispatcher, cfg.Logger, cfg.Count = n.ID, n.log, n.metrics.Noticed
	n.notifier, err = notify.New(cfg)
	return err
}

// tell posts the findings until ctx ends.
func (n *Node) tell(ctx context.Context) {
	if n.notifier != nil {
		n.notifier.Run(ctx, n.operator)
	}
}

// attach makes the dispatcher, of a store that was opened, and has the server serve it: see [server.Server.Attach].
func (n *Node) attach(store *store.Store, epoch uint64) error {
	d, err := engine.New(engine.Config{Store: store, Logger: n.log, ID: n.ID, MaxWaiters: n.maxFetches, Observer: n.metrics})
	if err != nil {
		return err
	}
	n.log.Info("opened the store", zap.String("kind", store.Kind()), zap.Int("shards", store.Shards()))
	n.store, n.dispatcher, n.operator = store, d, operate.New(d)
	store.Measure(n.metrics.GroupKept)
	n.Server.Attach(n.operator, epoch)
	return nil
}

// Run serves until ctx ends, or the store has failed for good, then drains. The dispatcher runs until the server has taken the
// last report; the store is closed when both have ended.
func (n *Node) Run(ctx context.Context) error {
	err := n.run(ctx, func(serving, loops context.Context, drain func()) error {
		stop := context.AfterFunc(serving, drain)
		defer stop()
		return n.hold(serving, loops, drain)
	})
	return errors.Join(err, CloseStore(n.store))
}

// RunOwned is Run with a store that one of several dispatchers owns: this one serves it or passes calls on.
func (n *Node) RunOwned(ctx context.Context, s *StoreOptions) error {
	n.Server.Detach() // so that calls that come before there is an owner wait for it
	return n.run(ctx, func(serving, loops context.Context, drain func()) error { return n.own(serving, loops, drain, s) })
}

// run runs the server until keep has it drain, or has ended. keep has serving to know when that must be, and loops, which end when the
// server has taken the last report.
func (n *Node) run(ctx context.Context, keep func(serving, loops context.Context, drain func()) error) error {
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	taking, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	var g errgroup.Group
	g.Go(func() error {
		collectGarbage(serving)
		return nil
	})
	g.Go(func() error {
		defer stopServing()
		defer drain()
		return keep(serving, loops, drain)
	})
	g.Go(func() error {
		defer stopServing()
		defer stopLoops()
		return n.Server.Run(taking)
	})
	return g.Wait()
}

// hold serves a store that nobody else takes over, until loops ends or it has failed for good.
func (n *Node) hold(serving, loops context.Context, stop func()) error {
	var g errgroup.Group
	g.Go(func() error {
		defer stop()
		return watch(serving, n.store)
	})
	g.Go(func() error {
		defer stop()
		return n.dispatcher.Run(loops, n.operator.Chores()...)
	})
	g.Go(func() error {
		n.tell(loops)
		return nil
	})
	return g.Wait()
}

// storeCheck is the time between two looks at a store.
const storeCheck = time.Second

// watch waits until a store does not answer, and returns why: only opening it anew heals that. It returns nil when ctx ends.
func watch(ctx context.Context, store *store.Store) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(storeCheck):
		}
		if err := store.Ping(ctx); err != nil && ctx.Err() == nil {
			return cli.Advise(err, "what was acknowledged is there when the dispatcher starts again; look at the disk before")
		}
	}
}

// CloseStore closes a store, if there is one.
func CloseStore(store *store.Store) error {
	if store == nil {
		return nil
	}
	return store.Close()
}

const (
	// MemoryStore is the store that needs nothing and keeps nothing.
	MemoryStore = "memory"
	// FileStore begins the URL of a store in a directory.
	FileStore = "file:"
	// DefaultStore keeps everything in the working directory.
	DefaultStore = FileStore + "./waggle-data"
)

// StoreOptions are where a dispatcher keeps everything.
type StoreOptions struct {
	URL, prefix   string
	shards        int
	fsync         string
	existing      bool
	copyOf        string
	allowEviction bool
	ackReplicas   int
	standby       bool
}

// RegisterExisting adds the flags for a store that must exist, with any eviction policy.
func (s *StoreOptions) RegisterExisting(flags *pflag.FlagSet) {
	s.existing, s.allowEviction = true, true
	s.registerURL(flags)
}

func (s *StoreOptions) registerURL(flags *pflag.FlagSet) {
	flags.StringVar(&s.URL, "store", DefaultStore, "`URL`: file:DIR, memory, redis://host:port/db, rediss://..., unix:///path?db=0, redis+sentinel://host:port,.../master or redis+cluster://host:port,...")
	flags.StringVar(&s.prefix, "prefix", "waggle", "`begin` of all keys in Redis; two prefixes are two Waggles")
}

// Register adds the flags.
func (s *StoreOptions) Register(flags *pflag.FlagSet) {
	s.registerURL(flags)
	flags.IntVar(&s.shards, "shards", 0, "`number` of parts that the store is cut into, fixed when it is first used; 0: as it was made, else 1, of a Cluster 64")
	flags.StringVar(&s.fsync, "fsync", fsyncAlways, "`when` what was written to file:DIR reaches the disk: always, before each answer; after a duration, such as 100ms; never, when the system likes")
	flags.IntVar(&s.ackReplicas, "ack-replicas", 0, "`number` of Redis replicas that have a submit or report before it is acknowledged")
	flags.BoolVar(&s.standby, "standby", true, "keep in memory what the owner of a Redis has, to take over within a second; false: a takeover loads it")
	flags.BoolVar(&s.allowEviction, "allow-eviction", false, "work on a Redis that may evict keys: leases and tasks can then get lost")
}

// Owned reports whether the store is in Redis: one of the dispatchers owns it, and the others pass calls on to it.
func (s *StoreOptions) Owned() bool {
	_, isFile := s.Dir()
	return !isFile && s.URL != MemoryStore
}

// Validate checks the flags that belong to one kind of store.
func (s *StoreOptions) Validate() error {
	if _, isFile := s.Dir(); !isFile && s.fsync != fsyncAlways && s.fsync != "" {
		return cli.Usagef("--fsync %s is for --store file:DIR", s.fsync)
	}
	if !s.Owned() {
		if s.ackReplicas != 0 {
			return cli.Usagef("--ack-replicas %d is for a Redis, which may have replicas", s.ackReplicas)
		}
		return nil
	}
	config := redis.Config{URL: s.URL, Prefix: s.prefix, AckReplicas: s.ackReplicas}
	err := config.Validate()
	if err == nil {
		return nil
	}
	text := invalidText(err)
	if !strings.HasPrefix(text, "Config.") {
		text = "--store: " + text
	}
	if strings.Contains(text, "scheme") {
		text += fmt.Sprintf("; or \"file:DIR\", or %q", MemoryStore)
	}
	return cli.Usagef("%w", cli.Rename(errors.New(text), "Config.Prefix", "--prefix", "Config.AckReplicas", "--ack-replicas"))
}

// Open opens a store that no dispatcher uses.
func (s *StoreOptions) Open(ctx context.Context, log *zap.Logger) (*store.Store, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Owned() {
		return s.openOwned(ctx, log)
	}
	if dir, isFile := s.Dir(); isFile {
		return s.openFile(ctx, dir, log)
	}
	store, err := store.New(store.Config{Shards: s.shards})
	if err != nil {
		return nil, cli.Usagef("--shards: %s", invalidText(err))
	}
	return store, nil
}

// IsAway reports whether a store that could not be opened may be opened later.
func IsAway(err error) bool {
	return errors.Is(err, dispatch.ErrStoreUnavailable)
}

const (
	// Waits between attempts to open a store that is away double from the first to the longest. Longer ones ask a Redis
	// that loads its files less often, and find it later.
	firstOpenWait, longestOpenWait = 100 * time.Millisecond, 2 * time.Second
	// awayEach is how often it is logged that the store is still away.
	awayEach = 30 * time.Second
)

// mismatchAdvice is what to do about a Redis that does not fit; empty when its error says it all.
func mismatchAdvice(err error) string {
	switch text := err.Error(); {
	case !errors.Is(err, dispatch.ErrStoreMismatch):
		return ""
	case strings.Contains(text, unfinishedCopy):
		return unfinishedAdvice
	case strings.Contains(text, "maxmemory-policy"):
		return "`redis-cli config set maxmemory-policy noeviction` sets it; --allow-eviction takes it as it is, and may lose tasks"
	case strings.Contains(text, "shards"):
		return "leave --shards out; or make another Waggle under another --prefix"
	case strings.Contains(text, "there is no store"):
		return "--store and --prefix are those that the dispatchers have"
	case strings.Contains(text, "replica"):
		return "redis+sentinel:// finds the primary by itself"
	default:
		return ""
	}
}

// Name is the store's URL without its passwords.
func (s *StoreOptions) Name() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "(unreadable)"
	}
	if query := u.Query(); query.Has("sentinel_password") {
		query.Set("sentinel_password", "xxxxx")
		u.RawQuery = query.Encode()
	}
	return u.Redacted()
}

// invalidText is what is wrong, without saying once more that it is.
func invalidText(err error) string {
	return strings.TrimPrefix(err.Error(), dispatch.ErrInvalid.Error()+": ")
}

// redisLog takes what the Redis client logs about single connections. What matters of it is the error of a call, too.
type redisLog struct{ log *zap.Logger }

// Printf logs at the level of details.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.log.Debug(fmt.Sprintf(format, args...))
}
