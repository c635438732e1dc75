package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// genSucceed reports successes unread, now and then the same one twice, or beside what a
// policy has computed.
func (m *model) genSucceed() step {
	var transitions []dispatch.Transition
	leased := m.leased()
	for range one(m, 1, 2, 5) {
		s, ok := m.success(leased)
		if !ok {
			return m.genClaim()
		}
		transitions = append(transitions, s)
		if m.chance(10) && len(leased) > 0 {
			task := one(m, leased...).Task
			transitions = append(transitions, m.ending(&task))
		}
	}
	return m.applyStep(transitions)
}

// success is of one of the leased tasks, or of none; false: there is nothing to say.
func (m *model) success(leased []*modelTask) (s dispatch.Transition, ok bool) {
	g := m.stale()
	switch {
	case m.chance(10) && g != nil:
		s = success(g)
	case m.chance(3) && g != nil: // in wrong hands
		s = success(g)
		s.Lease.Collector += "x"
	case len(leased) > 0:
		t := one(m, leased...)
		s = unread(t.ID, t.Lease.Token)
	case m.chance(10):
		unknown := item(one(m, m.sources...).gate, one(m, modelQueues()...), "unknown")
		s = unread(unknown.ID, dispatch.LeaseToken{Collector: "c0", ClientToken: "t", Fence: 1})
	default:
		return s, false
	}
	s.Queue.FetchDuration = one(m, 0, 120*time.Millisecond, time.Second, 7*time.Second+300*time.Microsecond)
	if m.chance(4) {
		s.Queue.QueueDelay = m.asked()
	}
	if m.chance(30) {
		s.Memo = []byte(one(m, "", "etag", "another etag"))
	}
	return s, true
}

// applyUnread predicts what an unread transition is answered: what the policy makes of
// it, where it has nothing to decide.
func (w *world) applyUnread(tr *dispatch.Transition) dispatch.ApplyResult {
	t := w.task(tr.ID)
	if t == nil || t.Lease == nil || t.Lease.Digest != tr.Lease.Digest() {
		return w.apply(&dispatch.Transition{ID: tr.ID, Token: tr.Lease.Digest()})
	}
	gate := w.gate(t)
	if t.Recurring || t.CancelRequested != dispatch.CancelNone || t.AgainRequested || gate.Deleted || gate.Remember == 0 {
		w.count("succeed POLICY")
		return dispatch.ApplyResult{Code: dispatch.ApplyUnread, State: dispatch.StateLeased}
	}
	read := reported(&t.Task, tr, gate.Remember, w.now())
	w.count("succeed DONE")
	return w.apply(&read)
}
