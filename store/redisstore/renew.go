package redisstore

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// The answers of lua/renew.lua. From lostByResult on, the result of the lease
// that settled is added.
const lostByResult = 100

var lostReasons = [...]dispatch.LostReason{
	dispatch.LostNone, dispatch.LostUnknownTask, dispatch.LostNotLeased, dispatch.LostTaken,
	dispatch.LostMaxHold, dispatch.LostLockDeleted,
}

// Renew implements [dispatch.Leases].
func (s *Store) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	results := make([]dispatch.RenewResult, len(renewals))
	for i := range results {
		results[i].Lost = dispatch.LostUnknownTask
	}
	pages := s.pages(len(renewals), dispatch.MaxRenewals, func(i int) dispatch.TaskID { return renewals[i].ID })
	calls := make([]call, len(pages))
	for i, p := range pages {
		calls[i] = call{shard: p.shard, args: renewalArgs(renewals, p.items)}
	}
	replies, err := s.runAll(ctx, "renew leases", s.scripts.renew, calls)
	if err != nil {
		return nil, err
	}
	for i, p := range pages {
		r := readReply(replies[i])
		for _, n := range p.items {
			results[n] = readRenewal(r)
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return results, nil
}

// renewalArgs names the holders of a page of renewals and packs those:
// >c17 I2 Bc0 B I4c0.
func renewalArgs(renewals []dispatch.Renewal, items []int) []any {
	var args []any
	known := make(holders, 1)
	packed := make([]byte, 0, 64*len(items))
	for _, n := range items {
		r := &renewals[n]
		var by holder
		by, args = known.of(r.Token, args)
		packed = by.appendDigest(packed, r.Token)
		packed = binary.BigEndian.AppendUint16(packed, by.number)
		packed = appendShort(packed, string(r.ID))
		packed = appendLong(append(packed, given(r.Cursor)), r.Cursor)
	}
	return append(args, packed)
}

// appendShort appends a text of at most 255 bytes after its length.
func appendShort(b []byte, text string) []byte {
	return append(append(b, byte(len(text))), text...)
}

// appendLong appends bytes after their length.
func appendLong(b, bytes []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(bytes))) //nolint:gosec // all that is packed has a limit
	return append(b, bytes...)
}

// given is 1 for bytes that are there, be they empty.
func given(b []byte) byte {
	if b != nil {
		return 1
	}
	return 0
}

// readRenewal reads the answer to a renewal: the duration of a lease that goes
// on for all of it, else what became of it.
func readRenewal(r *reply) dispatch.RenewResult {
	switch v := r.any().(type) {
	case int64:
		d := time.Duration(v) * time.Millisecond
		return dispatch.RenewResult{Remaining: d, Duration: d}
	case []any:
		part := &reply{values: v}
		result := readLost(part)
		r.join(part)
		return result
	default:
		r.fail("the answer to a renewal", v)
		return dispatch.RenewResult{Lost: dispatch.LostNotLeased}
	}
}

func readLost(r *reply) dispatch.RenewResult {
	lost, remaining, cancel, duration := r.integer(), r.integer(), r.integer(), r.integer()
	switch {
	case lost >= lostByResult:
		return dispatch.RenewResult{Lost: dispatch.LostBy(dispatch.Result(lost - lostByResult))}
	case lost >= int64(len(lostReasons)) || lost < 0:
		r.fail("a reason", lost)
		return dispatch.RenewResult{Lost: dispatch.LostNotLeased}
	case lost > 0:
		return dispatch.RenewResult{Lost: lostReasons[lost]}
	}
	return dispatch.RenewResult{
		Remaining: time.Duration(remaining) * time.Millisecond,
		Duration:  time.Duration(duration) * time.Millisecond,
		Cancel:    dispatch.CancelReason(cancel),
	}
}
