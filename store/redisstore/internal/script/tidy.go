package script

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/internal/redisconn"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
)

const (
	// libraryMemory is how long a library is kept after the last dispatcher that has used it.
	libraryMemory = 24 * time.Hour
	// TidyInterval is how often a dispatcher calls Tidy.
	TidyInterval = time.Hour
)

// Tidy notes that this library is in use, and deletes the libraries of builds that no dispatcher has used for a day. One
// that is used all the same, under another prefix, is loaded again by its next call.
func (l *Library) Tidy(ctx context.Context, client redis.UniversalClient, prefix key.Prefix) error {
	if err := client.Set(ctx, prefix.Library(l.name), "", libraryMemory).Err(); err != nil {
		return err
	}
	err := redisconn.EachPrimary(ctx, client, func(ctx context.Context, server *redis.Client) error {
		libraries, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: functionPrefix + "*"}).Result()
		if err != nil {
			return err
		}
		for _, other := range libraries {
			if other.Name == l.name || !l.isLike(other.Name) {
				continue
			}
			used, err := client.Exists(ctx, prefix.Library(other.Name)).Result()
			if err == nil && used == 0 {
				err = server.FunctionDelete(ctx, other.Name).Err()
			}
			if err != nil && !strings.HasPrefix(err.Error(), "ERR Library not found") { // another dispatcher was faster
				return err
			}
		}
		return nil
	})
	if err != nil && redisconn.Denied(err) {
		return nil
	}
	return err
}

// isLike reports whether the name is one that Assemble could give.
func (l *Library) isLike(name string) bool {
	version, ok := strings.CutPrefix(name, functionPrefix)
	return ok && len(name) == len(l.name) && strings.Trim(version, "0123456789abcdef") == ""
}
