package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// storeMemory is the store that needs nothing and keeps nothing.
const storeMemory = "memory"

// storeOptions are where a dispatcher keeps everything.
type storeOptions struct {
	url, prefix   string
	shards        int
	allowEviction bool
}

func (s *storeOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.url, "store", storeMemory, "`URL`: memory, redis://host:port/db, rediss://..., unix:///path?db=0, redis+sentinel://host:port,.../master or redis+cluster://host:port,...")
	flags.StringVar(&s.prefix, "prefix", "waggle", "`begin` of all keys in Redis; two prefixes are two Waggles")
	flags.IntVar(&s.shards, "shards", 0, "`number` of parts that the store is cut into, fixed when it is first used; 0: as it was made, else 1, of a Cluster 64")
	flags.BoolVar(&s.allowEviction, "allow-eviction", false, "work on a Redis that may evict keys: leases and tasks can then get lost")
}

// open opens the store.
func (s *storeOptions) open(ctx context.Context, log *zap.Logger) (dispatch.Store, error) {
	if err := (&redisstore.Config{Prefix: s.prefix}).Validate(); err != nil { // with the store memory, too
		return nil, usagef(nil, "--prefix: %s", invalidText(err))
	}
	if s.url == storeMemory {
		store, err := memstore.New(memstore.Config{Shards: s.shards})
		if err != nil {
			return nil, usagef(nil, "--shards: %s", invalidText(err))
		}
		return store, nil
	}
	// The client logs for its whole process, not per connection.
	redis.SetLogger(redisLog{log})
	store, err := redisstore.Open(ctx, redisstore.Config{
		URL: s.url, Prefix: s.prefix, Shards: s.shards, Logger: log, AllowEviction: s.allowEviction,
	})
	switch {
	case err == nil:
		return store, nil
	case ctx.Err() != nil:
		return nil, errors.New("interrupted while opening the store")
	case errors.Is(err, dispatch.ErrInvalid) && strings.Contains(err.Error(), "scheme"):
		return nil, usagef(nil, "--store: %s; or %q", invalidText(err), storeMemory)
	case errors.Is(err, dispatch.ErrInvalid):
		return nil, usagef(nil, "--store: %s", invalidText(err))
	case errors.Is(err, dispatch.ErrStoreUnavailable):
		return nil, advise(fmt.Errorf("--store %s: %w", s.name(), err), "is Redis running there? `--store memory` needs none, and keeps nothing over a restart")
	case errors.Is(err, dispatch.ErrStoreReadOnly):
		return nil, advise(fmt.Errorf("--store %s: %w", s.name(), err), readOnlyAdvice(err))
	default:
		return nil, advise(fmt.Errorf("--store %s: %w", s.name(), err), mismatchAdvice(err))
	}
}

// readOnlyAdvice is what to do about a Redis that takes no writes.
func readOnlyAdvice(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "NOREPLICAS"):
		return "fewer replicas are there than min-replicas-to-write asks for: look at them"
	case strings.Contains(text, "MISCONF"):
		return "Redis cannot write to its disk: make room, and look at its log"
	default:
		return "this is a replica: name the primary, or use redis+sentinel://"
	}
}

// mismatchAdvice is what to do about a Redis that does not fit; empty when its
// error says it all.
func mismatchAdvice(err error) string {
	switch text := err.Error(); {
	case !errors.Is(err, dispatch.ErrStoreMismatch):
		return ""
	case strings.Contains(text, "maxmemory-policy"):
		return "`redis-cli config set maxmemory-policy noeviction` sets it; --allow-eviction takes it as it is, and may lose tasks"
	case strings.Contains(text, "shards"):
		return "leave --shards out; or make another Waggle under another --prefix"
	default:
		return ""
	}
}

// name is the store's URL without its password.
func (s *storeOptions) name() string {
	u, err := url.Parse(s.url)
	if err != nil {
		return "(unreadable)"
	}
	return u.Redacted()
}

// invalidText is what is wrong, without saying once more that it is.
func invalidText(err error) string {
	return strings.TrimPrefix(err.Error(), dispatch.ErrInvalid.Error()+": ")
}
