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
		for _, n := range p.items {
			results[n] = readSuccess(r)
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return results, nil
}

// readSuccess reads the answer to a success: a number when it is settled, else
// what apply answers.
func readSuccess(r *reply) dispatch.ApplyResult {
	switch v := r.any().(type) {
	case int64:
		return dispatch.ApplyResult{Code: dispatch.Applied, State: dispatch.StateDone}
	case []any:
		part := &reply{values: v}
		result := readApplied(part)
		r.join(part)
		return result
	default:
		r.fail("the answer to a success", v)
		return dispatch.ApplyResult{}
	}
}

// successArgs names the collectors of a page of successes and packs those:
// >c16 I6 I4 I2 Bc0 B I2c0.
func successArgs(successes []dispatch.Success, items []int) []any {
	var args []any
	numbers := make(map[string]int, 1)
	packed := make([]byte, 0, 64*len(items))
	for _, n := range items {
		x := &successes[n]
		number, ok := numbers[x.Token.Collector]
		if !ok {
			args = append(args, x.Token.Collector)
			number = len(args)
			numbers[x.Token.Collector] = number
		}
		packed = appendDigest(packed, x.Token.Digest())
		packed = append48(packed, span(x.FetchDuration))
		packed = appendAsked(packed, x.QueueDelay)
		packed = binary.BigEndian.AppendUint16(packed, uint16(number))
		packed = append(appendShort(packed, string(x.ID)), given(x.Memo))
		packed = binary.BigEndian.AppendUint16(packed, uint16(len(x.Memo)))
		packed = append(packed, x.Memo...)
	}
	return append(args, packed)
}
