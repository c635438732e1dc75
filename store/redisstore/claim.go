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
	pages, steps := s.settlements(doneOf(wants))
	steps = append(steps, step{script: s.scripts.claim, call: call{shard: shard, args: args}, after: true})
	replies, err := s.runSteps(ctx, "claim tasks", steps)
	if err != nil {
		return none, err
	}
	out, err := readClaim(replies[len(pages)], wants)
	if err == nil {
		out.Done, err = readDone(replies, pages, wants)
	}
	if err != nil {
		return none, err
	}
	err = s.prolongClaimed(ctx, wants, &out)
	return out, err
}

// readClaim reads the answer to wants.
func readClaim(reply any, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	r := pack.Read(reply)
	out := dispatch.ClaimReply{
		Now: r.Time(), Next: r.Time(), Wait: dispatch.WaitReason(r.Integer()), More: r.Bool(), Again: r.Time(),
		Grants: make([][]dispatch.Grant, len(wants)), Used: make([]bool, len(wants)),
	}
	lanes := r.Array()
	var of []record.Lane
	for lanes.More() {
		of = append(of, record.ReadLane(lanes))
	}
	r.Join(lanes)
	answers := r.Array()
	for i := range wants {
		out.Used[i] = answers.Bool()
		var err error
		if out.Grants[i], err = readGrants(answers, of, out.Now); err != nil {
			return dispatch.ClaimReply{}, err
		}
	}
	r.Join(answers)
	return out, r.Err
}

// doneOf is what the wants carry.
func doneOf(wants []dispatch.Want) []dispatch.Success {
	var done []dispatch.Success
	for i := range wants {
		done = append(done, wants[i].Done...)
	}
	return done
}

// readDone reads the answers to what the wants carry.
func readDone(replies []any, pages []page, wants []dispatch.Want) ([][]dispatch.ApplyResult, error) {
	n := 0
	for i := range wants {
		n += len(wants[i].Done)
	}
	if n == 0 {
		return nil, nil
	}
	results, err := readSuccesses(replies, pages, n)
	if err != nil {
		return nil, err
	}
	done := make([][]dispatch.ApplyResult, len(wants))
	for i := range wants {
		n := len(wants[i].Done)
		done[i], results = results[:n:n], results[n:]
	}
	return done, nil
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
	b = pack.Append48(b, pack.Span(w.Lease))
	b = append(b, byte(len(w.SourceUIDs)), byte(len(w.Queues)))
	b = binary.BigEndian.AppendUint64(b, dispatch.HolderDigest(w.Collector, w.ClientToken))
	for _, name := range []string{w.Collector, w.Session, w.ClientToken, w.Call} {
		b = pack.AppendShort(b, name)
	}
	return b, nil
}

// readGrants reads what a want was granted: so many tasks of the lanes, or a list
// of what it still holds.
func readGrants(r *pack.Reply, lanes []record.Lane, now time.Time) ([]dispatch.Grant, error) {
	if held, ok := r.OptionalArray(); ok {
		return decodeGrants(held, now)
	}
	n := int(r.Integer())
	if n <= 0 || r.Err != nil {
		return nil, r.Err
	}
	grants := make([]dispatch.Grant, 0, min(n, r.Len()))
	l := new(record.Lane)
	for range n {
		if k, ok := r.OptionalInteger(); ok {
			if k < 1 || k > int64(len(lanes)) {
				r.Fail("the number of a lane", k)
				return nil, r.Err
			}
			l = &lanes[k-1]
		}
		var err error
		if grants, err = l.AppendTask(grants, r, now); err != nil {
			return nil, err
		}
	}
	return leased(grants, now), nil
}

// decodeGrants reads granted tasks, lane by lane.
func decodeGrants(r *pack.Reply, now time.Time) (grants []dispatch.Grant, err error) {
	for r.More() {
		if grants, err = record.AppendLane(grants, r.Array(), now); err != nil {
			return nil, err
		}
	}
	return leased(grants, now), r.Err
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
	holder := pack.Holder(collector, clientToken)
	v, err := s.run(ctx, "give tasks back", s.scripts.giveback, call{shard: shard, args: []any{collector, clientToken, holder, by}})
	if err != nil {
		return 0, err
	}
	r := pack.Read(v)
	return int(r.Integer()), r.Err
}
