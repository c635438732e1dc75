package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// BeginPolls implements [dispatch.Claims].
func (s *Store) BeginPolls(ctx context.Context, polls []dispatch.Poll) ([]dispatch.PollState, error) {
	states := make([]dispatch.PollState, len(polls))
	calls := s.scripts.ByName(len(polls), []any{s.scripts.Shards > 1}, func(i int) (string, []any) {
		p := &polls[i]
		return p.Collector, []any{p.Collector, p.Session, p.ClientToken, p.Call, pack.Holder(p.Collector, p.ClientToken)}
	})
	replies, err := s.scripts.RunAll(ctx, "note polls", script.Polls, calls)
	if err != nil {
		return nil, err
	}
	var repeated []int
	for i, c := range calls {
		r := replies[i]
		now, sources, answers := r.Time(), record.ReadSources(r), r.Array()
		for _, n := range c.Items {
			st := &states[n]
			st.Replaced, st.NewSession, st.Used = answers.Bool(), answers.Bool(), answers.Bool()
			replay := answers.Array()
			if st.Used && s.scripts.Shards > 1 {
				repeated = append(repeated, n)
				st.Used = false
				continue
			}
			if st.Replay, err = readHeld(replay, sources, now); err != nil {
				return nil, err
			}
		}
		if r.Join(answers); r.Err != nil {
			return nil, r.Err
		}
	}
	return states, s.replay(ctx, polls, states, repeated)
}

// replay reads the grants of repeated polls in every shard that answers.
func (s *Store) replay(ctx context.Context, polls []dispatch.Poll, states []dispatch.PollState, repeated []int) error {
	if len(repeated) == 0 {
		return nil
	}
	var args []any
	for _, n := range repeated {
		p := &polls[n]
		args = append(args, p.Collector, p.ClientToken, pack.Holder(p.Collector, p.ClientToken), p.Call)
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	replies, err := s.scripts.RunAll(ctx, "repeat grants", script.Replay, s.scripts.EveryShard(args...))
	if err = unanswered(ctx, err); err != nil && (!errors.Is(err, dispatch.ErrStoreUnavailable) || !slices.ContainsFunc(replies, isAnswer)) {
		return err
	}
	for _, r := range replies {
		if !isAnswer(r) { // its leases of the grant, if any, expire
			continue
		}
		now, sources, answers := r.Time(), record.ReadSources(r), r.Array()
		for _, n := range repeated {
			held, ok := answers.Any().([]any)
			if !ok {
				continue
			}
			grants, err := readHeld(pack.Read(held), sources, now)
			if err != nil {
				return err
			}
			states[n].Used = true
			states[n].Replay = append(states[n].Replay, grants...)
		}
		if r.Join(answers); r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// unanswered is the error of a call within ctx, whose deadline is the store's own.
func unanswered(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && !errors.Is(err, dispatch.ErrStoreUnavailable) {
		return fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err)
	}
	return err
}

func isAnswer(r *pack.Reply) bool { return r != nil }

const (
	// claimTimeout limits a claim, which continues after its caller is gone.
	claimTimeout = 5 * time.Second
	// shardPatience limits it where there are other shards, which may have tasks for the same fetches while the node of
	// this one is frozen.
	shardPatience = time.Second
)

// patience is how long a fetch waits for the answer of one shard.
func (s *Store) patience() time.Duration {
	if s.scripts.Shards > 1 {
		return shardPatience
	}
	return claimTimeout
}

// Claim implements [dispatch.Claims]. It has its own deadline: if its caller goes, the grant of a claim in flight must
// still become known.
func (s *Store) Claim(ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	var none dispatch.ClaimReply
	if err := ctx.Err(); err != nil {
		return none, script.Wrap(ctx, "claim tasks", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience())
	defer cancel()
	args := []any{pool, holds, len(wants)}
	for i := range wants {
		var err error
		if args, err = appendWant(args, &wants[i]); err != nil {
			return none, err
		}
	}
	run := s.scripts.Run
	if s.scripts.Shards > 1 {
		run = s.scripts.RunOnce
	}
	r, err := run(ctx, "claim tasks", script.Claim, script.Call{Shard: shard, Args: args})
	if err != nil {
		return none, unanswered(ctx, err)
	}
	if r.Len() == 1 { // the answer of a shard that knows later holds
		return none, fmt.Errorf("%w: shard %d knows later ones than version %d", dispatch.ErrStaleHolds, shard, holds)
	}
	out, err := readClaim(r, wants)
	if err != nil {
		return none, err
	}
	err = s.prolongClaimed(ctx, wants, &out)
	return out, err
}

// readClaim reads the answer to wants.
func readClaim(r *pack.Reply, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	out := dispatch.ClaimReply{
		Now: r.Time(), Next: r.Time(), Wait: dispatch.WaitReason(r.Integer()), More: r.Bool(), Again: r.Time(),
		Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)),
	}
	sources, answers := record.ReadSources(r), r.Array()
	for i := range wants {
		out.Used[i] = answers.Bool()
		var err error
		if out.Grants[i], err = readGrants(answers, sources, out.Now); err != nil {
			return dispatch.ClaimReply{}, err
		}
	}
	r.Join(answers)
	return out, r.Err
}

func appendWant(args []any, w *dispatch.Want) ([]any, error) {
	packed, err := packWant(w)
	if err != nil {
		return nil, err
	}
	args = append(args, packed)
	for _, uid := range w.SourceUIDs {
		args = append(args, uid)
	}
	for _, queue := range w.Queues {
		args = append(args, queue)
	}
	return args, nil
}

// packWant packs the fields of a want: >I2 I4 I6 BB c8 Bc0 Bc0 Bc0 Bc0. It returns an error if a length does not fit in
// one byte.
func packWant(w *dispatch.Want) ([]byte, error) {
	for _, c := range []struct {
		what string
		n    int
	}{
		{"sources", len(w.SourceUIDs)},
		{"queues", len(w.Queues)},
		{"bytes of collector", len(w.Collector)},
		{"bytes of session", len(w.Session)},
		{"bytes of client token", len(w.ClientToken)},
		{"bytes of call", len(w.Call)},
	} {
		if c.n > math.MaxUint8 {
			return nil, fmt.Errorf("%w: want of collector %.200q has %d %s, more than %d", dispatch.ErrInvalid, w.Collector, c.n, c.what, math.MaxUint8)
		}
	}
	b := make([]byte, 0, 192)
	b = binary.BigEndian.AppendUint16(b, uint16(min(max(w.Max, 1), math.MaxUint16)))
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(w.MaxBytes, 0), math.MaxUint32)))
	b = pack.Append48(b, pack.Span(w.Lease))
	b = append(b, byte(len(w.SourceUIDs)), byte(len(w.Queues)))
	b = binary.BigEndian.AppendUint64(b, dispatch.HolderDigest(w.Collector, w.ClientToken))
	for _, name := range []string{w.Collector, w.Session, w.ClientToken, w.Call} {
		b = pack.AppendShort(b, name)
	}
	return b, nil
}

