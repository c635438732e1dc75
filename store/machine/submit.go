package machine

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// GatesByUID are the gates by the uids of their sources.
func GatesByUID(gates []dispatch.SourceGate) map[string]*dispatch.SourceGate {
	gateOf := make(map[string]*dispatch.SourceGate, len(gates))
	for i := range gates {
		gateOf[gates[i].UID] = &gates[i]
	}
	return gateOf
}

// Submit is [dispatch.Tasks.Submit] of items of one shard.
type Submit struct {
	Rules int64
	Gates []dispatch.SourceGate
	Items []dispatch.Submission

	// Answers has one for each, in their order.
	Answers []dispatch.SubmitResult
}

// Room implements [Command].
func (c *Submit) Room() (bytes int, grows bool) {
	bytes = SmallGroup
	for i := range c.Items {
		item := &c.Items[i]
		bytes += ChangedBytes + len(item.URL) + len(item.Key) + len(item.Payload) + len(item.Redirect.From)
		for key, value := range item.Metadata {
			bytes += len(key) + len(value) + 8
		}
	}
	return bytes, true
}

// Run implements [Command].
func (c *Submit) Run(s *Shard) {
	gateOf := GatesByUID(c.Gates)
	c.Answers = make([]dispatch.SubmitResult, len(c.Items))
	for i := range c.Items {
		gate := gateOf[c.Items[i].SourceUID]
		c.Answers[i] = s.submit(s.takeGate(*gate), gate.Version, c.Rules, &c.Items[i])
	}
	s.sweep(len(c.Items))
}

// submit makes one task, or answers for the one that exists.
func (s *Shard) submit(src *source, version, rulesVersion int64, item *dispatch.Submission) dispatch.SubmitResult {
	switch {
	case src.gate.Deleted:
		return dispatch.SubmitResult{Code: dispatch.SubmitSourceDeleted}
	case version < src.gate.Version:
		return dispatch.SubmitResult{Code: dispatch.SubmitStaleSource}
	case rulesVersion < s.rulesVersion:
		return dispatch.SubmitResult{Code: dispatch.SubmitStaleRules}
	}
	old := s.find(item.ID)
	r, code := s.known(old), dispatch.SubmitExists
	switch {
	case r == nil || r.state.Settled() && r.lane.source.gate.Deleted:
		// Where the source was deleted the identity is free.
		if code = dispatch.SubmitLimited; !s.full(src, item.Recurring || item.Redirect.Hops > 0) {
			r, code = s.create(src, item, old), dispatch.SubmitCreated
		}
	case !r.state.Settled():
		s.meet(r, item)
	case !s.wantsRevisit(r, item):
	case s.full(r.lane.source, r.recurring || item.Recurring || item.Redirect.Hops > 0):
		code = dispatch.SubmitLimited
	default:
		s.revisit(r, item)
		code = dispatch.SubmitRevisit
	}
	if r == nil {
		return dispatch.SubmitResult{Code: code}
	}
	return dispatch.SubmitResult{Code: code, State: r.visibleState(s.now)}
}

// full reports whether the source takes no more tasks, and counts the one that it does not take. Seeds and the targets of
// redirects, which replace the redirected tasks, are free.
func (s *Shard) full(src *source, free bool) bool {
	full := !free && src.gate.MaxOutstanding > 0 && src.outstanding >= src.gate.MaxOutstanding
	if full {
		s.change(src, partState)
		src.limited++
	}
	return full
}

// dueOf is when a submitted task is due: now if it has no due time.
func (s *Shard) dueOf(due time.Time) int64 {
	if due.IsZero() {
		return s.now
	}
	return ms.Of(due)
}

// create makes the record of a task; old is the one that there was, if there was one.
func (s *Shard) create(src *source, item *dispatch.Submission, old *record) *record {
	_, hash, _ := parseID(item.ID)
	r := &record{
		hash: hash, lane: s.laneFor(src, item.Queue), depth: int32(item.Depth),
		priority: int8(item.Priority), run: ms.Of(item.Run), recurring: item.Recurring,
		due: s.dueOf(item.Due), created: s.now, revision: 1,
	}
	r.setFirstDue(ms.Of(item.FirstDue))
	s.takeContent(r, item)
	if old != nil {
		s.forget(old)
	}
	s.added(r)
	s.records.add(r)
	s.listRecord(r)
	s.enterWaiting(r)
	return r
}

