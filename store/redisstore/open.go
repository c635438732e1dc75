package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/redisconn"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/meta"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

const (
	// DefaultPrefix begins the names of all keys.
	DefaultPrefix = "waggle"
	// DefaultClusterShards is the number of shards of a new store in a Cluster;
	// elsewhere it is 1.
	DefaultClusterShards = 64
	// maxPrefix bounds the prefix, which stands in every key.
	maxPrefix = 64
	// maxReplicas bounds Config.AckReplicas.
	maxReplicas = 100
)

// Config of a [Store].
type Config struct {
	// URL of the Redis: redis://host:port/db, rediss:// for TLS, unix:///path?db=0,
	// redis+sentinel://host:port,host:port/master or
	// redis+cluster://host:port,host:port. Options of go-redis, such as
	// ?pool_size=50, may follow. Required.
	URL string
	// Prefix of all keys: [a-z0-9._-], at most 64 characters. Two prefixes are
	// two Waggles. Default "waggle".
	Prefix string
	// Shards is fixed when the store is first used. 0: the number that the store has; for a new store 1, in a Cluster
	// 64.
	Shards int
	// AckReplicas is how many replicas must have a submit, a report or a change of a source before it is acknowledged,
	// so that a failover loses none (WAIT). Fewer within a second: ErrStoreUnavailable, and a repeat finds what was
	// written. Grants and beats do not wait. 0 to 100; default 0.
	AckReplicas int
	// Existing refuses to make a store: one must be there.
	Existing bool
	// CopyOf names the store that is to be copied into this one ([dispatch.Portable]), which must be new, or an unfinished
	// copy of that one. Empty: it must be no unfinished copy.
	CopyOf string
	// AllowEviction accepts an eviction policy that may evict locks and tasks when memory is full.
	AllowEviction bool
	// Logger gets warnings about settings that may lose writes. Default: none.
	Logger *zap.Logger
}

// Validate checks the config except its URL, and fills in defaults.
func (c *Config) Validate() error {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	if len(c.Prefix) > maxPrefix || strings.Trim(c.Prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
		return fmt.Errorf("%w: prefix %.80q is not at most %d of [A-Za-z0-9._-]", dispatch.ErrInvalid, c.Prefix, maxPrefix)
	}
	if c.Shards < 0 || c.Shards > dispatch.Slots {
		return fmt.Errorf("%w: shards %d is not 0 to %d", dispatch.ErrInvalid, c.Shards, dispatch.Slots)
	}
	if c.AckReplicas < 0 || c.AckReplicas > maxReplicas {
		return fmt.Errorf("%w: ack replicas %d is not 0 to %d", dispatch.ErrInvalid, c.AckReplicas, maxReplicas)
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	return nil
}

// Open connects to Redis, checks that it can keep Waggle's promises, and fixes the number of shards of a new store. It
// does not wait for an unavailable Redis.
//
// After two errors a later call may succeed: [dispatch.ErrStoreUnavailable] (no answer, or one that means "later", such
// as LOADING) and [dispatch.ErrStoreReadOnly] (a failover, too few replicas, a full disk). The others stay until
// somebody changes the config or Redis: [dispatch.ErrInvalid] is a wrong config, [dispatch.ErrStoreMismatch] an
// unsuitable Redis. A wrong password, a missing permission and an unknown host name are none of the four.
func Open(ctx context.Context, config Config) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	target, err := redisconn.Parse(config.URL)
	if err != nil {
		return nil, err
	}
	library, err := script.Assemble()
	if err != nil {
		return nil, err
	}
	s := &Store{client: target.Connect(library.OnConnect), keys: key.Prefix(config.Prefix), log: config.Logger}
	closeClient := func() {
		if err := s.client.Close(); err != nil {
			s.log.Warn("failed to close the redis client", zap.Error(err))
		}
	}
	// A read does not end with its context, only with its connection.
	stop := context.AfterFunc(ctx, closeClient)
	err = s.check(ctx, config, target)
	if !stop() {
		return nil, cmp.Or(err, ctx.Err())
	}
	if err != nil {
		closeClient()
		return nil, target.OpenError(ctx, err)
	}
	s.library = library
	s.tidy(ctx)
	s.scripts = script.NewRunner(s.client, library, s.keys, s.meta.Shards(), config.AckReplicas, s.log)
	return s, nil
}

// check finds at start what would fail later.
func (s *Store) check(ctx context.Context, config Config, target *redisconn.Target) (err error) {
	// First, so that the warnings below do not repeat at each attempt to open an unavailable Redis.
	if s.meta, err = meta.Read(ctx, s.client, s.keys, s.log); err != nil {
		return err
	}
	if err := redisconn.Check(ctx, s.client, config.AllowEviction, s.log); err != nil {
		return script.Wrap(ctx, "connect to redis", err)
	}
	if config.Existing && !s.meta.Exists() {
		return fmt.Errorf("%w: there is no store in redis under %q", dispatch.ErrStoreMismatch, s.keys)
	}
	if err := s.refuseOwned(ctx); err != nil {
		return err
	}
	if err := s.meta.Copy(ctx, config.CopyOf); err != nil {
		return err
	}
	initial := 1
	if target.Cluster {
		initial = DefaultClusterShards
	}
	return s.meta.Fix(ctx, config.Shards, cmp.Or(config.Shards, initial))
}

// refuseOwned refuses to make a store beside one that a dispatcher owns: that one could not be opened any more.
func (s *Store) refuseOwned(ctx context.Context) error {
	if s.meta.Exists() {
		return nil
	}
	owned, err := s.client.Exists(ctx, fmt.Sprintf("%s:{0}:owner", s.keys)).Result()
	if err != nil {
		return script.Wrap(ctx, "look for a store", err)
	}
	if owned != 0 {
		return fmt.Errorf("%w: redis has a store under %q that one dispatcher owns: its URL begins with redis-owner", dispatch.ErrStoreMismatch, s.keys)
	}
	return nil
}
