package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// openRedis opens the store in the Redis that the URL names.
func (s *storeOptions) openRedis(ctx context.Context, log *zap.Logger) (dispatch.Store, error) {
	// The client logs for its whole process, not per connection.
	redis.SetLogger(clientLog{log})
	store, err := redisstore.Open(ctx, redisstore.Config{
		URL: s.url, Prefix: s.prefix, Shards: s.shards, AllowEviction: s.allowEviction, Logger: log,
	})
	if err != nil {
		return nil, err // not the nil *Store, which would be a Store that is not nil
	}
	return store, nil
}

// clientLog takes what the Redis client has to say about single connections.
// What matters of it comes back as an error of a call.
type clientLog struct{ log *zap.Logger }

// Printf logs at the level of details.
func (l clientLog) Printf(_ context.Context, format string, args ...any) {
	l.log.Debug(fmt.Sprintf(format, args...))
}
