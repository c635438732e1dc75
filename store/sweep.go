package store

import (
	"context"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Expired implements [dispatch.Leases].
func (s *Store) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	c := machine.Expired{Limit: min(limit, bounds.MaxExpired)}
	err := s.doIn(ctx, shard, &c)
	return c.Result, err
}

// start is the start of a dispatcher with what another one left, after a time: collectors have time to renew their leases.
func (s *Store) start(away time.Duration) {
	for _, sh := range s.shards {
		sh.Start(away, time.Time{})
	}
}
