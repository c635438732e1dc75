package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/history"
)

func (m *model) genApply() step {
	var transitions []dispatch.Transition
	var revoked []dispatch.Renewal // of holders that have not heard of it
	leased := m.leased()
	waiting := m.waiting()
	if m.chance(15) && len(leased) > 0 {
		return m.applyStep(m.urlsFailed(leased))
	}
	for range one(m, 1, 1, 2, 4) {
		g := m.stale()
		switch {
		case m.chance(10) && g != nil:
			task := g.Task
			transitions = append(transitions, m.ending(&task))
		case m.chance(12) && len(waiting) > 0:
			transitions = append(transitions, m.waitingEnd(&one(m, waiting...).Task))
		case m.chance(3) && len(leased) > 0: // as if it waited
			tr := m.waitingEnd(&one(m, leased...).Task)
			tr.Token = dispatch.LeaseDigest{}
			transitions = append(transitions, tr)
		case len(leased) > 0:
			task := one(m, leased...).Task
			tr := m.ending(&task)
			if m.chance(4) {
				tr.Revision--
			}
			if tr.Result == dispatch.ResultRevoked && m.chance(30) {
				revoked = append(revoked, dispatch.Renewal{ID: task.ID, Token: task.Lease.Token})
			}
			transitions = append(transitions, tr)
		case m.chance(10):
			unknown := item(one(m, m.sources...).gate, one(m, modelQueues()...), "unknown")
			transitions = append(transitions, dispatch.Transition{ID: unknown.ID, State: dispatch.StateCanceled, Revision: 1})
		default:
			return m.genClaim()
		}
	}
	return m.followed(m.applyStep(transitions), func() []step {
		if len(revoked) == 0 {
			return nil
		}
		return []step{m.renewStep(revoked)}
	})
}

// urlsFailed is the failure of most of what is leased of one queue.
func (m *model) urlsFailed(leased []*modelTask) []dispatch.Transition {
	var transitions []dispatch.Transition
	queue := one(m, leased...).Queue
	for _, t := range leased {
		switch {
		case t.Queue != queue:
		case m.chance(70):
			transitions = append(transitions, m.urlFailed(&t.Task))
		case m.chance(80):
			transitions = append(transitions, answered(&t.Task))
		}
	}
	return transitions
}

// urlFailed is the failure of one of few URLs.
func (m *model) urlFailed(t *dispatch.Task) dispatch.Transition {
	tr := urlFailed(t, m.rand.Uint32N(6))
	tr.Delay = one(m, 0, 0, time.Second, time.Minute)
	return tr
}

func (m *model) applyStep(transitions []dispatch.Transition) step {
	text := ""
	for i := range transitions {
		tr := &transitions[i]
		asked := "-"
		if tr.Queue.QueueDelay != nil {
			asked = tr.Queue.QueueDelay.String()
		}
		if tr.Unread {
			text += fmt.Sprintf("{%s unread %v queue=%v asked=%s} ", tr.ID, tr.Lease, tr.Queue, asked)
			continue
		}
		text += fmt.Sprintf("{%s %d %v->%v queue=%v asked=%s due=%s+%v rev=%d expired=%v behind=%v} ", tr.ID, tr.Token.Fence, tr.Result, tr.State,
			tr.Queue, asked, clockText(tr.Due), tr.Delay, tr.Revision, tr.Expired, tr.Behind)
	}
	return step{
		name: "apply", text: text,
		do:  func(i *Instance) (any, error) { return i.Store.Apply(m.ctx, transitions) },
		see: func(answer any) error { return m.world.applied(transitions, as[[]dispatch.ApplyResult](answer)) },
	}
}

// waitingEnd cancels a waiting task, or moves it.
func (m *model) waitingEnd(t *dispatch.Task) dispatch.Transition {
	if m.chance(70) {
		tr := canceled(t)
		tr.Remember = one(m, remember)
		return tr
	}
	tr := canceled(t)
	tr.State, tr.Settled, tr.Remember = dispatch.StateScheduled, false, 0
	tr.Delay, tr.Behind = one(m, 0, time.Second, time.Minute), m.chance(30)
	return tr
}

