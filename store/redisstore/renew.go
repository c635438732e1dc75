package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
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
	pages := s.pages(len(renewals), bounds.MaxRenewals, func(i int) dispatch.TaskID { return renewals[i].ID })
	calls := make([]call, len(pages))
	for i, p := range pages {
		calls[i] = call{shard: p.shard, args: s.renewalArgs(p.shard, renewals, p.items)}
	}
	replies, err := s.runAll(ctx, "renew leases", s.scripts.renew, calls)
	if err != nil {
		return nil, err
	}
	var long []int
	for i, p := range pages {
		r := readReply(replies[i])
		readRenewals(r, p.items, results)
		if r.err != nil {
			return nil, r.err
		}
		long = append(long, takeLong(p.items, results)...)
	}
	s.prolongRenewed(ctx, renewals, results, long)
	return results, nil
}

// renewalArgs orders a page of renewals by their holders and packs their digests: of
// each holder >I2c8, of each of its renewals >I8; and apart from those the cursors,
// >I2I4c0. Each holder's name follows, with the keys of its tasks and locks.
func (s *Store) renewalArgs(shard int, renewals []dispatch.Renewal, items []int) []any {
	slices.SortStableFunc(items, func(a, b int) int { return compareHolders(&renewals[a].Token, &renewals[b].Token) })
	keys, n := s.keys.shard(shard), len(items)
	digests, cursors := make([]byte, 0, 10*n), []byte{}
	args, names := make([]any, 2, 3+2*n), make([]string, 2*n)
	many := 0 // where the number of the last holder's renewals stands
	for i, item := range items {
		r := &renewals[item]
		if i == 0 || compareHolders(&renewals[items[i-1]].Token, &r.Token) != 0 {
			args = append(args, r.Token.Collector+"/"+r.Token.ClientToken)
			many, digests = len(digests), append(digests, 0, 0)
			digests = binary.BigEndian.AppendUint64(digests, dispatch.HolderDigest(r.Token.Collector, r.Token.ClientToken))
		}
		binary.BigEndian.PutUint16(digests[many:], binary.BigEndian.Uint16(digests[many:])+1)
		digests = binary.BigEndian.AppendUint64(digests, r.Token.Fence)
		names[2*i], names[2*i+1] = keys.Task(r.ID), keys.Lock(r.ID)
		args = append(args, &names[2*i], &names[2*i+1])
		if r.Cursor != nil {
			cursors = appendLong(binary.BigEndian.AppendUint16(cursors, uint16(i+1)), r.Cursor) //nolint:gosec // at most MaxRenewals
		}
	}
	args[0], args[1] = digests, cursors
	return args
}

func compareHolders(a, b *dispatch.LeaseToken) int {
	return cmp.Or(cmp.Compare(a.Collector, b.Collector), cmp.Compare(a.ClientToken, b.ClientToken))
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

// readRenewals reads the answers to a page of renewals: the duration of leases that
// go on for all of it and how many those are, else what became of one. Of those that are
// to be told of, what remains is negative.
func readRenewals(r *reply, items []int, results []dispatch.RenewResult) {
	for len(items) > 0 && r.err == nil {
		duration, ok := r.optionalInteger()
		if !ok {
			part := r.array()
			results[items[0]] = readLost(part)
			r.join(part)
			items = items[1:]
			continue
		}
		row := r.integer()
		if row < 1 || row > int64(len(items)) {
			r.fail("the number of renewals", row)
			return
		}
		d := time.Duration(duration) * time.Millisecond
		for _, n := range items[:row] {
			results[n] = dispatch.RenewResult{Remaining: d, Duration: max(d, -d)}
		}
		items = items[row:]
	}
}

// takeLong finds the renewals whose client tokens are to be noted for longer.
func takeLong(items []int, results []dispatch.RenewResult) (long []int) {
	for _, n := range items {
		if r := &results[n]; r.Remaining < 0 {
			r.Remaining, long = -r.Remaining, append(long, n)
		}
	}
	return long
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
