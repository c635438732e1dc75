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
)

// byHome groups n things by the home shard of their collector: a page a shard,
// and a call with the arguments of all of them.
func (s *Store) byHome(n int, first []any, of func(int) (collector string, args []any)) ([]page, []call) {
	var pages []page
	var calls []call
	at := make(map[int]int, 1)
	for i := range n {
		collector, args := of(i)
		shard := s.shardOfName(collector)
		k, ok := at[shard]
		if !ok || len(pages[k].items) >= maxPolls {
			k = len(pages)
			at[shard] = k
			pages = append(pages, page{shard: shard})
			calls = append(calls, call{shard: shard, args: append([]any(nil), first...)})
		}
		pages[k].items = append(pages[k].items, i)
		calls[k].args = append(calls[k].args, args...)
	}
	return pages, calls
}

// maxPolls bounds the polls and beats of one script.
const maxPolls = 200

// Claim implements [dispatch.Claims]. It runs under its own deadline: once it is
// on its way, its caller's going away must not leave open what it granted.
func (s *Store) Claim(ctx context.Context, shard int, pool string, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	var none dispatch.ClaimReply
	if err := errors.Join(ctx.Err(), s.checkShard(shard)); err != nil {
		return none, wrap(ctx, "claim tasks", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	args := []any{pool, len(wants)}
	for i := range wants {
		var err error
		if args, err = appendWant(args, &wants[i]); err != nil {
			return none, err
		}
	}
	reply, err := s.run(ctx, "claim tasks", s.scripts.claim, call{shard: shard, args: args})
	if err != nil {
		return none, err
	}
	out, err := readClaim(reply, wants)
	if err != nil {
		return none, err
	}
	err = s.prolongClaimed(ctx, wants, &out)
	return out, err
}

// readClaim reads the answer to wants.
func readClaim(reply any, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	r := readReply(reply)
	out := dispatch.ClaimReply{
		Now: instant(r.integer()), Next: instant(r.integer()), Wait: dispatch.WaitReason(r.integer()), More: r.integer() == 1, Again: instant(r.integer()),
		Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)),
	}
	lanes := r.array()
	var of []lane
	for lanes.more() {
		of = append(of, readLane(lanes))
	}
	r.join(lanes)
	answers := r.array()
	for i := range wants {
		out.Used[i] = answers.integer() == 1
		var err error
		if out.Grants[i], err = readGrants(answers, of, out.Now); err != nil {
			return dispatch.ClaimReply{}, err
		}
	}
	r.join(answers)
	return out, r.err
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

// packWant packs what a want is: >I2 I4 I6 BB c8 Bc0 Bc0 Bc0 Bc0. It refuses what
// has a length that one byte does not hold.
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
	b = append48(b, span(w.Lease))
	b = append(b, byte(len(w.SourceUIDs)), byte(len(w.Queues)))
	b = binary.BigEndian.AppendUint64(b, dispatch.HolderDigest(w.Collector, w.ClientToken))
	for _, name := range []string{w.Collector, w.Session, w.ClientToken, w.Call} {
		b = appendShort(b, name)
	}
	return b, nil
}

// readGrants reads what a want was granted: so many tasks of the lanes, or a list
// of what it still holds.
func readGrants(r *reply, lanes []lane, now time.Time) ([]dispatch.Grant, error) {
	if held, ok := r.optionalArray(); ok {
		return decodeGrants(held, now)
	}
	n := int(r.integer())
	if n <= 0 || r.err != nil {
		return nil, r.err
	}
	grants := make([]dispatch.Grant, 0, min(n, len(r.values)/foundEach))
	var l lane
	for range n {
		if k, ok := r.optionalInteger(); ok {
			if k < 1 || k > int64(len(lanes)) {
				r.fail("the number of a lane", k)
				return nil, r.err
			}
			l = lanes[k-1]
		}
		var err error
		if grants, err = appendTask(grants, &l, r, now); err != nil {
			return nil, err
		}
	}
	return leased(grants, now), nil
}

// decodeGrants reads granted tasks, lane by lane.
func decodeGrants(values []any, now time.Time) ([]dispatch.Grant, error) {
	var grants []dispatch.Grant
	var err error
	for _, v := range values {
		if grants, err = decodeLane(grants, v, now); err != nil {
			return nil, err
		}
	}
	return leased(grants, now), nil
}

// leased keeps the grants of tasks that are leased, and tells of their leases. Of
// a replay, what is left of a lease is not below 0.
func leased(grants []dispatch.Grant, now time.Time) []dispatch.Grant {
	grants = slices.DeleteFunc(grants, func(g dispatch.Grant) bool { return g.Task.Lease == nil })
	for i := range grants {
		lease := grants[i].Task.Lease
		grants[i].Token, grants[i].Remaining = lease.Token, max(lease.Deadline.Sub(now), 0)
	}
	return grants
}

// GiveBack implements [dispatch.Claims].
func (s *Store) GiveBack(ctx context.Context, shard int, collector, clientToken, by string) (int, error) {
	if err := s.checkShard(shard); err != nil {
		return 0, err
	}
	holder := holderArg(collector, clientToken)
	v, err := s.run(ctx, "give tasks back", s.scripts.giveback, call{shard: shard, args: []any{collector, clientToken, holder, by}})
	if err != nil {
		return 0, err
	}
	r := readReply([]any{v})
	return int(r.integer()), r.err
}
