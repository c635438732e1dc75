package store

import (
	"context"

	"github.com/waggle-crawl/waggle/store/machine"
)

// GiveBack implements [dispatch.Claims].
func (s *Store) GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error) {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return 0, err
	}
	c := machine.GiveBack{Collector: collector, ClientToken: clientToken, Call: call}
	err = sh.do(ctx, &c)
	return c.Given, err
}
