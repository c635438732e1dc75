package store

import (
	"context"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Claim implements [dispatch.Claims].
func (s *Store) Claim(ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return dispatch.ClaimReply{}, err
	}
	c := machine.Claim{Pool: pool, Holds: holds, Wants: wants}
	if err := sh.do(ctx, &c); err != nil {
		return dispatch.ClaimReply{}, err
	}
	sh.recheck(&c)
	return c.Reply, c.Err
}
