package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// Apply implements [dispatch.Leases]. Unread transitions have their own script, and come before the others.
func (s *Store) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	results := make([]dispatch.ApplyResult, len(transitions))
	for i := range results {
		results[i].Code = dispatch.ApplyNotFound
	}
	for _, unread := range [...]bool{true, false} {
		if err := s.apply(ctx, transitions, unread, results); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// apply applies only the transitions that are unread, or only the others.
func (s *Store) apply(ctx context.Context, transitions []dispatch.Transition, unread bool, results []dispatch.ApplyResult) (err error) {
	calls := s.scripts.Pages(len(transitions), bounds.MaxTransitions, func(i int) dispatch.TaskID {
		if transitions[i].Unread != unread {
			return "" // in no page
		}
		return transitions[i].ID
	})
	name, args, read := script.Apply, transitionArgs, readApplied
	if unread {
		name, args, read = script.Succeed, unreadArgs, readUnread
	}
	for i, c := range calls {
		if calls[i].Args, err = args(transitions, c.Items); err != nil {
			return err
		}
	}
	replies, err := s.scripts.RunAll(ctx, "apply transitions", name, calls)
	if err != nil {
		return err
	}
	for i, c := range calls {
		if read(replies[i], c.Items, results); replies[i].Err != nil {
			return replies[i].Err
		}
	}
	return nil
}

// readApplied reads the answers to a page of transitions.
func readApplied(r *pack.Reply, items []int, results []dispatch.ApplyResult) {
	for _, n := range items {
		results[n] = dispatch.ApplyResult{
			Code: dispatch.ApplyCode(r.Integer()), Prior: dispatch.Result(r.Integer()),
			State: dispatch.State(r.Integer()), Due: r.Time(),
		}
	}
}

// The bits of a transition (lua/apply.lua).
const (
	bitExpired = 1 << iota
	bitSettled
	bitShrink
	bitClearAgain
	bitSourceSuccess
	bitSourceFailure
	bitClearError
	bitDue
	bitMemo
	bitCursor
	bitBehind
)

// transitionArgs packs a page of transitions, one after the other.
func transitionArgs(transitions []dispatch.Transition, items []int) ([]any, error) {
	packed := make([]byte, 0, 512*len(items))
	for _, n := range items {
		var err error
		if packed, err = appendTransition(packed, &transitions[n]); err != nil {
			return nil, err
		}
	}
	return []any{packed}, nil
}

// appendTransition packs a transition: its numbers in fixed places, its id, and the optional parts, each with its
// length: >c17 I4 I2BBB I4I4 c9 I6I6I6 I6I6 I6I6I4c4 Bc0 I4c0 I4c0 I4c0 I4c0 Bc0. The counters have the format of the
// record.
func appendTransition(b []byte, t *dispatch.Transition) ([]byte, error) {
	b = record.AppendDigest(b, t.Token)
	b = binary.BigEndian.AppendUint32(b, t.Revision)
	b = binary.BigEndian.AppendUint16(b, transitionBits(t))
	b = append(b, byte(t.Result), byte(t.State), byte(t.Queue.Kind))
	b = record.AppendCounters(b, &t.Counters, t.Counters.Attempt)
	b = pack.Append48(b, pack.Millis(t.Run))
	b = pack.Append48(b, pack.Millis(t.Due))
	b = pack.Append48(b, pack.Millis(t.FirstDue))
	b = pack.Append48(b, pack.Span(t.Delay))
	b = pack.Append48(b, pack.Span(t.Remember))
	b = pack.Append48(b, pack.Span(t.Queue.FetchDuration))
	b = pack.Append48(b, pack.Span(t.Queue.RetryAfter))
	b = appendAsked(b, t.Queue.QueueDelay)
	b = binary.BigEndian.AppendUint32(b, t.Queue.URL)
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

// appendAsked appends the delay that a host asks for, in four bytes: 0 = not known, else the delay plus one.
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
		{t.ClearAgain, bitClearAgain},
		{t.SourceSuccess, bitSourceSuccess},
		{t.SourceFailure, bitSourceFailure},
		{t.ClearError, bitClearError},
		{!t.Due.IsZero() && t.Due.After(time.UnixMilli(0)), bitDue},
		{t.Memo != nil, bitMemo},
		{t.Cursor != nil, bitCursor},
		{t.Behind, bitBehind},
	} {
		if flag.set {
			bits |= flag.bit
		}
	}
	return bits
}

// readUnread reads the answers to a page of unread transitions; an applied one has only a code.
func readUnread(r *pack.Reply, items []int, results []dispatch.ApplyResult) {
	codes := r.Bytes(len(items))
	for k, n := range items {
		results[n] = dispatch.ApplyResult{Code: dispatch.ApplyCode(codes[k]), State: dispatch.StateDone}
		if results[n].Code != dispatch.Applied {
			results[n].Prior, results[n].State, results[n].Due = dispatch.Result(r.Integer()), dispatch.State(r.Integer()), r.Time()
		}
	}
}

// unreadArgs packs a page of unread transitions: each >c26 c17 I6 I2; their slots, >I2 Bc0; their optional fields, >I2
// I4 I2; and the holders and memos that they refer to (lua/succeed.lua).
func unreadArgs(transitions []dispatch.Transition, items []int) ([]any, error) {
	args := make([]any, 4, 5)
	known, twice := make(holders, 1), 0
	met := make(map[dispatch.TaskID]struct{}, len(items))
	packed := make([]byte, 0, 51*len(items))
	var slots slotRuns
	var extras []byte
	for i, item := range items {
		x := &transitions[item]
		if _, ok := met[x.ID]; ok {
			twice = 1
		}
		met[x.ID] = struct{}{}
		behind := strings.IndexByte(string(x.ID), '-') + 1
		slot, end := x.ID[:behind], x.ID[behind:]
		slots.add(string(slot))
		var by holder
		by, args = known.of(x.Lease, args)
		packed = pack.Append48(by.appendDigest(append(packed, end...), x.Lease), pack.Span(x.Queue.FetchDuration))
		packed = binary.BigEndian.AppendUint16(packed, by.number)
		if x.Queue.QueueDelay == nil && x.Memo == nil {
			continue
		}
		memo := 0
		if x.Memo != nil {
			args = append(args, x.Memo)
			memo = len(args)
		}
		extras = appendAsked(binary.BigEndian.AppendUint16(extras, uint16(i+1)), x.Queue.QueueDelay)
		extras = binary.BigEndian.AppendUint16(extras, uint16(memo))
	}
	args[0], args[1], args[2], args[3] = twice, packed, slots.packed, extras
	return args, nil
}

// slotRuns are the slots of consecutive ids, each with its "-" and the number of its ids.
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

// holders are the holders of the leases in a script call; each is one argument.
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
