// Package redis keeps a store in Redis: it is a [backend.Backend] with items in hashes and a lock for each lease. Each shard has an
// owner. Who that is, what is sent again and what is answered is decided by package protocol, whose text is the specification.
//
// A shard has a goroutine that is a candidate or serves a term (shard.go). In a term one goroutine renews the ownership, and one
// writes groups (writer.go). What the owner's commands and answers ask of a shard is in commit.go.
package redis

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/internal/redisconn"
)

// format is the number of the form of what is kept: of items, groups and the record.
const format = 1

const (
	// defaultPrefix begins the names of all keys.
	defaultPrefix = "waggle"
	// defaultClusterShards is the number of shards of a new store in a Cluster; elsewhere it is 1.
	defaultClusterShards = 64
	maxPrefix            = 64  // characters: they are in every key
	maxReplicas          = 100 // to wait for
	// defaultTerm is how long an owner goes on without a renewal.
	defaultTerm = 3 * time.Second
)

// Config of a [Backend]. Only URL is required.
type Config struct {
	// URL of the Redis: redis://host:port/db, rediss:// for TLS, unix:///path?db=0, redis+sentinel://host:port,host:port/master or
	// redis+cluster://host:port,host:port. Options of go-redis, such as ?pool_size=50, may follow.
	URL string
	// Prefix of all keys: at most 64 of [A-Za-z0-9._-]. Two prefixes are two stores. Default "waggle".
	Prefix string
	// Name and Address of this dispatcher, for those that pass calls on to it.
	Name, Address string
	// AckReplicas is how many replicas must have a group before it is answered, so that a failover does not lose it (WAIT). If
	// fewer have it within a second, the outcome of the group is unknown to its callers. 0 to 100; default 0.
	AckReplicas int
	// AllowEviction accepts an eviction policy that may evict locks and tasks when the memory is full.
	AllowEviction bool
	// Existing: there must be a store; else Acquire makes it.
	Existing bool
	// CopyOf names the store that is to be copied into this one ([dispatch.Portable]), which must be new, or an unfinished copy of
	// that one. Empty: it must be no unfinished copy.
	CopyOf string
	// Before is the backend that this process had before, which is over: its counts go on, and its epochs are risen past.
	Before *Backend
	// Follow gets the owner of shard 0 each time when a candidate sees another one; the zero value: there is none, or it is this
	// one. It must not block.
	Follow func(Other)
	// Watch: it never acquires; Acquire only calls Follow, until its context ends.
	Watch bool
	// Reach opens a stream to the owner, which gives it to [Backend.Feed]: so this dispatcher stands by. Receive of the stream fails when
	// ctx ends. Refuses reports whether the owner's port refuses a connection, as it does when its process has ended. Both are nil: this
	// dispatcher does not stand by.
	Reach   func(ctx context.Context, owner Other) (Stream, error)
	Refuses func(ctx context.Context, owner Other) bool
	// Logger logs changes of owner, faults and what was lost; nil: nothing is logged.
	Logger *zap.Logger

	term          time.Duration // of tests; 0: defaultTerm
	clusterShards int           // of tests; 0: defaultClusterShards
}

// Other is a dispatcher that owns shard 0.
type Other struct {
	Name, Address string
	Epoch         uint64
}

// Validate checks the config, except whether there is a Redis. The error wraps [dispatch.ErrInvalid].
func (c *Config) Validate() error {
	switch {
	case len(c.Prefix) > maxPrefix || strings.Trim(c.Prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "":
		return fmt.Errorf("%w: Config.Prefix is %.80q; it must be at most %d of [A-Za-z0-9._-]", dispatch.ErrInvalid, c.Prefix, maxPrefix)
	case c.AckReplicas < 0 || c.AckReplicas > maxReplicas:
		return fmt.Errorf("%w: Config.AckReplicas is %d; it must be 0 to %d", dispatch.ErrInvalid, c.AckReplicas, maxReplicas)
	}
	_, err := redisconn.Parse(c.URL)
	return err
}

func (c *Config) complete() {
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	c.term = cmp.Or(c.term, defaultTerm)
	c.clusterShards = cmp.Or(c.clusterShards, defaultClusterShards)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Follow == nil {
		c.Follow = func(Other) {}
	}
}

var (
	_ backend.Owned  = (*Backend)(nil)
	_ backend.Commit = (*pendingGroup)(nil)
)
