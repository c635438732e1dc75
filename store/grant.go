package store

import (
	"context"

	"github.com/waggle-crawl/waggle/store/machine"
)

// GiveBack implements [dispatch.Claims].
func (s *Store) GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error) {
	c := machine.GiveBack{Collector: collector, ClientToken: clientToken, Call: call}
	err := s.doIn(ctx, shard, &c)
	return c.Given, err
}
