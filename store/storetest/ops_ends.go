package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func (m *model) genApply() step {
	var transitions []dispatch.Transition
	leased := m.leased()
	waiting := m.waiting()
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
			transitions = append(transitions, tr)
		case m.chance(10):
			unknown := item(one(m, m.sources...).gate, one(m, modelQueues()...), "unknown")
			transitions = append(transitions, dispatch.Transition{ID: unknown.ID, State: dispatch.StateCanceled, Revision: 1})
		default:
			return m.genClaim()
		}
	}
	return m.applyStep(transitions)
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
		text += fmt.Sprintf("{%s %d %v->%v queue=%v asked=%s due=%s+%v rev=%d expired=%v} ", tr.ID, tr.Token.Fence, tr.Result, tr.State,
			tr.Queue, asked, clockText(tr.Due), tr.Delay, tr.Revision, tr.Expired)
	}
	return step{
		name: "apply", text: text,
		do:  func(i *Instance) (any, error) { return i.Store.Apply(m.ctx, transitions) },
		see: func(answer any) error { return m.world.applied(transitions, as[[]dispatch.ApplyResult](answer)) },
	}
}

// waiting lists tasks that wait by the world's account.
func (m *model) waiting() []*modelTask {
	var tasks []*modelTask
	for _, t := range m.world.all() {
		if t.State.Waiting() {
			tasks = append(tasks, t)
		}
	}
	return tasks
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
	tr.Delay = one(m, 0, time.Second, time.Minute)
	return tr
}

// ending is a random end of a lease.
func (m *model) ending(t *dispatch.Task) dispatch.Transition {
	tr := m.endingKind(t)
	if tr.Queue.Kind != dispatch.QueueUntouched {
		tr.Queue.FetchDuration = one(m, 0, 120*time.Millisecond, time.Second, 7*time.Second+300*time.Microsecond)
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
		tr.Filtered[dispatch.FilterNoRule+dispatch.FilterReason(t.Counters.Cycle%uint32(dispatch.FilterQueueDenied))] = 1 + int64(len(tr.Memo))<<16
	}
	if m.chance(40) {
		tr.Attempt = &dispatch.Attempt{
			Collector: t.Lease.Token.Collector, Cycle: t.Counters.Cycle, Fence: t.Lease.Digest.Fence,
			Started: t.Lease.Granted, Ended: m.world.now(), Result: tr.Result, Failure: tr.LastError,
		}
	}
	return tr
}

// asked is what a host may ask for.
func (m *model) asked() *time.Duration {
	delay := one(m, 0, 0, 1500*time.Millisecond, 8*time.Second+200*time.Microsecond, 10*time.Minute)
	return &delay
}

