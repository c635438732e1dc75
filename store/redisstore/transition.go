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
	bitMemo
	bitCursor
)

// packTransitions packs a page of transitions, one after the other.
func packTransitions(transitions []dispatch.Transition, items []int) ([]byte, error) {
	packed := make([]byte, 0, 512*len(items))
	for _, n := range items {
		var err error
		if packed, err = appendTransition(packed, &transitions[n]); err != nil {
			return nil, err
		}
	}
	return packed, nil
}

// appendTransition packs a transition: its numbers in fixed places, its id, and
// what may be missing, with its length:
// >c17 I4 I2BBB I4I4 c9 I6I6I6 I6I6 I6I6I4 Bc0 I4c0 I4c0 I4c0 I4c0 Bc0. Of it, the
// counters are as the record has them.
func appendTransition(b []byte, t *dispatch.Transition) ([]byte, error) {
	b = appendDigest(b, t.Token)
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
	b = append48(b, millis(t.Run))
	b = append48(b, millis(t.Due))
	b = append48(b, millis(t.FirstDue))
	b = append48(b, span(t.Delay))
	b = append48(b, span(t.Remember))
	b = append48(b, span(t.Queue.FetchDuration))
	b = append48(b, span(t.Queue.RetryAfter))
	b = appendAsked(b, t.Queue.QueueDelay)
	b = appendLong(appendLong(appendShort(b, string(t.ID)), t.Memo), t.Cursor)
	b, err := appendJSON(b, t.LastError)
	if err != nil {
		return nil, fmt.Errorf("%w: last error of task %s: %w", dispatch.ErrInvalid, t.ID, err)
	}
	if b, err = appendJSON(b, t.Attempt); err != nil {
		return nil, fmt.Errorf("%w: attempt of task %s: %w", dispatch.ErrInvalid, t.ID, err)
	}
	return appendShort(b, string(packFiltered(t.Filtered))), nil
}

// appendJSON appends a value as JSON, nil as nothing.
func appendJSON[T any](b []byte, v *T) ([]byte, error) {
	if v == nil {
		return appendLong(b, nil), nil
	}
	text, err := json.Marshal(v)
	return appendLong(b, text), err
}

// optionalJSON is a value as JSON, nil as an empty string.
func optionalJSON[T any](v *T) (string, error) {
	if v == nil {
		return "", nil
	}
	text, err := json.Marshal(v)
	return string(text), err
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
