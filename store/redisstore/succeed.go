package redisstore

import (
	"encoding/binary"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// readUnread reads the answers to a page of unread transitions: no more than the code of
// one that is applied.
func readUnread(r *reply, items []int, results []dispatch.ApplyResult) {
	codes := r.bytes(len(items))
	for k, n := range items {
		results[n] = dispatch.ApplyResult{Code: dispatch.ApplyCode(codes[k]), State: dispatch.StateDone}
		if results[n].Code != dispatch.Applied {
			results[n].Prior, results[n].State, results[n].Due = dispatch.Result(r.integer()), dispatch.State(r.integer()), instant(r.integer())
		}
	}
}

// unreadArgs packs a page of unread transitions, of each >c26 c17 I6 I2; their slots, >I2 Bc0;
// what few of them say besides, >I2 I4 I2; and names what they refer to: holders and
// memos (lua/succeed.lua).
func unreadArgs(transitions []dispatch.Transition, items []int) []any {
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
		packed = append48(by.appendDigest(append(packed, end...), x.Lease), span(x.Queue.FetchDuration))
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
		s.packed = appendShort(append(s.packed, 0, 0), slot)
	}
	n := s.packed[s.run:]
	binary.BigEndian.PutUint16(n, binary.BigEndian.Uint16(n)+1)
}
