package redisstore

import (
	"context"
	"encoding/binary"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Succeed implements [dispatch.Leases].
func (s *Store) Succeed(ctx context.Context, successes []dispatch.Success) ([]dispatch.ApplyResult, error) {
	results := make([]dispatch.ApplyResult, len(successes))
	for i := range results {
		results[i].Code = dispatch.ApplyNotFound
	}
	pages := s.pages(len(successes), dispatch.MaxTransitions, func(i int) dispatch.TaskID { return successes[i].ID })
	calls := make([]call, len(pages))
	for i, p := range pages {
		calls[i] = call{shard: p.shard, args: successArgs(successes, p.items)}
	}
	replies, err := s.runAll(ctx, "settle tasks", s.scripts.succeed, calls)
	if err != nil {
		return nil, err
	}
	for i, p := range pages {
		r := readReply(replies[i])
		codes := r.bytes(len(p.items))
		for k, n := range p.items {
			results[n] = readSuccess(r, dispatch.ApplyCode(codes[k]))
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return results, nil
}

// readSuccess reads the answer to a success: no more than its code when it is
// settled.
func readSuccess(r *reply, code dispatch.ApplyCode) dispatch.ApplyResult {
	if code == dispatch.Applied {
		return dispatch.ApplyResult{Code: code, State: dispatch.StateDone}
	}
	return dispatch.ApplyResult{
		Code: code, Prior: dispatch.Result(r.integer()), State: dispatch.State(r.integer()), Due: instant(r.integer()),
	}
}

// successArgs packs a page of successes, >c17 I6 I4 I2 I2, and names their tasks, and
// what they refer to: holders and memos.
func successArgs(successes []dispatch.Success, items []int) []any {
	args := make([]any, 1+len(items), 2+len(items))
	type grant struct{ collector, token string }
	numbers := make(map[grant]int, 1)
	packed := make([]byte, 0, 31*len(items))
	for i, n := range items {
		x := &successes[n]
		args[1+i] = string(x.ID)
		g := grant{x.Token.Collector, x.Token.ClientToken}
		holder, ok := numbers[g]
		if !ok {
			args = append(args, g.collector+"/"+g.token)
			holder = len(args)
			numbers[g] = holder
		}
		memo := 0
		if x.Memo != nil {
			args = append(args, x.Memo)
			memo = len(args)
		}
		packed = appendDigest(packed, x.Token.Digest())
		packed = append48(packed, span(x.FetchDuration))
		packed = appendAsked(packed, x.QueueDelay)
		packed = binary.BigEndian.AppendUint16(packed, uint16(holder))
		packed = binary.BigEndian.AppendUint16(packed, uint16(memo))
	}
	args[0] = packed
	return args
}
