package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// world is what the answers of a store have shown, held against the promises: P1 (nothing lost), P2 (one holder), P3
// (stale is refused), P4 (fences rise), P5 (prompt requeue), P6 (polite), P7 (replay is harmless), P8 (attempts are
// bounded) and P9 (nothing waits that could be granted). It predicts no whole answer: those are compared with the
// reference's. After each step it reads what the step was to change; all else must stay as it was read last.
type world struct {
	shards int
	clock  Clock
	counts map[string]int

	tasks   map[dispatch.TaskID]*modelTask
	order   []*modelTask      // the tasks, in an order that a seed repeats
	touched []dispatch.TaskID // what the step may have changed
	parts   []*part           // by shard
	rules   ruleBook
	holds   heldBook

	polls   map[string]time.Time // when each client token was polled last
	current map[string]string    // the session of each collector
	sources map[string]*dispatch.Source
	gone    map[string]bool // uids of sources that were deleted

	highest time.Time   // the latest time that the clock has shown
	lasting []time.Time // ends of what a store forgets by itself: collectors, sessions
}

// part is what the world knows of one shard.
type part struct {
	gates     map[string]dispatch.SourceGate
	queues    map[string]*modelQueue
	notes     map[[2]string]*grantNote
	keeps     map[string]string // the only session of a collector that may claim, by collector
	lastFence uint64
	lastSweep time.Time
	graceEnds time.Time // there is none from then on
	// unsynced: rules or holds changed and the queues were not placed anew yet.
	unsynced bool
	// unplaced are sources whose lanes were not placed anew yet.
	unplaced map[string]bool
}

// modelTask is a record as it was read last, or as the step that is seen must have left it.
type modelTask struct {
	dispatch.Task
	shard    int
	forgetAt time.Time // zero = kept
	// tampered: its lock was changed by hand since it was granted, or while it waits.
	tampered bool
	// lockUntil: a lock that no lease set is there until then, noEnd where it has none; lookBy: to be looked at by then.
	lockUntil, lookBy time.Time
	// loose: the store may end the lease earlier than it was read, since its lock was changed or the clock stepped back.
	loose bool
}

// noEnd is the end of a lock that has none.
var noEnd = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)

// grantNote is what a client token was granted, and when the last lease of that ended.
type grantNote struct {
	grants []dispatch.Grant
	ended  time.Time
}

func newWorld(shards int, clock Clock) *world {
	w := &world{
		shards: shards, clock: clock, counts: map[string]int{}, tasks: map[dispatch.TaskID]*modelTask{},
		rules: newRuleBook(), holds: newHeldBook(), polls: map[string]time.Time{}, current: map[string]string{}, sources: map[string]*dispatch.Source{}, gone: map[string]bool{}, highest: start,
	}
	for range shards {
		w.parts = append(w.parts, &part{
			gates: map[string]dispatch.SourceGate{}, queues: map[string]*modelQueue{}, notes: map[[2]string]*grantNote{},
			keeps: map[string]string{}, unplaced: map[string]bool{},
		})
	}
	return w
}

func (w *world) now() time.Time { return w.clock.Now().Truncate(time.Millisecond).UTC() }

func (w *world) count(name string) { w.counts[name]++ }

func (w *world) shardOf(name string) int { return dispatch.ShardOf(dispatch.SlotOf(name), w.shards) }

// task is the record of id; nil when there is none, or it was forgotten.
func (w *world) task(id dispatch.TaskID) *modelTask {
	t := w.tasks[id]
	if t != nil && t.State.Settled() && !t.forgetAt.IsZero() && !t.forgetAt.After(w.now()) {
		return nil
	}
	return t
}

// all lists the tasks, in an order that a seed repeats.
func (w *world) all() []*modelTask { return w.order }

// uids are those of all sources that have tasks.
func (w *world) uids() map[string]bool {
	uids := map[string]bool{}
	for _, t := range w.order {
		uids[t.SourceUID] = true
	}
	return uids
}

// put adds a record, or replaces the one of its id.
func (w *world) put(t *modelTask) {
	w.remove(t.ID)
	w.tasks[t.ID] = t
	w.order = append(w.order, t)
}

// remove takes a record out.
func (w *world) remove(id dispatch.TaskID) {
	if old := w.tasks[id]; old != nil {
		delete(w.tasks, id)
		i := slices.Index(w.order, old)
		w.order = slices.Delete(w.order, i, i+1)
	}
}

func (w *world) touch(t *modelTask) { w.touched = append(w.touched, t.ID) }