// takeContent takes the content of an item.
func (s *Shard) takeContent(r *record, item *dispatch.Submission) {
	r.relation = item.Relation
	about := submitted(item)
	r.content = s.pack(&about)
}

// pack packs a content.
func (s *Shard) pack(about *unpacked) content {
	s.packer.Reset(s.packer.Buffer()[:0], nil)
	about.fields(&s.packer)
	return content(s.packer.Buffer())
}

// meet lets a waiting or leased record take from an item what it may.
func (s *Shard) meet(r *record, item *dispatch.Submission) {
	run, depth := max(r.run, ms.Of(item.Run)), min(r.depth, int32(item.Depth))
	changed, reseeded := run != r.run || depth != r.depth, false
	due, priority, recurring, behind, again := r.due, r.priority, r.recurring, r.behind, r.again
	switch item.IfExists {
	case dispatch.IfExistsSooner:
		if r.waiting() {
			due = min(due, s.dueOf(item.Due))
			priority = max(priority, int8(item.Priority))
		}
	case dispatch.IfExistsAgain:
		if r.waiting() {
			due = min(due, s.dueOf(item.Due))
		} else if !r.again {
			again, changed = true, true
		}
	case dispatch.IfExistsReseed:
		due, priority, recurring, behind = s.dueOf(item.Due), int8(item.Priority), true, false
		reseeded = r.differsFrom(item)
	case dispatch.IfExistsKeep, dispatch.IfExistsRetry:
	}
	if due != r.due || priority != r.priority {
		behind = false
	}
	moved := due != r.due || priority != r.priority || recurring != r.recurring || behind != r.behind
	if !changed && !reseeded && !moved {
		return
	}
	s.change(r, partBody|partState)
	if reseeded {
		s.change(r, partContent)
		s.takeContent(r, item)
		r.setFirstDue(ms.Of(item.FirstDue))
		r.cancel = dispatch.CancelNone
	}
	if moved {
		// An orphan stays in the lease index, and a leased record in its.
		waits := r.stands == inReady || r.stands == inLater
		if waits {
			s.leave(r)
		}
		r.due, r.priority, r.behind = due, priority, behind
		s.setRecurring(r, recurring)
		if waits {
			s.enterWaiting(r)
		}
	}
	r.run, r.depth, r.again = run, depth, again
	r.revision++
}

// differsFrom reports whether a source now says something else of its recurring task.
func (r *record) differsFrom(item *dispatch.Submission) bool {
	about := r.content.unpack()
	return r.firstDue() != ms.Of(item.FirstDue) || r.cancel != dispatch.CancelNone || r.relation != item.Relation || !about.same(item)
}

// wantsRevisit reports whether a settled record is due again by the item.
func (s *Shard) wantsRevisit(r *record, item *dispatch.Submission) bool {
	switch {
	case item.IfExists == dispatch.IfExistsRetry:
		return item.Revision == 0 || item.Revision == r.revision
	case item.IfExists >= dispatch.IfExistsAgain:
		return true
	case ms.Of(item.Run) > r.run:
		return true
	case r.state != dispatch.StateDone:
		return false
	case item.RevisitAfter > 0 && s.now-r.settledAt >= ms.Span(item.RevisitAfter):
		return true
	default:
		modified := ms.Of(item.Modified)
		return r.settledAt < modified && modified <= s.now
	}
}

// revisit makes a settled record due again: its memo is kept, its counters but
// the cycle are reset.
func (s *Shard) revisit(r *record, item *dispatch.Submission) {
	s.change(r, allParts)
	r.shrunk = false
	s.keep(r)
	s.listRecord(r)
	s.takeContent(r, item)
	r.depth, r.priority = int32(item.Depth), int8(item.Priority)
	r.run, r.due = max(r.run, ms.Of(item.Run)), s.dueOf(item.Due)
	if item.IfExists == dispatch.IfExistsReseed {
		r.setFirstDue(ms.Of(item.FirstDue))
	}
	s.setRecurring(r, r.recurring || item.Recurring)
	r.counters = dispatch.Counters{Cycle: r.counters.Cycle}
	r.cancel, r.again, r.behind = dispatch.CancelNone, false, false
	r.revision++
	s.enterWaiting(r)
}
