package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// Beats implements [dispatch.Collectors].
func (s *Store) Beats(ctx context.Context, beats []dispatch.CollectorInfo) ([]dispatch.PollState, error) {
	encoded := make([]string, len(beats))
	for i := range beats {
		b, err := json.Marshal(&beats[i])
		if err != nil {
			return nil, fmt.Errorf("%w: beat of collector %.200q cannot be encoded: %w", dispatch.ErrInvalid, beats[i].ID, err)
		}
		encoded[i] = string(b)
	}
	calls := s.scripts.ByName(len(beats), nil, func(i int) (string, []any) {
		return beats[i].ID, []any{beats[i].ID, beats[i].Session, encoded[i], beats[i].Ended}
	})
	replies, err := s.scripts.RunAll(ctx, "record beats", script.Beats, calls)
	if err != nil {
		return nil, err
	}
	states := make([]dispatch.PollState, len(beats))
	for i, c := range calls {
		r := replies[i]
		for _, n := range c.Items {
			states[n].Replaced, states[n].NewSession = r.Bool(), r.Bool()
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return states, nil
}

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
	calls := s.scripts.Pages(len(renewals), bounds.MaxRenewals, func(i int) dispatch.TaskID { return renewals[i].ID })
	for i, c := range calls {
		calls[i].Args = s.renewalArgs(c.Shard, renewals, c.Items)
	}
	replies, err := s.scripts.RunAll(ctx, "renew leases", script.Renew, calls)
	if err != nil {
		return nil, err
	}
	var long []int
	for i, c := range calls {
		r := replies[i]
		readRenewals(r, c.Items, results)
		if r.Err != nil {
			return nil, r.Err
		}
		long = append(long, takeLong(c.Items, results)...)
	}
	s.prolongRenewed(ctx, renewals, results, long)
	return results, nil
}

// renewalArgs groups a page of renewals by holder and packs their digests: >I2c8 for each holder, >I8 for each of its
// renewals; then the cursors, >I2I4c0. Each holder's name follows, with the keys of its tasks and locks.
func (s *Store) renewalArgs(shard int, renewals []dispatch.Renewal, items []int) []any {
	slices.SortStableFunc(items, func(a, b int) int { return compareHolders(&renewals[a].Token, &renewals[b].Token) })
	keys, n := s.keys.Shard(shard), len(items)
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
			cursors = pack.AppendLong(binary.BigEndian.AppendUint16(cursors, uint16(i+1)), r.Cursor) //nolint:gosec // at most MaxRenewals
		}
	}
	args[0], args[1] = digests, cursors
	return args
}

func compareHolders(a, b *dispatch.LeaseToken) int {
	return cmp.Or(cmp.Compare(a.Collector, b.Collector), cmp.Compare(a.ClientToken, b.ClientToken))
}

// readRenewals reads the answers to a page of renewals: the duration and number of leases with a full renewal, else the
// result of one. A negative duration marks client tokens to record for longer.
func readRenewals(r *pack.Reply, items []int, results []dispatch.RenewResult) {
	for len(items) > 0 && r.Err == nil {
		duration, ok := r.OptionalInteger()
		if !ok {
			part := r.Array()
			results[items[0]] = readLost(part)
			r.Join(part)
			items = items[1:]
			continue
		}
		row := r.Integer()
		if row < 1 || row > int64(len(items)) {
			r.Fail("the number of renewals", row)
			return
		}
		d := time.Duration(duration) * time.Millisecond
		for _, n := range items[:row] {
			results[n] = dispatch.RenewResult{Remaining: d, Duration: max(d, -d)}
		}
		items = items[row:]
	}
}

// takeLong finds the renewals with client tokens to record for longer.
func takeLong(items []int, results []dispatch.RenewResult) (long []int) {
	for _, n := range items {
		if r := &results[n]; r.Remaining < 0 {
			r.Remaining, long = -r.Remaining, append(long, n)
		}
	}
	return long
}

func readLost(r *pack.Reply) dispatch.RenewResult {
	lost, remaining, cancel, duration := r.Integer(), r.Duration(), r.Integer(), r.Duration()
	switch {
	case lost >= lostByResult:
		return dispatch.RenewResult{Lost: dispatch.LostBy(dispatch.Result(lost - lostByResult))}
	case lost >= int64(len(lostReasons)) || lost < 0:
		r.Fail("a reason", lost)
		return dispatch.RenewResult{Lost: dispatch.LostNotLeased}
	case lost > 0:
		return dispatch.RenewResult{Lost: lostReasons[lost]}
	}
	return dispatch.RenewResult{Remaining: remaining, Duration: duration, Cancel: dispatch.CancelReason(cancel)}
}

// The grant of a client token may be in any shard, and a search of all shards at each fetch costs too much. So a store
// of several shards records each poll in the collector's home shard, for at least pollStep. It searches all shards only
// for a poll that is recorded there. For longer leases, the claim and the renewals extend the record.
const (
	// pollStep is the step of time of a set of polls (lua/token.lua).
	pollStep = 2 * dispatch.TokenMemory
	// pollWait is the longest time from a poll to its claim.
	pollWait = bounds.MaxWait + 30*time.Second
	// prolongEach is the interval of the records of a renewed lease in the home shard (lua/renew.lua); two in a row may
	// fail.
	prolongEach  = time.Minute
	prolongSlack = 3 * prolongEach
	// coveredLease is how long a lease may last without another record: the record of its poll lasts until then, and
	// for TokenMemory after that.
	coveredLease = pollStep - pollWait - dispatch.TokenMemory - prolongSlack
	// prolongTimeout limits how long renewals wait for a home shard.
	prolongTimeout = time.Second
)

// prolong records the client tokens of holders in their home shards, until TokenMemory after the end of their leases.
// The time includes renewals that do not extend the record.
func (s *Store) prolong(ctx context.Context, held []dispatch.LeaseToken, lasting time.Duration) error {
	lasting += dispatch.TokenMemory + prolongSlack
	calls := s.scripts.ByName(len(held), []any{lasting.Milliseconds()}, func(i int) (string, []any) {
		return held[i].Collector, []any{pack.Holder(held[i].Collector, held[i].ClientToken)}
	})
	_, err := s.scripts.RunAll(ctx, "note client tokens", script.Prolong, calls)
	return err
}

// prolongRenewed records long leases in their home shards. It does not wait long for an unavailable shard: renewals
// must not wait, and the next ones retry.
func (s *Store) prolongRenewed(ctx context.Context, renewals []dispatch.Renewal, results []dispatch.RenewResult, long []int) {
	if s.scripts.Shards == 1 || len(long) == 0 {
		return
	}
	var held []dispatch.LeaseToken
	var lasting time.Duration
	for _, n := range long { // of each shard those of one holder follow each other
		held, lasting = append(held, renewals[n].Token), max(lasting, results[n].Remaining)
	}
	held = slices.CompactFunc(held, func(a, b dispatch.LeaseToken) bool { return compareHolders(&a, &b) == 0 })
	ctx, cancel := context.WithTimeout(ctx, prolongTimeout)
	defer cancel()
	if err := s.prolong(ctx, held, lasting); err != nil {
		s.log.Debug("client tokens that hold leases for long could not be noted; the next renewals note them", zap.Int("tokens", len(held)), zap.Error(err))
	}
}
