package redisstore

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

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
)

// transitionArgs packs a transition: its id, its numbers in fixed places, and
// what may be missing.
func transitionArgs(t *dispatch.Transition) ([]any, error) {
	var failure, attempt []byte
	var err error
	if t.LastError != nil {
		if failure, err = json.Marshal(t.LastError); err != nil {
			return nil, fmt.Errorf("%w: last error of task %s: %w", dispatch.ErrInvalid, t.ID, err)
		}
	}
	if t.Attempt != nil {
		if attempt, err = json.Marshal(t.Attempt); err != nil {
			return nil, fmt.Errorf("%w: attempt of task %s: %w", dispatch.ErrInvalid, t.ID, err)
		}
	}
	return []any{
		string(t.ID), packTransition(t),
		optionalArg(t.Memo, t.Memo != nil), optionalArg(t.Cursor, t.Cursor != nil),
		optionalArg(failure, t.LastError != nil), optionalArg(attempt, t.Attempt != nil),
	}, nil
}

// packTransition packs the numbers:
// >c16 I4 BBBB I6I6I6I6 I4I4I2I2I2BBB I6 I6I6I4.
func packTransition(t *dispatch.Transition) []byte {
	b := make([]byte, 0, 94)
	b = append(b, digestArg(t.Token)...)
	b = binary.BigEndian.AppendUint32(b, t.Revision)
	b = append(b, transitionBits(t), byte(t.Result), byte(t.State), byte(t.Queue.Kind))
	b = append48(b, millis(t.Due))
	b = append48(b, span(t.Delay))
	b = append48(b, millis(t.FirstDue))
	b = append48(b, millis(t.Run))
	c := &t.Counters
	b = binary.BigEndian.AppendUint32(b, c.Cycle)
	b = binary.BigEndian.AppendUint32(b, c.Attempt)
	b = binary.BigEndian.AppendUint16(b, c.Failures)
	b = binary.BigEndian.AppendUint16(b, c.Expirations)
	b = binary.BigEndian.AppendUint16(b, c.Throttled)
	b = append(b, c.GivenUp, c.ExpiredCycles, c.PermanentCycles)
	b = append48(b, span(t.Remember))
	b = append48(b, span(t.Queue.FetchDuration))
	b = append48(b, span(t.Queue.RetryAfter))
	return appendAsked(b, t.Queue.QueueDelay)
}

// appendAsked appends what a host asks for, in four bytes: 0 = not said, else one
// more than it is.
func appendAsked(b []byte, asked *time.Duration) []byte {
	if asked == nil {
		return append(b, 0, 0, 0, 0)
	}
	return binary.BigEndian.AppendUint32(b, uint32(min(span(*asked), math.MaxUint32-1)+1))
}

// append48 appends a number below 2^48: times and durations in ms.
func append48(b []byte, n int64) []byte {
	n = min(max(n, 0), 1<<48-1)
	return append(b, byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func transitionBits(t *dispatch.Transition) byte {
	var bits byte
	for _, flag := range []struct {
		set bool
		bit byte
	}{
		{t.Expired, bitExpired},
		{t.Settled, bitSettled},
		{t.Shrink, bitShrink},
		{t.ClearFlags, bitClearFlags},
		{t.SourceSuccess, bitSourceSuccess},
		{t.SourceFailure, bitSourceFailure},
		{t.ClearError, bitClearError},
		{!t.Due.IsZero() && t.Due.After(time.UnixMilli(0)), bitDue},
	} {
		if flag.set {
			bits |= flag.bit
		}
	}
	return bits
}