// ending is a random end of a lease.
func (m *model) ending(t *dispatch.Task) dispatch.Transition {
	tr := m.endingKind(t)
	if tr.Queue.Kind != dispatch.QueueUntouched {
		tr.Queue.FetchDuration = one(m, 0, 120*time.Millisecond, time.Second, 7*time.Second+300*time.Microsecond)
	}
	if tr.Result == dispatch.ResultSucceeded || tr.Result == dispatch.ResultFailed {
		m.respond(&tr)
	}
	if m.chance(4) {
		tr.Queue.QueueDelay = m.asked()
	}
	if m.chance(30) {
		tr.Memo = []byte(one(m, "", "etag", "another etag"))
	}
	if m.chance(20) {
		tr.Cursor = []byte(one(m, "", "page 9"))
	}
	if tr.Memo != nil {
		tr.Visit.Filtered[dispatch.FilterNoRule+dispatch.FilterReason(t.Counters.Cycle%uint32(dispatch.FilterExclude))] = 1 + int64(len(tr.Memo))<<16
	}
	if tr.Result == dispatch.ResultSucceeded || tr.Result == dispatch.ResultFailed {
		n := int64(t.Revision + t.Counters.Cycle) // any number: it decides nothing
		tr.Visit.Document, tr.Visit.Unchanged, tr.Visit.BrokenOff = history.Document(n%5), n%3 == 0, n%7 == 0
		tr.Visit.Found, tr.Visit.New, tr.Empty = n%6*50, n%6/4, n%2 == 0
	}
	if m.chance(40) {
		tr.Attempt = &dispatch.Attempt{
			Collector: t.Lease.Token.Collector, Cycle: t.Counters.Cycle, Fence: t.Lease.Digest.Fence,
			Started: t.Lease.Granted, Ended: m.world.now(), Result: tr.Result, Failure: tr.LastError, Response: tr.Response(),
		}
		if m.chance(20) {
			tr.Attempt.Moved, tr.Attempt.MovedStatus = "http://moved.test/", 301
		}
	}
	return tr
}

// respond is what a report says of its request.
func (m *model) respond(tr *dispatch.Transition) {
	v := &tr.Visit
	v.HTTPStatus, v.Bytes, v.Duration = one(m, 0, 200, 304, 599), one[int64](m, 0, 0, 1234, 1<<40), one(m, 0, time.Millisecond, 24*time.Hour)
}

// asked is what a host may ask for.
func (m *model) asked() *time.Duration {
	delay := one(m, 0, 0, 1500*time.Millisecond, 8*time.Second+200*time.Microsecond, 10*time.Minute)
	return &delay
}

// endingKind is one of the ends that a policy knows.
func (m *model) endingKind(t *dispatch.Task) dispatch.Transition {
	switch n := m.rand.IntN(100); {
	case t.CancelRequested == dispatch.CancelHeld && n < 70:
		return ending(t, dispatch.ResultRevoked, dispatch.StateScheduled)
	case t.CancelRequested != dispatch.CancelNone && t.CancelRequested != dispatch.CancelHeld:
		tr := done(t)
		tr.State, tr.Shrink = dispatch.StateCanceled, false
		return tr
	case t.AgainRequested && n < 60:
		tr := done(t)
		tr.State, tr.Shrink, tr.Due = dispatch.StateScheduled, false, m.world.now()
		return tr
	case n < 35 && t.Recurring:
		tr := done(t)
		tr.State, tr.Shrink = dispatch.StateScheduled, false
		tr.Due, tr.Run = m.world.now().Add(one(m, time.Second, time.Minute, time.Hour)), m.world.now()
		tr.ClearError = true
		return tr
	case n < 45:
		tr := done(t)
		tr.Remember = one(m, remember, time.Minute, 0)
		return tr
	case n < 52:
		tr := dead(t)
		tr.Remember = one(m, remember, 0)
		return tr
	case n < 70:
		tr := retry(t, one(m, 0, time.Second, 10*time.Second+200*time.Microsecond))
		tr.LastError = &dispatch.Failure{Result: dispatch.ResultFailed, Reason: 7, Message: "no", Time: m.world.now()}
		tr.SourceFailure = t.Recurring
		return tr
	case n < 75:
		return blocked(t, one(m, 0, 0, 3*time.Second, time.Hour))
	case n < 81:
		return m.urlFailed(t)
	case n < 83:
		tr := answered(t)
		tr.Behind = m.chance(50)
		return tr
	case n < 90:
		return released(t, one(m, 0, time.Second))
	case n < 94:
		tr := ending(t, dispatch.ResultMaxHold, dispatch.StateScheduled)
		tr.Counters.Expirations++
		tr.Expired, tr.Queue.Kind = true, dispatch.QueueExpired
		return tr
	case n < 97:
		return ending(t, dispatch.ResultRevoked, dispatch.StateScheduled)
	default:
		return expired(t) // most are not, and must be refused
	}
}

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
	m.respond(&s)
	s.Queue.FetchDuration = one(m, 0, 120*time.Millisecond, time.Second, 7*time.Second+300*time.Microsecond)
	if m.chance(4) {
		s.Queue.QueueDelay = m.asked()
	}
	if m.chance(30) {
		s.Memo = []byte(one(m, "", "etag", "another etag"))
	}
	return s, true
}
