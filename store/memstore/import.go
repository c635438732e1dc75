package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Import implements [dispatch.Portable].
func (s *Store) Import(ctx context.Context, batch *dispatch.PortableBatch) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	last, err := s.importCollectors(batch.Collectors)
	if err == nil {
		err = durable(ctx, last)
	}
	if err != nil {
		return err
	}
	if err := checkTasks(batch.Tasks); err != nil {
		return err
	}
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	if last, err = s.performAll((*importCommand)(batch)); err != nil {
		return err
	}
	return durable(ctx, last)
}

// EndCopy implements [dispatch.Portable]: a store in memory is not opened for a copy.
func (s *Store) EndCopy(context.Context) error { return nil }

// importCollectors replaces what is known of collectors. Their home shards refuse the sessions that were replaced.
func (s *Store) importCollectors(all []dispatch.PortableCollector) (last Commit, err error) {
	b := &s.collectors
	for i := range all {
		p := &all[i]
		c := collector{
			info: copyInfo(p.Info), first: millis(p.First), seen: millis(p.Seen), told: !p.OnlyPolls, fresh: p.Fresh,
			replaced: slices.Clone(p.Replaced),
		}
		b.begin()
		err = b.record(&c)
		last = b.last
		b.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if len(c.replaced) == 0 {
			continue
		}
		home := s.shardOfName(c.info.ID)
		if last, err = home.perform(&markCommand{collector: c.info.ID, session: c.info.Session}); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// checkTasks checks the tasks of a batch.
func checkTasks(tasks []dispatch.PortableTask) error {
	for i := range tasks {
		t := &tasks[i].Task
		if _, err := dispatch.ParseTaskID(string(t.ID)); err != nil {
			return err
		}
		if (t.State == dispatch.StateLeased) != (t.Lease != nil) {
			return fmt.Errorf("%w: task %s is %s; a lease belongs to tasks that are LEASED", dispatch.ErrInvalid, t.ID, t.State)
		}
	}
	return nil
}

// importCommand is [dispatch.Portable.Import] of all but the collectors.
type importCommand dispatch.PortableBatch

func (c *importCommand) room() (bytes int, grows bool) {
	items := len(c.Gates) + len(c.Tasks) + len(c.Holds) + len(c.Queues) + len(c.Tokens) + len(c.Statuses)
	return smallGroup + dispatch.MaxPortableBytes + items*changedBytes, true
}

func (c *importCommand) runAll(s *Store) {
	if len(c.Holds) > 0 {
		for i := range c.Holds {
			s.changeNamed(itemHold, c.Holds[i].Key())
		}
		s.holds.holds = s.holds.changed(&dispatch.HoldChange{Set: c.Holds})
		for _, sh := range s.shards {
			sh.importHolds(c.Holds)
		}
	}
	for i := range c.Gates {
		for _, sh := range s.shards {
			sh.takeGate(c.Gates[i])
		}
	}
	for i := range c.Tasks {
		s.shardOfTask(c.Tasks[i].Task.ID).importTask(&c.Tasks[i])
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		s.shardOfName(q.Name).importQueue(q)
	}
	for i := range c.Tokens {
		for _, sh := range s.shards {
			sh.importTokens(&c.Tokens[i])
		}
	}
	for i := range c.Statuses {
		s.importStatus(&c.Statuses[i])
	}
	if c.Totals != nil {
		s.importTotals(c.Totals)
	}
}

// importTask takes in a task, unless there is one with its id, its source is unknown, or it is to be forgotten by now.
func (s *shard) importTask(t *dispatch.PortableTask) {
	src, forgetAt := s.sources.get(t.Task.SourceUID), millis(t.ForgetAt)
	if src == nil || s.records.get(keyOf(t.Task.ID)) != nil || forgetAt != 0 && forgetAt <= s.now {
		return
	}
	r := s.recordOf(s.laneFor(src, t.Task.Queue), &t.Task)
	s.added(r)
	s.records.add(keyOf(r.id), r)
	switch {
	case t.Task.Lease != nil:
		s.listRecord(r)
		s.importLease(r, t)
	case t.Task.State.Settled():
		r.state = t.Task.State
		s.count(r, r.state)
		if r.forgetAt = forgetAt; forgetAt != 0 {
			s.forgetSet(r).insert(forgetAt, r)
		}
		if r.state != dispatch.StateDone || forgetAt == 0 {
			s.listRecord(r)
		}
	default:
		if lock := t.Task.Lock; lock != nil && lock.Value != "" {
			stray := strayLock{value: lock.Value, until: infinite}
			if !lock.Ends.IsZero() {
				stray.until = millis(lock.Ends)
			}
			s.setStray(r.id, stray)
		}
		s.listRecord(r)
		s.enterWaiting(r)
	}
}

// recordOf makes the record of a task, which stands nowhere yet.
func (s *shard) recordOf(l *lane, t *dispatch.Task) *record {
	r := &record{
		id: t.ID, lane: l, url: t.URL, key: t.Key, kind: t.Kind, metadata: maps.Clone(t.Metadata), payload: slices.Clone(t.Payload),
		run: millis(t.Run), depth: int32(t.Depth), priority: int8(t.Priority), recurring: t.Recurring, relation: t.Relation,
		counters: t.Counters, revision: t.Revision, result: t.Result, cancel: t.CancelRequested, again: t.AgainRequested,
		behind: t.Behind, due: millis(t.Due), firstDue: millis(t.FirstDue), created: millis(t.Created), settledAt: millis(t.SettledAt),
		lastLease: t.LastLease,
	}
	r.setRedirect(t.Redirect)
	if t.Cursor != nil || t.Memo != nil || t.LastError != nil || t.History != nil {
		r.details = &details{cursor: slices.Clone(t.Cursor), memo: slices.Clone(t.Memo), lastError: clone(t.LastError), history: slices.Clone(t.History)}
	}
	return r
}

// importLease leases a record to the holder that it had. Its grant has no calls, and so is not given back.
func (s *shard) importLease(r *record, t *dispatch.PortableTask) {
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
		s.grants.add(key, note)
	}
	l := &lease{
		note: note, fence: was.Digest.Fence, heldAt: len(holder.held), granted: millis(was.Granted),
		deadline: millis(was.Deadline), duration: span(was.Duration), maxHold: span(was.MaxHold), lockDeleted: t.LockDeleted,
	}
	if !l.lockDeleted {
		l.lockedUntil = l.deadline
	}
	r.state, r.lease = dispatch.StateLeased, l
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

// importQueue sets what a queue knows beside its tasks, if it has tasks or a gate.
func (s *shard) importQueue(p *dispatch.PortableQueue) {
	q := s.existing(p.Name)
	if q == nil {
		if millis(p.Kept()) <= s.now {
			return
		}
		q = s.openQueue(p.Name)
	}
	s.change(q, allParts)
	q.nextGrant, q.blocked, q.blockedAt, q.blockStep = millis(p.NextGrant), millis(p.Blocked), millis(p.BlockedAt), p.BlockStep
	q.cause, q.asked, q.failedURLs = clone(p.Cause), p.Asked, slices.Clone(p.FailedURLs)
	q.settings.version = -1
	s.touchQueue(q)
}

// importTokens notes used client tokens.
func (s *shard) importTokens(tokens *dispatch.PortableTokens) {
	if s.used[tokens.Step] == nil {
		s.used[tokens.Step] = &usedTokens{has: make(map[uint64]struct{})}
	}
	for _, digest := range tokens.Digests {
		s.used[tokens.Step].add(digest)
		s.usedToken(tokens.Step, digest)
	}
}

// importStatus sets what a source counts, in the shard of its seed or of its uid; the tasks are counted by themselves.
func (s *Store) importStatus(p *dispatch.PortableStatus) {
	home := s.shardOfTask(p.Seed)
	if home == nil {
		home = s.shardOfName(p.UID)
	}
	var came dispatch.SourceStatus
	for _, sh := range s.shards {
		sh.addStatus(p.UID, &came)
	}
	home.importStatus(p, max(p.Status.Counts.Done-came.Counts.Done, 0)) // the tasks that came are the least
}

// importStatus sets what a source counts, with as many DONE tasks more than came.
func (s *shard) importStatus(p *dispatch.PortableStatus, done int64) {
	src, st := s.sources.get(p.UID), &p.Status
	if src == nil {
		return
	}
	s.change(src, partState)
	src.limited, src.failures = st.Limited, st.FailuresInARow
	src.lastSuccess, src.lastFailure = millis(st.LastSuccess), millis(st.LastFailure)
	src.counts[dispatch.StateDone] += done
	src.forgottenDone += done
	s.counts[dispatch.StateDone] += done
	s.forgottenDone += done
}

// importHolds sets the ends of the holds on queues.
func (s *shard) importHolds(holds []dispatch.Hold) { s.takeHolds(s.holdsVersion, dispatch.HeldQueues(holds)) }

// importTotals sets the counters of the store, in its first shard, and what only rises, in all.
func (s *Store) importTotals(want *dispatch.PortableTotals) {
	var have dispatch.PortableTotals
	s.rules.version, s.holds.version = max(s.rules.version, want.RulesVersion), max(s.holds.version, want.HoldsVersion)
	for _, sh := range s.shards {
		sh.importVersions(want.Fence, s.rules.version, s.holds.version)
		sh.addTotals(&have)
	}
	(&startCommand{away: dispatch.OutageGrace}).runAll(s) // nobody knows how long the outage is
	s.shards[0].importTotals(want, &have)
}

// importVersions sets what only rises.
func (s *shard) importVersions(fence uint64, rules, holds int64) {
	s.lastFence = max(s.lastFence, fence)
	s.rulesVersion, s.holdsVersion = rules, holds
}

// importTotals adds what all shards have not counted.
func (s *shard) importTotals(want, have *dispatch.PortableTotals) {
	s.granted += want.Granted - have.Granted
	s.settled += want.Settled - have.Settled
	s.expired += want.Expired - have.Expired
	s.orphaned += want.Orphaned - have.Orphaned
	s.dropped += want.Dropped - have.Dropped
	s.counts[dispatch.StateDone] += want.Done - have.Done
	s.forgottenDone += want.Done - have.Done
}
