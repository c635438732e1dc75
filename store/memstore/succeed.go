package memstore

import (
	"context"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Succeed implements [dispatch.Leases].
func (s *Store) Succeed(ctx context.Context, successes []dispatch.Success) ([]dispatch.ApplyResult, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	results := make([]dispatch.ApplyResult, len(successes))
	for i := range results {
		results[i].Code = dispatch.ApplyNotFound
	}
	idOf := func(i int) dispatch.TaskID { return successes[i].ID }
	s.byShard(len(successes), dispatch.MaxTransitions, idOf, func(sh *shard, page []int) {
		sh.begin()
		defer sh.end()
		for _, i := range page {
			results[i] = sh.succeed(&successes[i])
		}
		sh.sweep(2 * len(page))
	})
	return results, nil
}

// succeed settles one task, if that needs no policy.
func (s *shard) succeed(success *dispatch.Success) dispatch.ApplyResult {
	r := s.record(success.ID)
	if r == nil {
		return dispatch.ApplyResult{Code: dispatch.ApplyNotFound}
	}
	t := dispatch.Transition{ID: success.ID}
	if r.lease != nil && r.lease.token == success.Token {
		if t.Token = r.lease.digest; !plain(r) {
			return dispatch.ApplyResult{Code: dispatch.ApplyPolicy, State: dispatch.StateLeased}
		}
	} else {
		t.Token = success.Token.Digest()
	}
	done(&t, r, success)
	return s.applyTo(r, &t)
}

// plain reports whether a success of the record leaves nothing to decide.
func plain(r *record) bool {
	gate := &r.lane.source.gate
	return !r.recurring && r.cancel == dispatch.CancelNone && !r.again &&
		!r.lane.source.forgotten && !gate.Deleted && gate.Remember > 0
}

// done is the transition of a plain success.
func done(t *dispatch.Transition, r *record, success *dispatch.Success) {
	t.Revision, t.Result, t.State = r.revision, dispatch.ResultSucceeded, dispatch.StateDone
	t.FirstDue, t.Run = instant(r.firstDue), instant(r.run)
	t.Counters = dispatch.Counters{Cycle: r.counters.Cycle + 1}
	t.Settled, t.Shrink, t.SourceSuccess = true, true, true
	t.Remember, t.Memo = r.lane.source.gate.Remember, success.Memo
	t.Queue = dispatch.QueueEffect{Kind: dispatch.QueueSucceeded, FetchDuration: success.FetchDuration, QueueDelay: success.QueueDelay}
}
