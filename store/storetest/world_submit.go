package storetest

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// submitted checks the answers to a submit and takes the items in.
func (w *world) submitted(gates map[string]dispatch.SourceGate, rules int64, items []dispatch.Submission, got []dispatch.SubmitResult) error {
	if len(got) != len(items) {
		return broken("submit of %d items answered %d results", len(items), len(got))
	}
	for i := range items {
		code, state := w.submit(gates[items[i].SourceUID], rules, &items[i])
		if got[i].Code != code || got[i].State != state {
			return broken("submit of %s in %s answered code %d with %v, want code %d with %v",
				items[i].Key, items[i].Queue, got[i].Code, got[i].State, code, state)
		}
	}
	return nil
}

// submit predicts what one item is answered.
func (w *world) submit(gate dispatch.SourceGate, rules int64, item *dispatch.Submission) (dispatch.SubmitCode, dispatch.State) {
	shard := w.shardOf(item.Queue)
	if code, name := w.refuses(w.parts[shard], &gate, rules); code != 0 {
		w.count(name)
		return code, dispatch.StateUnknown
	}
	t := w.task(item.ID)
	switch {
	case t == nil || t.State.Settled() && w.gate(t).Deleted:
		if w.full(shard, gate.UID, item.Recurring) {
			w.count("submit LIMITED")
			if t != nil {
				return dispatch.SubmitLimited, t.State
			}
			return dispatch.SubmitLimited, dispatch.StateUnknown
		}
		w.count("submit CREATED")
		w.fill(shard, item.Queue)
		t = w.create(shard, item)
		return dispatch.SubmitCreated, w.visible(t)
	case !t.State.Settled():
		w.count("submit EXISTS")
		w.meet(t, item)
		return dispatch.SubmitExists, w.visible(t)
	case !w.revisits(t, item):
		w.count("submit EXISTS settled")
		return dispatch.SubmitExists, t.State
	case w.full(shard, t.SourceUID, t.Recurring || item.Recurring):
		w.count("submit LIMITED revisit")
		return dispatch.SubmitLimited, t.State
	}
	w.count("submit REVISIT")
	w.fill(shard, t.Queue)
	w.revisit(t, item)
	return dispatch.SubmitRevisit, w.visible(t)
}

// refuses takes the source in, if it is newer than what the shard holds, and is why the
// shard refuses items of it, and how that is counted; 0: it does not.
func (w *world) refuses(p *part, gate *dispatch.SourceGate, rules int64) (code dispatch.SubmitCode, name string) {
	held, ok := p.gates[gate.UID]
	if !ok || held.Version < gate.Version {
		if ok {
			p.unplaced[gate.UID] = true
		}
		held, p.gates[gate.UID] = *gate, *gate
	}
	switch {
	case held.Deleted:
		return dispatch.SubmitSourceDeleted, "submit SOURCE_DELETED"
	case gate.Version < held.Version:
		return dispatch.SubmitStaleSource, "submit STALE_SOURCE"
	case rules < w.rules.version:
		return dispatch.SubmitStaleRules, "submit STALE_RULES"
	}
	return 0, ""
}

// full reports whether the source has all the tasks that it may have.
func (w *world) full(shard int, uid string, recurring bool) bool {
	limit := w.parts[shard].gates[uid].MaxOutstanding
	if recurring || limit == 0 {
		return false
	}
	outstanding := int64(0)
	for _, t := range w.all() {
		if t.shard == shard && t.SourceUID == uid && !t.Recurring && !t.State.Settled() {
			outstanding++
		}
	}
	return outstanding >= limit
}

func (w *world) dueOf(item *dispatch.Submission) time.Time {
	if item.Due.IsZero() {
		return w.now()
	}
	return item.Due
}

func (w *world) create(shard int, item *dispatch.Submission) *modelTask {
	t := &modelTask{shard: shard, Task: dispatch.Task{
		ID: item.ID, SourceUID: item.SourceUID, Queue: item.Queue, Key: item.Key, Recurring: item.Recurring,
		Run: item.Run, State: dispatch.StateScheduled, Due: w.dueOf(item), FirstDue: item.FirstDue,
		Created: w.now(), Revision: 1,
	}}
	t.ready = !t.Due.After(w.now())
	t.takeBody(item)
	if old := w.tasks[item.ID]; old != nil {
		t.orphanUntil, t.orphan, t.lookBy = old.orphanUntil, old.orphan, old.lookBy
	}
	w.put(t)
	return t
}

