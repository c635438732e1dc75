package storetest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// world is a naive account of what a store must hold, kept from its answers
// alone. It knows of each task what a reader of the contract can know, and
// checks with it what the store answers next: P1 (nothing lost), P2 (one
// holder), P3 (stale is refused), P4 (fences rise), P6 (polite), P7 (replay is
// harmless) and P9 (nothing waits that could be granted). It predicts no order.
type world struct {
	shards int
	clock  Clock
	counts map[string]int

	tasks map[dispatch.TaskID]*modelTask
	order []*modelTask // the tasks, in an order that a seed repeats
	parts []*part      // by shard
	rules ruleBook

	sessions map[string]*modelSession // by collector
	polls    map[string]time.Time     // when each client token was polled last
	leaders  map[string]leadership    // by duty
	sources  map[string]*dispatch.Source
	gone     map[string]bool // uids of sources that were deleted
	holds    heldBook
	bindings map[string]modelBinding // by collector
	audit    []dispatch.AuditEntry   // the oldest first

	highest time.Time // the latest time that the clock has shown
}

// part is what the world knows of one shard.
type part struct {
	gates      map[string]dispatch.SourceGate
	queues     map[string]*modelQueue
	notes      map[[2]string]*grantNote // of what is held
	used       map[usedToken]bool
	keeps      map[string]keptSession // by collector
	lastFence  uint64
	lastSweep  time.Time
	graceUntil time.Time
	// vagueGrace: until then there may be grace, for what only the store knows to stand.
	vagueGrace time.Time
	// unsynced: rules or holds changed and the queues were not placed anew yet.
	unsynced bool
	// unplaced are sources whose lanes were not placed anew yet.
	unplaced map[string]bool
	// deletions are why sources were deleted, by uid; nil: not said.
	deletions map[string]*dispatch.Gate
	// ghosts: a record was deleted by hand here.
	ghosts int
}

// modelTask is a record, and what only the store's insides know of it.
type modelTask struct {
	dispatch.Task
	shard    int
	forgetAt time.Time // zero = kept
	// lockGone: the lock was deleted by hand; ended: a renewal has told so.
	lockGone, ended bool
	// orphanUntil: a lock that no lease set stands until then, noEnd where it has none;
	// foreignUntil: such a lock stands in place of that of the lease.
	orphanUntil, foreignUntil time.Time
	// orphan: it may be in the lease index without a lease; lookBy: to be looked at there
	// by then, since its lock was deleted by hand.
	orphan bool
	lookBy time.Time
	// vague: what DropTasks did to SettledAt is the store's own.
	vague bool
	// renewed: the lease was renewed, and the lease index may not know yet; unread:
	// so a sweep may have cut its deadline or not.
	renewed, unread bool
	// ready: it was due when it came to wait, so a claim finds it.
	ready bool
}

// noEnd is the end of a lock that has none.
var noEnd = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)

// unlocked follows the end of a lease: a lock that was set in place of its own stays.
func (t *modelTask) unlocked(now time.Time) {
	t.lockGone, t.ended = false, false
	if t.foreignUntil.After(now) {
		t.orphan, t.orphanUntil = true, t.foreignUntil
	}
	t.foreignUntil = time.Time{}
}

// underLock reports whether the task may be in the lease index without a lease, now or once
// a claim meets it.
func (t *modelTask) underLock(now time.Time) bool {
	return t.orphan || t.State.Waiting() && t.orphanUntil.After(now)
}

// noLock reports whether the lock of the lease was deleted, or what was set in its place
// has ended.
func (t *modelTask) noLock(now time.Time) bool {
	return t.lockGone || !t.foreignUntil.IsZero() && t.foreignUntil.Before(now)
}

// strayLock is what a read tells of the lock of a waiting task, given what it told: of one
// that is gone, the next look is the store's own.
func (t *modelTask) strayLock(now time.Time, got *dispatch.StrayLock) *dispatch.StrayLock {
	switch {
	case !t.State.Waiting():
		return nil
	case t.orphanUntil.Equal(noEnd):
		return &dispatch.StrayLock{Value: foreign}
	case t.orphanUntil.After(now):
		return &dispatch.StrayLock{Value: foreign, Ends: t.orphanUntil}
	case t.orphan && got != nil && got.Value == "":
		return got
	}
	return nil
}

// modelQueue is what the world knows of one queue.
type modelQueue struct {
	leased int
	// low and high bound next_grant: the store may not grant before low, and
	// nothing holds it after high.
	low, high time.Time
	// blockLow and blockHigh bound the automatic block.
	blockLow, blockHigh time.Time
	step                int
	// asked is what the host asks for, as reported last. A store forgets it
	// with the queue, and when exactly is its own: then askedLow is 0.
	asked, askedLow time.Duration
	// failed are the URLs that failed since the host last answered; failedLow without those that the store may have
	// forgotten.
	failed, failedLow failedURLs
}

