package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Submit implements [dispatch.Submits].
func (s *Store) Submit(ctx context.Context, rulesVersion int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	gateOf := make(map[string]*dispatch.SourceGate, len(gates))
	for i := range gates {
		gateOf[gates[i].UID] = &gates[i]
	}
	for i := range items {
		if _, ok := s.shardOfTask(items[i].ID); !ok {
			return nil, fmt.Errorf("%w: task id %.64q has no slot", dispatch.ErrInvalid, items[i].ID)
		}
		if gateOf[items[i].SourceUID] == nil {
			return nil, fmt.Errorf("%w: source %.64q of task %s is not among the gates", dispatch.ErrInvalid, items[i].SourceUID, items[i].ID)
		}
	}
	pages := s.pages(len(items), dispatch.MaxSubmissions, func(i int) dispatch.TaskID { return items[i].ID })
	calls := make([]call, len(pages))
	for i, p := range pages {
		calls[i] = call{shard: p.shard, args: submitArgs(rulesVersion, gateOf, items, p.items)}
	}
	replies, err := s.runAll(ctx, "submit tasks", s.scripts.submit, calls)
	if err != nil {
		return nil, err
	}
	results := make([]dispatch.SubmitResult, len(items))
	for i, p := range pages {
		r := readReply(replies[i])
		for _, item := range p.items {
			results[item] = dispatch.SubmitResult{Code: dispatch.SubmitCode(r.integer()), State: dispatch.State(r.integer())}
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return results, nil
}

// submitArgs packs a page of items, with the gates that they name.
func submitArgs(rulesVersion int64, gateOf map[string]*dispatch.SourceGate, items []dispatch.Submission, page []int) []any {
	number := make(map[string]int, 1)
	var gates, body []any
	for _, i := range page {
		item := &items[i]
		n := number[item.SourceUID]
		if n == 0 {
			n = len(number) + 1
			number[item.SourceUID] = n
			gates = append(gates, gateArgs(gateOf[item.SourceUID])...)
		}
		packed, core, size := encodeBody(item)
		body = append(body, string(item.ID), item.Queue, itemNumbers(n, item, core, size), packed)
	}
	args := make([]any, 0, 3+len(gates)+len(body))
	args = append(args, rulesVersion, len(number), len(page))
	return append(append(args, gates...), body...)
}

// itemNumbers packs the numbers of an item: >I2BBB I2 I6I6I6I6I6 I2I3.
func itemNumbers(gate int, s *dispatch.Submission, core, size int) []byte {
	b := make([]byte, 0, 40)
	b = binary.BigEndian.AppendUint16(b, uint16(gate))
	recurring := byte(0)
	if s.Recurring {
		recurring = 1
	}
	b = append(b, recurring, byte(s.Priority), byte(s.IfExists))
	b = binary.BigEndian.AppendUint16(b, uint16(s.Depth))
	b = append48(b, millis(s.Run))
	b = append48(b, millis(s.Due))
	b = append48(b, millis(s.FirstDue))
	b = append48(b, span(s.RevisitAfter))
	b = append48(b, millis(s.Modified))
	b = binary.BigEndian.AppendUint16(b, uint16(core))
	return append(b, byte(size>>16), byte(size>>8), byte(size))
}

// gateArgs packs a gate (lua/parts/gate.lua).
func gateArgs(g *dispatch.SourceGate) []any {
	return []any{
		g.UID, g.ID, g.Version, g.Pool, g.Priority, millis(g.PausedUntil), g.Deleted,
		g.MaxOutstanding, span(g.LeaseDuration), span(g.MaxHold), g.JoinedBytes, span(g.Remember),
	}
}
