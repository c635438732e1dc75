package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

var _ dispatch.Bindings = (*Store)(nil)

// BindCollector implements [dispatch.Bindings].
func (s *Store) BindCollector(ctx context.Context, collectorID, identity string, ttl time.Duration) (string, error) {
	if collectorID == "" || identity == "" {
		return "", fmt.Errorf("%w: collector %q cannot belong to identity %q: both must be set", dispatch.ErrInvalid, collectorID, identity)
	}
	args := []any{collectorID, identity, pack.Span(ttl), pack.Span(min(dispatch.BindingStep, ttl/2))}
	return s.ownerOf(ctx, "bind collector", script.Bind, collectorID, args)
}

// ReleaseCollector implements [dispatch.Bindings].
func (s *Store) ReleaseCollector(ctx context.Context, collectorID string) (string, error) {
	return s.ownerOf(ctx, "release collector", script.Release, collectorID, []any{collectorID})
}

// ownerOf runs a script in the home shard of a collector, which returns an identity.
func (s *Store) ownerOf(ctx context.Context, op string, name script.Name, collectorID string, args []any) (string, error) {
	r, err := s.scripts.Run(ctx, op, name, script.Call{Shard: s.scripts.ShardOf(collectorID), Args: args})
	if err != nil {
		return "", err
	}
	owner := r.Text()
	return owner, r.Err
}
