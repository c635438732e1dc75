package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// Apply implements [dispatch.Leases].
func (s *Store) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	results := make([]dispatch.ApplyResult, len(transitions))
	for i := range results {
		results[i].Code = dispatch.ApplyNotFound
	}
	calls := s.scripts.Pages(len(transitions), dispatch.MaxTransitions, func(i int) dispatch.TaskID { return transitions[i].ID })
	for i, c := range calls {
		packed := make([]byte, 0, 512*len(c.Items))
		for _, n := range c.Items {
			var err error
			if packed, err = appendTransition(packed, &transitions[n]); err != nil {
				return nil, err
			}
		}
		calls[i].Args = []any{packed}
	}
	replies, err := s.scripts.RunAll(ctx, "apply transitions", script.Apply, calls)
	if err != nil {
		return nil, err
	}
	for i, c := range calls {
		r := replies[i]
		for _, n := range c.Items {
			results[n] = readApplied(r)
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return results, nil
}

func readApplied(r *pack.Reply) dispatch.ApplyResult {
	return dispatch.ApplyResult{
		Code: dispatch.ApplyCode(r.Integer()), Prior: dispatch.Result(r.Integer()),
		State: dispatch.State(r.Integer()), Due: r.Time(),
	}
}

// The bits of a transition (lua/apply.lua).
const (
	bitExpired = 1 << iota
	bitSettled
	bitShrink
	bitClearFlags
	bitSourceSuccess
	bitSourceFailure
	bitClearError
	bitDue
	bitMemo
	bitCursor
)

// appendTransition packs a transition: its numbers in fixed places, its id, and
// what may be missing, with its length:
// >c17 I4 I2BBB I4I4 c9 I6I6I6 I6I6 I6I6I4 Bc0 I4c0 I4c0 I4c0 I4c0 Bc0. Of it, the
// counters are as the record has them.
func appendTransition(b []byte, t *dispatch.Transition) ([]byte, error) {
	b = record.AppendDigest(b, t.Token)
	b = binary.BigEndian.AppendUint32(b, t.Revision)
	b = binary.BigEndian.AppendUint16(b, transitionBits(t))
	b = append(b, byte(t.Result), byte(t.State), byte(t.Queue.Kind))
	c := &t.Counters
	b = binary.BigEndian.AppendUint32(b, c.Cycle)
	b = binary.BigEndian.AppendUint32(b, c.Attempt)
	b = binary.BigEndian.AppendUint16(b, c.Failures)
	b = binary.BigEndian.AppendUint16(b, c.Expirations)
	b = binary.BigEndian.AppendUint16(b, c.Throttled)
	b = append(b, c.GivenUp, c.ExpiredCycles, c.PermanentCycles)
	b = pack.Append48(b, pack.Millis(t.Run))
	b = pack.Append48(b, pack.Millis(t.Due))
	b = pack.Append48(b, pack.Millis(t.FirstDue))
	b = pack.Append48(b, pack.Span(t.Delay))
	b = pack.Append48(b, pack.Span(t.Remember))
	b = pack.Append48(b, pack.Span(t.Queue.FetchDuration))
	b = pack.Append48(b, pack.Span(t.Queue.RetryAfter))
	b = appendAsked(b, t.Queue.QueueDelay)
	b = pack.AppendLong(pack.AppendLong(pack.AppendShort(b, string(t.ID)), t.Memo), t.Cursor)
	b, err := pack.AppendJSON(b, t.LastError)
	if err != nil {
		return nil, fmt.Errorf("%w: last error of task %s: %w", dispatch.ErrInvalid, t.ID, err)
	}
	if b, err = pack.AppendJSON(b, t.Attempt); err != nil {
		return nil, fmt.Errorf("%w: attempt of task %s: %w", dispatch.ErrInvalid, t.ID, err)
	}
	return pack.AppendShort(b, string(packFiltered(t.Filtered))), nil
}

// appendAsked appends what a host asks for, in four bytes: 0 = not said, else one
// more than it is.
func appendAsked(b []byte, asked *time.Duration) []byte {
	if asked == nil {
		return append(b, 0, 0, 0, 0)
	}
	return binary.BigEndian.AppendUint32(b, uint32(min(pack.Span(*asked), math.MaxUint32-1)+1))
}

func transitionBits(t *dispatch.Transition) uint16 {
	var bits uint16
	for _, flag := range []struct {
		set bool
		bit uint16
	}{
		{t.Expired, bitExpired},
		{t.Settled, bitSettled},
		{t.Shrink, bitShrink},
		{t.ClearFlags, bitClearFlags},
		{t.SourceSuccess, bitSourceSuccess},
		{t.SourceFailure, bitSourceFailure},
		{t.ClearError, bitClearError},
		{!t.Due.IsZero() && t.Due.After(time.UnixMilli(0)), bitDue},
		{t.Memo != nil, bitMemo},
		{t.Cursor != nil, bitCursor},
	} {
		if flag.set {
			bits |= flag.bit
		}
	}
	return bits
}
