package redisstore

import (
	"context"
	"encoding/binary"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// Succeed implements [dispatch.Leases].
func (s *Store) Succeed(ctx context.Context, successes []dispatch.Success) ([]dispatch.ApplyResult, error) {
	results := make([]dispatch.ApplyResult, len(successes))
	for i := range results {
		results[i].Code = dispatch.ApplyNotFound
	}
	calls := s.scripts.Pages(len(successes), dispatch.MaxTransitions, func(i int) dispatch.TaskID { return successes[i].ID })
	for i := range calls {
		calls[i].Args = successArgs(successes, calls[i].Items)
	}
	replies, err := s.scripts.RunAll(ctx, "settle tasks", script.Succeed, calls)
	if err != nil {
		return nil, err
	}
	for i, c := range calls {
		r := replies[i]
		codes := r.Bytes(len(c.Items))
		for k, n := range c.Items {
			results[n] = readSuccess(r, dispatch.ApplyCode(codes[k]))
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return results, nil
}

// readSuccess reads the answer to a success: no more than its code when it is
// settled.
func readSuccess(r *pack.Reply, code dispatch.ApplyCode) dispatch.ApplyResult {
	if code == dispatch.Applied {
		return dispatch.ApplyResult{Code: code, State: dispatch.StateDone}
	}
	return dispatch.ApplyResult{
		Code: code, Prior: dispatch.Result(r.Integer()), State: dispatch.State(r.Integer()), Due: r.Time(),
	}
}

// successArgs packs a page of successes, of each >c26 c17 I6 I2; their slots, >I2 Bc0;
// what few of them say besides, >I2 I4 I2; and names what they refer to: holders and
// memos (lua/succeed.lua).
func successArgs(successes []dispatch.Success, items []int) []any {
	args := make([]any, 4, 5)
	known, twice := make(holders, 1), 0
	met := make(map[dispatch.TaskID]struct{}, len(items))
	packed := make([]byte, 0, 51*len(items))
	var slots slotRuns
	var extras []byte
	for i, item := range items {
		x := &successes[item]
		if _, ok := met[x.ID]; ok {
			twice = 1
		}
		met[x.ID] = struct{}{}
		behind := len(x.ID) - dispatch.TaskHashLength
		slot, end := x.ID[:behind], x.ID[behind:]
		slots.add(string(slot))
		var by holder
		by, args = known.of(x.Token, args)
		packed = pack.Append48(by.appendDigest(append(packed, end...), x.Token), pack.Span(x.FetchDuration))
		packed = binary.BigEndian.AppendUint16(packed, by.number)
		if x.QueueDelay == nil && x.Memo == nil {
			continue
		}
		memo := 0
		if x.Memo != nil {
			args = append(args, x.Memo)
			memo = len(args)
		}
		extras = appendAsked(binary.BigEndian.AppendUint16(extras, uint16(i+1)), x.QueueDelay)
		extras = binary.BigEndian.AppendUint16(extras, uint16(memo))
	}
	args[0], args[1], args[2], args[3] = twice, packed, slots.packed, extras
	return args
}

// slotRuns are the slots of ids that follow each other, each with its "-", and how many
// have each.
type slotRuns struct {
	packed []byte
	last   string
	run    int // where the packed run of the last slot begins
}

// add adds the slot of the next id: the last run grows, or one begins, >I2 Bc0.
func (s *slotRuns) add(slot string) {
	if slot != s.last || len(s.packed) == 0 {
		s.last, s.run = slot, len(s.packed)
		s.packed = pack.AppendShort(append(s.packed, 0, 0), slot)
	}
	n := s.packed[s.run:]
	binary.BigEndian.PutUint16(n, binary.BigEndian.Uint16(n)+1)
}

// holders are those who hold the leases that a script is told of: each is an
// argument, once.
type holders map[[2]string]holder

type holder struct {
	number uint16 // of the argument, from 1
	digest uint64 // of its leases
}

// of finds a token's holder, and appends the argument for one that is new.
func (h holders) of(token dispatch.LeaseToken, args []any) (holder, []any) {
	name := [2]string{token.Collector, token.ClientToken}
	found, ok := h[name]
	if !ok {
		args = append(args, token.Collector+"/"+token.ClientToken)
		found = holder{uint16(len(args)), dispatch.HolderDigest(token.Collector, token.ClientToken)} //nolint:gosec // at most some hundreds
		h[name] = found
	}
	return found, args
}

// appendDigest appends a token's digest.
func (h holder) appendDigest(b []byte, token dispatch.LeaseToken) []byte {
	return record.AppendDigest(b, dispatch.LeaseDigest{Fence: token.Fence, Holder: h.digest})
}