// touchLocked touches the waiting tasks under locks that were set by hand: a claim may have granted one and undone that.
func (w *world) touchLocked() {
	for _, t := range w.all() {
		if t.tampered && t.State.Waiting() {
			w.touch(t)
		}
	}
}

func (w *world) gate(t *modelTask) dispatch.SourceGate { return w.parts[t.shard].gates[t.SourceUID] }

// visible is the state that a reader sees.
func (w *world) visible(t *modelTask) dispatch.State {
	if !t.State.Waiting() {
		return t.State
	}
	if t.Due.After(w.now()) {
		return dispatch.StateScheduled
	}
	return dispatch.StateReady
}

// changed takes a record in that the last step may have changed. It must be what the answer to the step said.
func (w *world) changed(id dispatch.TaskID, got *dispatch.Task) error {
	t := w.task(id)
	switch {
	case t == nil && got == nil:
		return nil
	case t == nil:
		return broken("task %s of %s should not be there: %+v", got.Key, got.Queue, *got)
	case got == nil:
		return broken("task %s of %s is lost (P1); it should be %v", t.Key, t.Queue, w.visible(t))
	case got.Key != t.Key && got.Key != "" && t.Key != "" || got.Key == "" && !got.State.Settled() || got.Queue != t.Queue || got.SourceUID != t.SourceUID:
		return broken("task %s is read as %s of %s", id, got.Key, got.Queue)
	case got.State.Waiting() != t.State.Waiting() || !t.State.Waiting() && got.State != t.State:
		return broken("task %s of %s is %v, want %v (P1)", t.Key, t.Queue, got.State, t.State)
	case (got.Lease == nil) != (t.Lease == nil) || t.Lease != nil && got.Lease.Token != t.Lease.Token:
		return broken("task %s of %s is leased by %+v, want %+v (P2)", t.Key, t.Queue, got.Lease, t.Lease)
	case t.Lease != nil && !w.ends(t, got.Lease.Deadline):
		return broken("the lease of task %s of %s ends at %v, want %v (P5)", t.Key, t.Queue, got.Lease.Deadline, t.Lease.Deadline)
	case got.Counters.Attempt != t.Counters.Attempt || got.Counters.Expirations != t.Counters.Expirations:
		return broken("task %s of %s has the counters %+v, want %+v (P8)", t.Key, t.Queue, got.Counters, t.Counters)
	case got.Revision < t.Revision:
		return broken("the revision of task %s of %s falls from %d to %d", t.Key, t.Queue, t.Revision, got.Revision)
	}
	t.Task = *got
	return nil
}

// ends reports whether the lease of a task may be read with this deadline.
func (w *world) ends(t *modelTask, deadline time.Time) bool {
	return deadline.Equal(t.Lease.Deadline) || t.loose && deadline.Before(t.Lease.Deadline)
}

// compare holds a record that the last step was not to change against what was read of it last.
func (w *world) compare(what string, got *dispatch.Task, t *modelTask, details, history bool) error {
	if got == nil || t == nil {
		if got == nil && t == nil {
			return nil
		}
		if t == nil {
			return broken("%s: task %s of %s should not be there: %+v", what, got.Key, got.Queue, *got)
		}
		return broken("%s: task %s of %s is lost (P1); it should be %v", what, t.Key, t.Queue, w.visible(t))
	}
	if t.Lease != nil && got.Lease != nil && got.Lease.Token == t.Lease.Token && w.ends(t, got.Lease.Deadline) {
		t.Lease = new(*got.Lease)
	}
	want, have := t.Task, *got
	want.State = w.visible(t)
	// What follows from the source and the lock changes without the task.
	want.SourceID, want.Pool, want.SourceDeleted, want.Lock = have.SourceID, have.Pool, have.SourceDeleted, have.Lock
	if want.State.Settled() {
		want.Due, have.Due = time.Time{}, time.Time{}
	}
	if !details {
		want.Cursor, want.Memo, have.Cursor, have.Memo = nil, nil, nil, nil
	}
	if !history {
		want.LastError, want.History, have.LastError, have.History = nil, nil, nil, nil
	}
	if d := diff(reflect.ValueOf(have), reflect.ValueOf(want), "Task"); d != "" {
		return broken("%s: task %s of %s: %s (got, want)", what, t.Key, t.Queue, d)
	}
	return nil
}

// errModel is the base of what a world finds wrong.
var errModel = errors.New("the contract is broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errModel, fmt.Sprintf(format, args...))
}