// failedURLs are hashes of different URLs.
type failedURLs map[uint32]bool

// with are the URLs and one more.
func (f failedURLs) with(url uint32) failedURLs {
	more := maps.Clone(f)
	if more == nil {
		more = failedURLs{}
	}
	more[url] = true
	return more
}

// blocks reports whether they are enough to block the host.
func (f failedURLs) blocks() bool { return len(f) >= 3 }

// usedToken is a (collector, client token), and the step in which its last lease ended.
type usedToken struct {
	key  [2]string
	step int64
}

// grantNote is what the store keeps of a grant, to replay it, while it is held.
type grantNote struct {
	calls  []string // that answered from it and did not give it back; nil: too many did
	grants []dispatch.Grant
}

// modelSession is what the world knows of a collector's sessions.
type modelSession struct {
	current  string
	replaced map[string]bool
	fresh    bool // the current one has replaced another, and not all was told
	seen     time.Time
}

// keptSession is which session of a collector may claim, until when that is
// remembered.
type keptSession struct {
	session string
	until   time.Time
}

// leadership is who leads a duty, until when.
type leadership struct {
	holder string
	until  time.Time
}

func newWorld(shards int, clock Clock) *world {
	w := &world{
		shards: shards, clock: clock, counts: map[string]int{},
		tasks: map[dispatch.TaskID]*modelTask{}, rules: newRuleBook(),
		sessions: map[string]*modelSession{}, polls: map[string]time.Time{}, leaders: map[string]leadership{}, sources: map[string]*dispatch.Source{},
		bindings: map[string]modelBinding{}, gone: map[string]bool{}, holds: newHeldBook(),
		highest: start,
	}
	for range shards {
		w.parts = append(w.parts, &part{
			gates: map[string]dispatch.SourceGate{}, queues: map[string]*modelQueue{},
			notes: map[[2]string]*grantNote{}, used: map[usedToken]bool{}, keeps: map[string]keptSession{}, unplaced: map[string]bool{},
			deletions: map[string]*dispatch.Gate{},
		})
	}
	return w
}

func (w *world) now() time.Time { return w.clock.Now().Truncate(time.Millisecond).UTC() }

// millisecondEnd is the end of the present millisecond, from which the delay
// after a grant counts.
func (w *world) millisecondEnd() time.Time {
	now := w.clock.Now().UTC()
	if end := now.Truncate(time.Millisecond); end.Before(now) {
		return end.Add(time.Millisecond)
	}
	return now
}

func (w *world) count(name string) { w.counts[name]++ }

func (w *world) shardOf(name string) int { return dispatch.ShardOf(dispatch.SlotOf(name), w.shards) }

// task is the record of id; nil when there is none, or it was forgotten.
func (w *world) task(id dispatch.TaskID) *modelTask {
	t := w.tasks[id]
	if t == nil {
		return nil
	}
	if t.State.Settled() && !t.forgetAt.IsZero() && !t.forgetAt.After(w.now()) {
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

func (w *world) queue(shard int, name string) *modelQueue {
	q := w.parts[shard].queues[name]
	if q == nil {
		q = &modelQueue{}
		w.parts[shard].queues[name] = q
	}
	return q
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

// compare holds a record as the store gave it against the world's.
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
	want, have := t.Task, *got
	want.State = w.visible(t)
	gate := w.gate(t)
	want.SourceID, want.Pool = gate.ID, gate.Pool
	if w.gone[t.SourceUID] {
		want.SourceID, have.SourceID, want.Pool, have.Pool = "", "", "", ""
	}
	if want.State.Settled() {
		want.Due, have.Due = time.Time{}, time.Time{}
	}
	if t.vague {
		want.SettledAt, have.SettledAt = time.Time{}, time.Time{}
		want.CancelRequested, have.CancelRequested = 0, 0
		want.AgainRequested, have.AgainRequested = false, false
	}
	if !details {
		want.Cursor, want.Memo, have.Cursor, have.Memo = nil, nil, nil, nil
	}
	// When a store forgets a deleted source is its own.
	if want.Lock = t.strayLock(w.now(), have.Lock); !history {
		want.Lock = nil
	}
	if want.SourceDeleted = w.parts[t.shard].deletions[t.SourceUID]; !history || w.gone[t.SourceUID] && have.SourceDeleted == nil {
		want.SourceDeleted = nil
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
