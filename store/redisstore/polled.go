package redisstore

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// What a client token was granted may stand in any shard, and to look for it in all of
// them at each fetch would cost too much. So a store of several shards notes each poll at
// the home shard of its collector, for pollStep at least, and looks for the grant of one
// that is noted there. Whatever a poll was granted for longer is told to the home shard
// when it is: by the claim that gives a long lease, and by renewals.
const (
	// pollStep is the step of time of a set of polls (lua/prelude/keys.lua).
	pollStep = 2 * dispatch.TokenMemory
	// pollWait is how long after its poll a claim comes at the latest.
	pollWait = bounds.MaxWait + 30*time.Second
	// prolongEach: a lease that goes on is told of once in that time (lua/renew.lua), and
	// twice it may be that the home shard does not hear it.
	prolongEach  = time.Minute
	prolongSlack = 3 * prolongEach
	// coveredLease is how long a lease may last from its grant without being told of: until
	// then, and for TokenMemory from then on, the note of its poll is known.
	coveredLease = pollStep - pollWait - dispatch.TokenMemory - prolongSlack
	// prolongTimeout bounds how long renewals wait for a home shard.
	prolongTimeout = time.Second
)

// BeginPolls implements [dispatch.Claims].
func (s *Store) BeginPolls(ctx context.Context, polls []dispatch.Poll) ([]dispatch.PollState, error) {
	states := make([]dispatch.PollState, len(polls))
	several := 0
	if s.shards > 1 {
		several = 1
	}
	homes, calls := s.byHome(len(polls), []any{several}, func(i int) (string, []any) {
		p := &polls[i]
		return p.Collector, []any{p.Collector, p.Session, p.ClientToken, p.Call, holderArg(p.Collector, p.ClientToken)}
	})
	replies, err := s.runAll(ctx, "note polls", s.scripts.polls, calls)
	if err != nil {
		return nil, err
	}
	var repeated []int
	for i, home := range homes {
		r := readReply(replies[i])
		now, answers := instant(r.integer()), r.array()
		for _, n := range home.items {
			a := answers.array()
			st := &states[n]
			st.Replaced, st.NewSession, st.Used = a.integer() == 1, a.integer() == 1, a.integer() == 1
			replay := a.list()
			answers.join(a)
			if st.Used && s.shards > 1 {
				repeated = append(repeated, n)
				st.Used = false
				continue
			}
			if st.Replay, err = decodeGrants(replay, now); err != nil {
				return nil, err
			}
		}
		if r.join(answers); r.err != nil {
			return nil, r.err
		}
	}
	return states, s.replay(ctx, polls, states, repeated)
}

// replay looks in every shard for the grants of polls that were seen before.
func (s *Store) replay(ctx context.Context, polls []dispatch.Poll, states []dispatch.PollState, repeated []int) error {
	if len(repeated) == 0 {
		return nil
	}
	var args []any
	for _, n := range repeated {
		p := &polls[n]
		args = append(args, p.Collector, p.ClientToken, holderArg(p.Collector, p.ClientToken), p.Call)
	}
	replies, err := s.runAll(ctx, "repeat grants", s.scripts.replay, s.everyShard(args...))
	if err != nil {
		return err
	}
	for _, v := range replies {
		r := readReply(v)
		now, answers := instant(r.integer()), r.array()
		for _, n := range repeated {
			held, ok := answers.any().([]any)
			if !ok {
				continue
			}
			grants, err := decodeGrants(held, now)
			if err != nil {
				return err
			}
			states[n].Used = true
			states[n].Replay = append(states[n].Replay, grants...)
		}
		if r.join(answers); r.err != nil {
			return r.err
		}
	}
	return nil
}

// longHeld is a client token that holds something for so long from now on.
type longHeld struct {
	collector, clientToken string
	lasting                time.Duration
}

// prolong notes client tokens at their home shards until TokenMemory after the end of what
// they hold, and of what a renewal makes of that without being told of.
func (s *Store) prolong(ctx context.Context, held []longHeld) error {
	lasting := time.Duration(0)
	for _, h := range held {
		lasting = max(lasting, h.lasting)
	}
	lasting += dispatch.TokenMemory + prolongSlack
	_, calls := s.byHome(len(held), []any{lasting.Milliseconds()}, func(i int) (string, []any) {
		return held[i].collector, []any{holderArg(held[i].collector, held[i].clientToken)}
	})
	_, err := s.runAll(ctx, "note client tokens", s.scripts.prolong, calls)
	return err
}

// prolongClaimed tells the home shards of what wants have been answered with, where no
// poll has noted the client token, or not for as long as that may last.
func (s *Store) prolongClaimed(ctx context.Context, wants []dispatch.Want, reply *dispatch.ClaimReply) error {
	if s.shards == 1 {
		return nil
	}
	var held []longHeld
	for i := range wants {
		lasting := time.Duration(0)
		for n := range reply.Grants[i] {
			lasting = max(lasting, reply.Grants[i][n].Remaining)
		}
		if w := &wants[i]; reply.Used[i] && (!w.Noted || lasting > coveredLease) {
			held = append(held, longHeld{w.Collector, w.ClientToken, lasting})
		}
	}
	if len(held) == 0 {
		return nil
	}
	return s.prolong(ctx, held)
}

// prolongRenewed tells the home shards of leases that go on for long, and does not wait
// long for one that is away: renewals must not, and the next ones tell it again.
func (s *Store) prolongRenewed(ctx context.Context, renewals []dispatch.Renewal, results []dispatch.RenewResult, long []int) {
	if s.shards == 1 || len(long) == 0 {
		return
	}
	at := make(map[[2]string]int)
	var held []longHeld
	for _, n := range long {
		token, lasting := &renewals[n].Token, results[n].Remaining
		name := [2]string{token.Collector, token.ClientToken}
		k, ok := at[name]
		if !ok {
			k, held = len(held), append(held, longHeld{collector: token.Collector, clientToken: token.ClientToken})
			at[name] = k
		}
		held[k].lasting = max(held[k].lasting, lasting)
	}
	ctx, cancel := context.WithTimeout(ctx, prolongTimeout)
	defer cancel()
	if err := s.prolong(ctx, held); err != nil {
		s.log.Debug("client tokens that hold leases for long could not be noted; the next renewals note them", zap.Int("tokens", len(held)), zap.Error(err))
	}
}