// readGrants reads the grants of a want: a number of tasks, or the list of a replay.
func readGrants(r *pack.Reply, sources record.Sources, now time.Time) ([]dispatch.Grant, error) {
	if held, ok := r.OptionalArray(); ok {
		return readHeld(held, sources, now)
	}
	n := int(r.Integer())
	if n <= 0 || r.Err != nil {
		return nil, r.Err
	}
	grants := make([]dispatch.Grant, 0, min(n, r.Len()))
	for range n {
		var err error
		if grants, err = sources.AppendTask(grants, r, now); err != nil {
			return nil, err
		}
	}
	return leased(grants, now), nil
}

// readHeld reads granted tasks that are still held.
func readHeld(r *pack.Reply, sources record.Sources, now time.Time) ([]dispatch.Grant, error) {
	grants, err := sources.AppendAll(nil, r, now)
	return leased(grants, now), err
}

// leased selects the grants of leased tasks, and fills in their leases. In a replay, the remaining time of a lease is
// at least 0.
func leased(grants []dispatch.Grant, now time.Time) []dispatch.Grant {
	grants = slices.DeleteFunc(grants, func(g dispatch.Grant) bool { return g.Task.Lease == nil })
	for i := range grants {
		lease := grants[i].Task.Lease
		grants[i].Token, grants[i].Remaining = lease.Token, max(lease.Deadline.Sub(now), 0)
	}
	return grants
}

// prolongClaimed records client tokens with grants in their home shards, if no poll has recorded them for long enough.
func (s *Store) prolongClaimed(ctx context.Context, wants []dispatch.Want, reply *dispatch.ClaimReply) error {
	if s.scripts.Shards == 1 {
		return nil
	}
	var held []dispatch.LeaseToken
	var longest time.Duration
	for i := range wants {
		lasting := time.Duration(0)
		for n := range reply.Grants[i] {
			lasting = max(lasting, reply.Grants[i][n].Remaining)
		}
		if w := &wants[i]; reply.Used[i] && (!w.Noted || lasting > coveredLease) {
			held, longest = append(held, dispatch.LeaseToken{Collector: w.Collector, ClientToken: w.ClientToken}), max(longest, lasting)
		}
	}
	if len(held) == 0 {
		return nil
	}
	return s.prolong(ctx, held, longest)
}

// GiveBack implements [dispatch.Claims].
func (s *Store) GiveBack(ctx context.Context, shard int, collector, clientToken, by string) (int, error) {
	holder := pack.Holder(collector, clientToken)
	r, err := s.scripts.Run(ctx, "give tasks back", script.GiveBack, script.Call{Shard: shard, Args: []any{collector, clientToken, holder, by}})
	if err != nil {
		return 0, err
	}
	n := int(r.Integer())
	return n, r.Err
}
