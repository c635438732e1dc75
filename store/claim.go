package store

import (
	"cmp"
	"context"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/machine"
)

// mostOrphans is how often a claim goes on when all that a want got was undone, because of locks that somebody else has set.
const mostOrphans = 20

// Claim implements [dispatch.Claims].
func (s *Store) Claim(
	ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
) (dispatch.ClaimReply, error) {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return dispatch.ClaimReply{}, err
	}
	c := machine.Claim{Pool: pool, Holds: holds, Wants: wants}
	lost, err := sh.claim(ctx, &c, decided)
	if err != nil || c.Err != nil {
		return dispatch.ClaimReply{}, cmp.Or(err, c.Err)
	}
	for range mostOrphans { // those are orphans now, so each turn meets others
		if len(lost) == 0 {
			return c.Reply, nil
		}
		again := machine.Claim{Pool: pool, Holds: holds, Wants: pick(wants, lost)}
		still, err := sh.claim(ctx, &again, nil)
		if err != nil || again.Err != nil {
			break // what the other wants got stands
		}
		spread(c.Reply.Grants, lost, again.Reply.Grants)
		spread(c.Reply.Used, lost, again.Reply.Used)
		again.Reply.Grants, again.Reply.Used = c.Reply.Grants, c.Reply.Used
		again.Reply.Again = earlier(c.Reply.Again, again.Reply.Again) // of the other wants, too
		c.Reply, lost = again.Reply, pick(lost, still)
	}
	c.Reply.More = c.Reply.More || len(lost) > 0
	return c.Reply, nil
}

// earlier is the first of two times, of which those that are zero do not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// claim makes a claim, and returns the wants that have lost all that they got: see [machine.Unlocked].
func (s *shard) claim(ctx context.Context, c *machine.Claim, decided func(*dispatch.ClaimReply)) (lost []int, err error) {
	last, err := s.perform(c)
	if err != nil {
		return nil, err
	}
	if decided != nil && c.Err == nil && s.clock.backend != nil { // else it is kept already
		decided(&c.Reply)
	}
	if err := s.clock.durable(ctx, last); err != nil {
		return nil, err
	}
	s.recheck(func(m *machine.Shard) { lost = c.Recheck(m) })
	return lost, nil
}
