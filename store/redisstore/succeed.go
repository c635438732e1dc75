package redisstore

import (
	"context"
	"encoding/binary"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Succeed implements [dispatch.Leases].
func (s *Store) Succeed(ctx context.Context, successes []dispatch.Success) ([]dispatch.ApplyResult, error) {
	pages, steps := s.settlements(successes)
	replies, err := s.runSteps(ctx, "settle tasks", steps)
	if err != nil {
		return nil, err
	}
	return readSuccesses(replies, pages, len(successes))
}

// settlements are the runs of a script that settle successes, a page each. What has no
// shard is in none.
func (s *Store) settlements(successes []dispatch.Success) ([]page, []step) {
	pages := s.pages(len(successes), dispatch.MaxTransitions, func(i int) dispatch.TaskID { return successes[i].ID })
	steps := make([]step, len(pages), len(pages)+1) // room for a claim
	for i, p := range pages {
		steps[i] = step{s.scripts.succeed, call{shard: p.shard, args: s.successArgs(p.shard, successes, p.items)}}
	}
	return pages, steps
}

// readSuccesses reads the answers to n successes, by page.
func readSuccesses(replies []any, pages []page, n int) ([]dispatch.ApplyResult, error) {
	results := make([]dispatch.ApplyResult, n)
	for i := range results {
		results[i].Code = dispatch.ApplyNotFound
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

// successArgs packs a page of successes, >c17 I6 I4 I2 I2, and names the keys of their
// tasks and locks, and what they refer to: holders and memos.
func (s *Store) successArgs(shard int, successes []dispatch.Success, items []int) []any {
	n := len(items)
	args := make([]any, 2+2*n, 4+2*n)
	keys, names, twice := s.keys.shard(shard), make([]string, 2*n), 0
	met := make(map[dispatch.TaskID]struct{}, n)
	known := make(holders, 1)
	packed := make([]byte, 0, 31*n)
	for i, item := range items {
		x := &successes[item]
		if _, ok := met[x.ID]; ok {
			twice = 1
		}
		met[x.ID] = struct{}{}
		names[i], names[n+i] = keys.Task(x.ID), keys.Lock(x.ID)
		args[2+i], args[2+n+i] = &names[i], &names[n+i]
		var by holder
		by, args = known.of(x.Token, args)
		memo := 0
		if x.Memo != nil {
			args = append(args, x.Memo)
			memo = len(args)
		}
		packed = by.appendDigest(packed, x.Token)
		packed = append48(packed, span(x.FetchDuration))
		packed = appendAsked(packed, x.QueueDelay)
		packed = binary.BigEndian.AppendUint16(packed, by.number)
		packed = binary.BigEndian.AppendUint16(packed, uint16(memo))
	}
	args[0], args[1] = packed, twice
	return args
}