// endingKind is one of the ends that a policy knows.
func (m *model) endingKind(t *dispatch.Task) dispatch.Transition {
	switch n := m.rand.IntN(100); {
	case t.CancelRequested != dispatch.CancelNone:
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
	case n < 80:
		return blocked(t, one(m, 0, 0, 3*time.Second, time.Hour))
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

func (m *model) genSweep() step { return m.sweepStep(m.rand.IntN(m.world.shards), 80) }

// sweepStep sweeps a shard and, in percent of the leases found, lets what has
// expired go back.
func (m *model) sweepStep(shard, percent int) step {
	limit := one(m, 3, 50, 1000)
	return step{
		name: "sweep", text: fmt.Sprintf("shard=%d limit=%d", shard, limit),
		do: func(i *Instance) (any, error) { return i.Store.Expired(m.ctx, shard, limit) },
		see: func(answer any) error {
			sweep := as[dispatch.Sweep](answer)
			if err := m.world.swept(shard, min(limit, bounds.MaxExpired), sweep); err != nil {
				return err
			}
			var transitions []dispatch.Transition
			for _, task := range sweep.Expired {
				if m.chance(percent) {
					transitions = append(transitions, expired(task))
				}
			}
			var next []step
			if ids := m.world.unread(); len(ids) > 0 {
				next = append(next, m.readStep(ids, false))
			}
			if len(transitions) > 0 {
				next = append(next, m.applyStep(transitions))
			}
			m.queued = append(next, m.queued...)
			return nil
		},
	}
}

func (m *model) genCancel() step {
	var ids []dispatch.TaskID
	leased := m.leased()
	for range one(m, 1, 2) {
		if len(leased) > 0 && m.chance(70) {
			ids = append(ids, one(m, leased...).ID)
		} else {
			ids = append(ids, m.modelItem(one(m, m.sources...)).ID)
		}
	}
	var line *dispatch.Attempt
	if m.chance(50) {
		line = &dispatch.Attempt{Ended: m.world.now(), Result: dispatch.ResultCanceled, Note: dispatch.Note{By: "ops", Reason: one(m, "", "why")}}
	}
	return m.cancelStep(ids, dispatch.CancelTask, line)
}

func (m *model) cancelStep(ids []dispatch.TaskID, reason dispatch.CancelReason, line *dispatch.Attempt) step {
	return step{
		name: "request cancel", text: fmt.Sprint(ids, reason, line != nil),
		do: func(i *Instance) (any, error) { return nil, i.Store.RequestCancel(m.ctx, ids, reason, line) },
		see: func(any) error {
			m.world.requestedCancel(ids, reason, line)
			return nil
		},
	}
}

func (m *model) genDeleteRecord() step {
	if m.config.KeepRecords {
		return m.genSubmit()
	}
	var free []*modelTask
	for _, t := range m.waiting() {
		// A source with a limit would count the record on, and in a shared scope
		// another source might make it anew.
		if !m.limited[m.world.gate(t).ID] && !m.shares(t) && !t.underLock(m.world.now()) {
			free = append(free, t)
		}
	}
	if len(free) == 0 {
		return m.genSubmit()
	}
	t := one(m, free...)
	return step{
		name: "delete record", text: string(t.ID),
		do: func(i *Instance) (any, error) {
			i.DeleteRecord(t.ID)
			return nil, nil
		},
		see: func(any) error {
			m.world.remove(t.ID)
			m.world.parts[t.shard].ghosts++
			return nil
		},
	}
}

// genAdvance moves the clock on, mostly a little. Before a longer time it
// mostly sweeps, as a keeper does, so that no outage is seen.
func (m *model) genAdvance() step {
	d := one(m,
		300*time.Microsecond, time.Millisecond, time.Millisecond, 10*time.Millisecond, 50*time.Millisecond,
		100*time.Millisecond, 500*time.Millisecond, time.Second, 2*time.Second,
	)
	if m.chance(3) {
		d = one(m, 10*time.Second, 40*time.Second, 90*time.Second)
	}
	if m.steps-m.jumped > 1500 {
		m.jumped = m.steps
		d = one(m, time.Hour, 3*time.Hour, 30*time.Hour)
		if m.chance(60) {
			return m.jumpToStep(d)
		}
		m.back = one(m, 0, 10*time.Minute, time.Hour)
	}
	if m.chance(85) {
		return m.sweptAdvance(d)
	}
	return m.advanceStep(d)
}

// sweptAdvance queues an advance of d with sweeps at least each four seconds.
func (m *model) sweptAdvance(d time.Duration) step {
	var steps []step
	oldest := m.world.now()
	for _, p := range m.world.parts {
		if p.lastSweep.Before(oldest) {
			oldest = p.lastSweep
		}
	}
	since := m.world.now().Sub(oldest)
	for d > 0 {
		part := min(d, 4*time.Second)
		if d > 10*time.Minute {
			part = d // an outage after all
		}
		if since+part > dispatch.OutageAfter {
			for shard := range m.world.shards {
				steps = append(steps, m.sweepStep(shard, 80))
			}
			since = 0
		}
		steps = append(steps, m.advanceStep(part))
		since += part
		d -= part
	}
	m.queued = append(m.queued, steps[1:]...)
	return steps[0]
}

func (m *model) advanceStep(d time.Duration) step {
	return step{
		name: "advance", text: d.String(),
		do: func(i *Instance) (any, error) {
			from := m.clockWas
			i.Clock.Set(from.Add(d))
			return nil, nil
		},
		see: func(any) error {
			from := m.clockWas
			m.clockWas = from.Add(d)
			m.world.moved(from)
			return nil
		},
	}
}

// genClockBack steps the clock back, where that is defined.
func (m *model) genClockBack() step {
	return m.stepBack(one(m, time.Millisecond, 20*time.Millisecond, time.Second, 10*time.Second))
}

func (m *model) stepBack(d time.Duration) step {
	to := m.world.now().Add(-d)
	if !m.world.quiet(to.Add(-time.Millisecond)) || d >= time.Minute && m.world.cutsLocks(to) {
		return m.advanceStep(time.Millisecond)
	}
	back := m.advanceStep(-d)
	back.name = "step back"
	if d >= time.Minute {
		back.name = "step back far"
	}
	return back
}