func (t *modelTask) takeBody(item *dispatch.Submission) {
	t.URL, t.Kind, t.Relation, t.Depth, t.Priority = item.URL, item.Kind, item.Relation, item.Depth, item.Priority
	t.Metadata, t.Payload = maps.Clone(item.Metadata), slices.Clone(item.Payload)
}

// meet is what a waiting or leased record takes from an item.
func (w *world) meet(t *modelTask, item *dispatch.Submission) {
	before := t.Task
	if item.Run.After(t.Run) {
		t.Run = item.Run
	}
	t.Depth = min(t.Depth, item.Depth)
	sooner := func() {
		if due := w.dueOf(item); due.Before(t.Due) {
			t.Due = due
		}
	}
	waiting := t.State.Waiting()
	switch {
	case item.IfExists == dispatch.IfExistsSooner && waiting:
		sooner()
		t.Priority = max(t.Priority, item.Priority)
	case item.IfExists == dispatch.IfExistsAgain && waiting:
		sooner()
	case item.IfExists == dispatch.IfExistsAgain:
		t.AgainRequested = true
	case item.IfExists == dispatch.IfExistsReseed:
		depth := t.Depth
		t.takeBody(item)
		t.Depth = depth
		t.Due, t.FirstDue, t.Recurring, t.CancelRequested = w.dueOf(item), item.FirstDue, true, dispatch.CancelNone
		t.Behind = false
	}
	if !t.Due.Equal(before.Due) {
		t.ready = !t.Due.After(w.now())
	}
	if !t.Due.Equal(before.Due) || t.Priority != before.Priority {
		t.Behind = false
	}
	if before.Behind && !t.Behind {
		w.count("submit clears behind")
	}
	same := t.Run.Equal(before.Run) && t.Depth == before.Depth && t.Due.Equal(before.Due) && t.FirstDue.Equal(before.FirstDue) &&
		t.Priority == before.Priority && t.Recurring == before.Recurring && t.Behind == before.Behind && t.AgainRequested == before.AgainRequested &&
		t.CancelRequested == before.CancelRequested && t.Kind == before.Kind && t.URL == before.URL && t.Relation == before.Relation &&
		maps.Equal(t.Metadata, before.Metadata) && bytes.Equal(t.Payload, before.Payload)
	if !same {
		t.Revision++
	}
}

// revisits reports whether an item makes a settled record due again.
func (w *world) revisits(t *modelTask, item *dispatch.Submission) bool {
	if item.IfExists == dispatch.IfExistsRetry && item.Revision != 0 && item.Revision != t.Revision {
		w.count("submit EXISTS, retry of another revision")
		return false
	}
	if item.IfExists >= dispatch.IfExistsAgain || item.Run.After(t.Run) {
		return true
	}
	switch {
	case t.State != dispatch.StateDone:
		return false
	case item.RevisitAfter > 0 && w.now().Sub(t.SettledAt) >= item.RevisitAfter:
		return true
	case item.Modified.After(t.SettledAt) && !item.Modified.After(w.now()):
		w.count("submit REVISIT, changed since")
		return true
	}
	return false
}

func (w *world) revisit(t *modelTask, item *dispatch.Submission) {
	t.takeBody(item)
	if item.Run.After(t.Run) {
		t.Run = item.Run
	}
	if item.IfExists == dispatch.IfExistsReseed {
		t.FirstDue = item.FirstDue
	}
	t.Recurring = t.Recurring || item.Recurring
	t.State, t.Due = dispatch.StateScheduled, w.dueOf(item)
	t.Counters = dispatch.Counters{Cycle: t.Counters.Cycle}
	t.CancelRequested, t.AgainRequested, t.forgetAt = dispatch.CancelNone, false, time.Time{}
	t.Behind, t.ready = false, !t.Due.After(w.now())
	t.Revision++
}
