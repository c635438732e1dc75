package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// genSucceed reports successes, now and then the same one twice.
func (m *model) genSucceed() step {
	var successes []dispatch.Success
	leased := m.leased()
	for range one(m, 1, 2, 5) {
		s, ok := m.success(leased)
		if !ok {
			return m.genClaim()
		}
		successes = append(successes, s)
	}
	return step{
		name: "succeed", text: fmt.Sprint(successes),
		do:  func(i *Instance) (any, error) { return i.Store.Succeed(m.ctx, successes) },
		see: func(answer any) error { return m.world.succeeded(successes, as[[]dispatch.ApplyResult](answer)) },
	}
}

// success is of one of the leased tasks, or of none; false: there is nothing to say.
func (m *model) success(leased []*modelTask) (s dispatch.Success, ok bool) {
	g := m.stale()
	switch {
	case m.chance(10) && g != nil:
		s = success(g)
	case m.chance(3) && g != nil: // in wrong hands
		s = success(g)
		s.Token.Collector += "x"
	case len(leased) > 0:
		t := one(m, leased...)
		s = dispatch.Success{ID: t.ID, Token: t.Lease.Token}
	case m.chance(10):
		unknown := item(one(m, m.sources...).gate, one(m, modelQueues()...), "unknown")
		s = dispatch.Success{ID: unknown.ID, Token: dispatch.LeaseToken{Collector: "c0", ClientToken: "t", Fence: 1}}
	default:
		return s, false
	}
	s.FetchDuration = one(m, 0, 120*time.Millisecond, time.Second, 7*time.Second+300*time.Microsecond)
	if m.chance(4) {
		s.QueueDelay = m.asked()
	}
	if m.chance(30) {
		s.Memo = []byte(one(m, "", "etag", "another etag"))
	}
	return s, true
}

// carried is what a want of a claim in the shard reports.
func (m *model) carried(shard int) []dispatch.Success {
	var done []dispatch.Success
	for range one(m, 0, 0, 1, 2) {
		s, ok := m.success(m.leased())
		if ok && dispatch.ShardOf(s.ID.Slot(), m.world.shards) == shard {
			done = append(done, s)
		}
	}
	return done
}

// succeeded checks the answers to successes and takes them in.
func (w *world) succeeded(successes []dispatch.Success, got []dispatch.ApplyResult) error {
	if len(got) != len(successes) {
		return broken("%d successes answered %d results", len(successes), len(got))
	}
	for i := range successes {
		want, have := w.succeed(&successes[i]), got[i]
		if want.Code == dispatch.ApplyAlready || want.Code == dispatch.ApplyLost {
			have.Due, want.Due = time.Time{}, time.Time{}
		}
		if have.Code != want.Code || have.Prior != want.Prior || have.State != want.State || !have.Due.Equal(want.Due) {
			return broken("success of %s with %v answered %+v, want %+v", successes[i].ID, successes[i].Token, have, want)
		}
	}
	return nil
}

// succeed predicts what one success is answered: what the policy makes of it,
// where it has nothing to decide.
func (w *world) succeed(s *dispatch.Success) dispatch.ApplyResult {
	t := w.task(s.ID)
	if t == nil || t.Lease == nil || t.Lease.Digest != s.Token.Digest() {
		return w.apply(&dispatch.Transition{ID: s.ID, Token: s.Token.Digest()})
	}
	gate := w.gate(t)
	if t.Recurring || t.CancelRequested != dispatch.CancelNone || t.AgainRequested || gate.Deleted || gate.Remember == 0 {
		w.count("succeed POLICY")
		return dispatch.ApplyResult{Code: dispatch.ApplyPolicy, State: dispatch.StateLeased}
	}
	tr := reported(&t.Task, s, gate.Remember, w.now())
	w.count("succeed DONE")
	return w.apply(&tr)
}
