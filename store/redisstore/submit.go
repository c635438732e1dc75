package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// Submit implements [dispatch.Tasks].
func (s *Store) Submit(ctx context.Context, rulesVersion int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	gateOf := make(map[string]*dispatch.SourceGate, len(gates))
	for i := range gates {
		gateOf[gates[i].UID] = &gates[i]
	}
	for i := range items {
		if _, err := dispatch.ParseTaskID(string(items[i].ID)); err != nil {
			return nil, err
		}
		if gateOf[items[i].SourceUID] == nil {
			return nil, fmt.Errorf("%w: source %.64q of task %s is not among the gates", dispatch.ErrInvalid, items[i].SourceUID, items[i].ID)
		}
	}
	calls := s.scripts.Pages(len(items), bounds.MaxSubmissions, func(i int) dispatch.TaskID { return items[i].ID })
	for i := range calls {
		calls[i].Args = submitArgs(rulesVersion, gateOf, items, calls[i].Items)
	}
	replies, err := s.scripts.RunAll(ctx, "submit tasks", script.Submit, calls)
	if err != nil {
		return nil, err
	}
	results := make([]dispatch.SubmitResult, len(items))
	for i, c := range calls {
		r := replies[i]
		answers := r.Bytes(2 * len(c.Items))
		for k, item := range c.Items {
			results[item] = dispatch.SubmitResult{Code: dispatch.SubmitCode(answers[2*k]), State: dispatch.State(answers[2*k+1])}
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return results, nil
}

// submitArgs packs a page of items, with their gates and queues.
func submitArgs(rulesVersion int64, gateOf map[string]*dispatch.SourceGate, items []dispatch.Submission, page []int) []any {
	gates, queues := make(map[string]int, 1), make(map[string]int, 1)
	met, twice := make(map[dispatch.TaskID]struct{}, len(page)), 0
	var gate, queue []any
	var all []series
	for _, i := range page {
		item := &items[i]
		g := gates[item.SourceUID]
		if g == 0 {
			g = len(gates) + 1
			gates[item.SourceUID] = g
			gate = append(gate, gateArgs(gateOf[item.SourceUID])...)
		}
		q := queues[item.Queue]
		if q == 0 {
			q = len(queues) + 1
			queues[item.Queue] = q
			queue = append(queue, item.Queue)
		}
		if _, ok := met[item.ID]; ok {
			twice = 1
		}
		met[item.ID] = struct{}{}
		all = addToSeries(all, g, q, item)
	}
	var packed []byte
	for i := range all {
		packed = all[i].append(packed)
	}
	texts := itemTexts(items, page)
	args := make([]any, 0, 6+len(gate)+len(queue)+len(texts))
	args = append(args, rulesVersion, len(gates), len(queues), len(all), twice)
	args = append(append(append(args, gate...), queue...), packed)
	for i := range texts {
		args = append(args, &texts[i])
	}
	return args
}

// textsAtFirst limits the buffer that is allocated by the size of the first item: the others may be much smaller.
const textsAtFirst = 64 << 10

// itemTexts are, for each item of a page, the end of its id and the rest of its record, all in one string.
func itemTexts(items []dispatch.Submission, page []int) []string {
	texts := make([]string, 2*len(page))
	var all strings.Builder
	var rest []byte
	for n, i := range page {
		if rest = record.AppendSubmission(rest[:0], &items[i]); n == 0 {
			all.Grow(min(len(page)*len(rest), textsAtFirst))
		}
		begin := all.Len()
		all.Write(rest)
		_, texts[2*n], _ = strings.Cut(string(items[i].ID), "-")
		texts[2*n+1] = all.String()[begin:]
	}
	return texts
}

// series are consecutive items that differ only in their ids and in fields that the script does not decide by.
type series struct {
	terms seriesTerms
	items int
}

type seriesTerms struct {
	gate, queue                 int
	slot                        string
	recurring, hop              bool
	priority                    byte
	ifExists                    dispatch.IfExists
	due, revisitAfter, modified int64
}

// addToSeries adds an item to the last series, or to a new one.
func addToSeries(all []series, gate, queue int, s *dispatch.Submission) []series {
	slot, _, _ := strings.Cut(string(s.ID), "-")
	terms := seriesTerms{
		gate: gate, queue: queue, slot: slot, recurring: s.Recurring, hop: s.Redirect.Hops > 0, priority: byte(s.Priority), ifExists: s.IfExists,
		due: pack.Millis(s.Due), revisitAfter: pack.Span(s.RevisitAfter), modified: pack.Millis(s.Modified),
	}
	if s.IfExists == dispatch.IfExistsRetry {
		terms.modified = int64(s.Revision)
	}
	if n := len(all); n == 0 || all[n-1].terms != terms {
		all = append(all, series{terms: terms})
	}
	all[len(all)-1].items++
	return all
}

// append packs the series: >I2I2 BBB I6I6I6 I2 Bc0.
func (s *series) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(s.terms.gate))
	b = binary.BigEndian.AppendUint16(b, uint16(s.terms.queue))
	recurring := byte(0)
	if s.terms.recurring {
		recurring = 1
	} else if s.terms.hop {
		recurring = 2
	}
	b = append(b, recurring, s.terms.priority, byte(s.terms.ifExists))
	b = pack.Append48(b, s.terms.due)
	b = pack.Append48(b, s.terms.revisitAfter)
	b = pack.Append48(b, s.terms.modified)
	b = binary.BigEndian.AppendUint16(b, uint16(s.items))
	return pack.AppendShort(b, s.terms.slot)
}
