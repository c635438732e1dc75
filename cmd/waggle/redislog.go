package main

import (
	"context"
	"fmt"

	"go.uber.org/zap"
)

// redisLog takes what the Redis client has to say about single connections.
// What matters of it comes back as an error of a call.
type redisLog struct{ log *zap.Logger }

// Printf logs at the level of details.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.log.Debug(fmt.Sprintf(format, args...))
}
