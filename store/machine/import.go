package machine

import (
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// ImportGate takes in the gate of a source.
func (s *Shard) ImportGate(gate dispatch.SourceGate) { s.takeGate(gate) }

// ImportTasks takes in tasks of one shard: each unless there is one with its id, its source is unknown, or it is to be forgotten by now.
type ImportTasks struct {
	Tasks []dispatch.PortableTask
}

// Room implements [Command].
func (c *ImportTasks) Room() (bytes int, grows bool) {
	return SmallGroup + dispatch.MaxPortableBytes + len(c.Tasks)*ChangedBytes, true
}

// Run implements [Command].
func (c *ImportTasks) Run(s *Shard) {
	for i := range c.Tasks {
		s.importTask(&c.Tasks[i])
	}
}

func (s *Shard) importTask(t *dispatch.PortableTask) {
	src, forgetAt := s.sources.get(text(t.Task.SourceUID)), ms.Of(t.ForgetAt)
	if src == nil || s.find(t.Task.ID) != nil || forgetAt != 0 && forgetAt <= s.now {
		return
	}
	r := s.recordOf(s.laneFor(src, t.Task.Queue), &t.Task)
	s.added(r)
	s.records.add(r)
	switch {
	case t.Task.Lease != nil:
		s.listRecord(r)
		s.importLease(r, t)
	case t.Task.State.Settled():
		r.state = t.Task.State
		s.count(r, r.state)
		if r.score = forgetAt; forgetAt != 0 {
			s.forgetSet(r).Insert(forgetAt, r)
			s.over = append(s.over, r)
		}
		if r.state != dispatch.StateDone || forgetAt == 0 {
			s.listRecord(r)
		}
	default:
		if lock := t.Task.Lock; lock != nil && lock.Value != "" {
			stray := strayLock{value: lock.Value, until: ms.Infinite}
			if !lock.Ends.IsZero() {
				stray.until = ms.Of(lock.Ends)
			}
			s.setStray(r.id(), stray)
		}
		s.listRecord(r)
		s.enterWaiting(r)
	}
}

// recordOf makes the record of a task, which stands nowhere yet.
func (s *Shard) recordOf(l *lane, t *dispatch.Task) *record {
	_, hash, _ := parseID(t.ID)
	body := imported(t)
	r := &record{
		hash: hash, lane: l, content: s.pack(&body),
		run: ms.Of(t.Run), depth: int32(t.Depth), priority: int8(t.Priority), recurring: t.Recurring, relation: t.Relation,
		counters: t.Counters, revision: t.Revision, result: t.Result, cancel: t.CancelRequested, again: t.AgainRequested,
		behind: t.Behind, due: ms.Of(t.Due), created: ms.Of(t.Created), settledAt: ms.Of(t.SettledAt),
		lastLease: t.LastLease, response: responseOf(t.Response),
	}
	if t.Cursor != nil || t.Memo != nil || t.LastError != nil || t.History != nil {
		r.details = &details{cursor: slices.Clone(t.Cursor), memo: slices.Clone(t.Memo), lastError: clone(t.LastError), history: slices.Clone(t.History)}
	}
	r.setFirstDue(ms.Of(t.FirstDue))
	if t.State == dispatch.StateDone && !t.Recurring && r.bare(&body) {
		r.shrunk, r.content = true, ""
	}
	return r
}

// bare reports whether a success has dropped what it needs no more, as [dispatch.Transition.Shrink] says.
func (r *record) bare(about *unpacked) bool {
	d := r.details
	return about.payload == nil && about.metadata == nil && about.redirect.Hops == 0 &&
		(d == nil || d.cursor == nil && d.lastError == nil && d.history == nil)
}

// importLease leases a record to the holder that it had. Its grant has no calls, and so is not given back.
func (s *Shard) importLease(r *record, t *dispatch.PortableTask) {
	was := t.Task.Lease
	holder := s.holder(was.Token.Collector)
	key := grantKey{was.Token.Collector, was.Token.ClientToken}
	note := s.grants.get(key)
	if note == nil {
		s.lastGrant++
		note = &grantNote{
			number: s.lastGrant, holder: holder, clientToken: key.clientToken, session: t.Session, digest: was.Digest.Holder,
		}
		s.added(note)
		s.grants.add(note)
	}
	l := &lease{
		note: note, fence: was.Digest.Fence, heldAt: len(holder.held), granted: ms.Of(was.Granted),
		deadline: ms.Of(was.Deadline), duration: ms.Span(was.Duration), maxHold: ms.Span(was.MaxHold), lockDeleted: t.LockDeleted,
	}
	if !l.lockDeleted {
		l.lockedUntil = l.deadline
	}
	r.state, r.lease = dispatch.StateLeased, l
	s.setLock(r, codec.LockRestore)
	s.enterLeases(r, l.deadline)
	s.count(r, dispatch.StateLeased)
	q := s.queueOf(r.lane)
	q.inFlight++
	s.touchQueue(q)
	holder.held = append(holder.held, r)
	note.entries = append(note.entries, grantEntry{record: r, fence: l.fence})
	slices.SortFunc(note.entries, func(a, b grantEntry) int {
		if a.fence < b.fence {
			return -1
		}
		return 1
	})
	note.left++
}

// ImportQueue sets what a queue knows beside its tasks, if it has tasks or a gate.
func (s *Shard) ImportQueue(p *dispatch.PortableQueue) {
	q := s.existing(p.Name)
	if q == nil {
		if ms.Of(p.Kept()) <= s.now {
			return
		}
		q = s.openQueue(p.Name)
	}
	s.change(q, allParts)
	s.setBlocked(q, ms.Of(p.Blocked))
	q.nextGrant, q.asked = ms.Of(p.NextGrant), p.Asked
	q.trouble = &trouble{
		blockedAt: ms.Of(p.BlockedAt), blockStep: p.BlockStep, cause: clone(p.Cause), failedURLs: slices.Clone(p.FailedURLs),
	}
	q.settings = nil
	s.touchQueue(q)
}

// ImportTokens notes used client tokens.
func (s *Shard) ImportTokens(tokens *dispatch.PortableTokens) {
	for _, digest := range tokens.Digests {
		s.useToken(tokens.Step, digest)
	}
}

// ImportStatus sets what a source counts, with as many DONE tasks more than came.
func (s *Shard) ImportStatus(p *dispatch.PortableStatus, done int64) {
	src, st := s.sources.get(text(p.UID)), &p.Status
	if src == nil {
		return
	}
	s.change(src, partState)
	src.limited, src.failures = st.Limited, st.FailuresInARow
	src.lastSuccess, src.lastFailure = ms.Of(st.LastSuccess), ms.Of(st.LastFailure)
	s.importHistory(src, st)
	src.counts[dispatch.StateDone] += done
	src.forgottenDone += done
	s.counts[dispatch.StateDone] += done
	s.forgottenDone += done
}

// ImportHolds sets the ends of the holds on queues.
func (s *Shard) ImportHolds(holds []dispatch.Hold) {
	s.TakeHolds(s.holdsVersion, dispatch.HeldQueues(holds))
}

// ImportVersions sets what only rises.
func (s *Shard) ImportVersions(fence uint64, rules, holds int64) {
	s.lastFence = max(s.lastFence, fence)
	s.rulesVersion, s.holdsVersion = rules, holds
}

// ImportTotals adds what all shards have not counted.
func (s *Shard) ImportTotals(want, have *dispatch.PortableTotals) {
	s.granted += want.Granted - have.Granted
	s.settled += want.Settled - have.Settled
	s.expired += want.Expired - have.Expired
	s.orphaned += want.Orphaned - have.Orphaned
	s.counts[dispatch.StateDone] += want.Done - have.Done
	s.forgottenDone += want.Done - have.Done
}
