package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Explanation is what holds a task, source, queue or pool.
type Explanation struct {
	// Now is the store's time of the look.
	Now time.Time
	// Holds are all gates that hold it; none: it is granted in its turn.
	Holds []Held
	// MapsTo is, of a queue, that of [Queue], and Unknown that of [Queue] or [Pool].
	MapsTo  string
	Unknown bool
	// Notes say in words for people what holds only a part of it, and what was not
	// looked at.
	Notes []string
	// Partly, where nothing holds it: a part of it may be held all the same, as Notes say.
	Partly bool
}

// add adds gates that are not there yet, and reports whether it did.
func (e *Explanation) add(holds ...Held) (added bool) {
	for _, h := range holds {
		i := slices.IndexFunc(e.Holds, func(has Held) bool { return has.same(&h) })
		if i < 0 {
			e.Holds, added = append(e.Holds, h), true
			continue
		}
		e.Holds[i].beside = e.Holds[i].beside && h.beside
	}
	return added
}

// note adds a note, unless it is empty.
func (e *Explanation) note(text string) {
	if text != "" {
		e.Notes = append(e.Notes, text)
	}
}

// noteTakers adds what is noted of who takes it.
func (e *Explanation) noteTakers(who *takers) {
	e.note(who.note)
	e.Partly = e.Partly || who.note != "" && len(who.gates) == 0
}

// ExplainTask tells what holds a task: that it has settled, who works on it, or
// every gate on its way to be granted; and that its source is deleted.
// ErrTaskNotFound.
func (o *Operator) ExplainTask(ctx context.Context, id dispatch.TaskID) (*Explanation, error) {
	tasks, now, err := o.store.Tasks(ctx, []dispatch.TaskID{id}, true)
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", id, err)
	}
	t := tasks[0]
	if t == nil {
		return nil, fmt.Errorf("task %s: %w", id, dispatch.ErrTaskNotFound)
	}
	var holds []Held
	gate, ok := stateGate(t)
	if ok && t.Lease != nil {
		tellOverdue(&gate, now)
		if err := o.noteSilence(ctx, &gate, now); err != nil {
			return nil, err
		}
	}
	if ok {
		holds = append(holds, Held{Gate: gate, Of: HeldTask, Name: string(t.ID)})
	}
	source, err := o.keptSource(ctx, t.SourceID)
	if err != nil {
		return nil, err
	}
	if !owns(source, t) {
		gate := sourceGone(t, source)
		return &Explanation{Now: now, Holds: append(holds, Held{Gate: gate, Of: HeldSource, Name: cmp.Or(t.SourceID, t.SourceUID)})}, nil
	}
	e := &Explanation{Now: now, Holds: holds}
	if !ok {
		var who takers
		e.Holds, who, err = o.holdsOf(ctx, source, t, now)
		e.noteTakers(&who)
	}
	return e, err
}

// noteSilence adds to the gate of a lease how long its holder has been silent, if it has missed a
// beat: it may hang.
func (o *Operator) noteSilence(ctx context.Context, g *dispatch.Gate, now time.Time) error {
	records, err := o.store.ListCollectors(ctx, dispatch.CollectorFilter{IDs: []string{g.By}}, "", 0)
	if err != nil {
		return fmt.Errorf("read collector %q: %w", g.By, err)
	}
	if r := records[0]; r != nil && now.Sub(r.Seen) > dispatch.IdleBeat {
		g.Reason += fmt.Sprintf("; its last heartbeat came %v ago", now.Sub(r.Seen).Truncate(time.Second))
	}
	return nil
}

// ExplainSource tells what holds a source: what holds the seed that is due next;
// where none waits, what holds one of the others; or that it has none. And what holds
// the first of its tasks that are due, in a few of the queues in which there are some.
// ErrSourceNotFound.
func (o *Operator) ExplainSource(ctx context.Context, id string) (*Explanation, error) {
	source, err := o.liveSource(ctx, id)
	if err != nil {
		return nil, err
	}
	now, err := o.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	seeds, _, err := o.store.Tasks(ctx, source.AppliedSeeds, true)
	if err != nil {
		return nil, fmt.Errorf("read the seeds of source %q: %w", id, err)
	}
	due, err := o.dueLanes(ctx, dispatch.TaskFilter{SourceUID: source.UID})
	if err != nil {
		return nil, err
	}
	next := nextSeed(seeds)
	first := next
	if first == nil {
		first = due.firstTask()
	}
	e := &Explanation{Now: now}
	held, who, err := o.holdsOf(ctx, source, first, now)
	if err != nil {
		return nil, err
	}
	e.Holds = held
	e.noteTakers(&who)
	switch {
	case len(source.Spec.Seeds) == 0 && first == nil:
		e.add(Held{Gate: dispatch.Gate{Kind: dispatch.GateNoSeeds, Reason: "it has no seeds"}, Of: HeldSource, Name: id})
	case next == nil:
		e.add(seedsBusy(seeds)...)
	}
	for i := range due.lanes {
		lane := &due.lanes[i]
		if lane.holds, _, err = o.holdsOf(ctx, source, lane.first, now); err != nil {
			return nil, err
		}
		e.add(lane.holds...)
	}
	if !due.only(next) {
		e.note(due.inQueues())
	}
	decisiveFirst(e.Holds)
	return e, nil
}

// seedsBusy is why no seed waits: one that is worked on, else one that has
// settled for good.
func seedsBusy(seeds []*dispatch.Task) []Held {
	var found []Held
	for _, t := range seeds {
		if t == nil {
			continue
		}
		if gate, ok := stateGate(t); ok && (found == nil || gate.Kind == dispatch.GateLeased) {
			found = []Held{{Gate: gate, Of: HeldTask, Name: string(t.ID)}}
			if gate.Kind == dispatch.GateLeased {
				break
			}
		}
	}
	return found
}

// ExplainQueue tells what holds a queue and the pools of its tasks, and a few of the
// sources of which tasks are due in it; of one that is not there, what would hold it.
func (o *Operator) ExplainQueue(ctx context.Context, name string) (*Explanation, error) {
	queue, err := o.findQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	now, err := o.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	book, err := o.d.Holds(ctx)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Now: now, Holds: holdsOfQueue(&queue.Queue, book), MapsTo: queue.MapsTo, Unknown: queue.Unknown}
	own, ofPool := slices.Clone(e.Holds), make(map[string][]Held, len(queue.Pools))
	for _, pool := range queue.Pools {
		of, takes, err := o.poolHolds(ctx, wanted{pool: pool, queue: name}, now)
		if err != nil {
			return nil, err
		}
		ofPool[pool] = of
		e.add(of...)
		e.noteTakers(&takes)
	}
	e.add(heldBy(book.Everything(), HeldEverything, "")...)
	due, err := o.dueLanes(ctx, dispatch.TaskFilter{Queue: name})
	if err != nil {
		return nil, err
	}
	due.pools = len(queue.Pools) > 1
	some := due.pools && len(e.Holds) > len(own) // are held beside the queue
	for i := range due.lanes {
		lane := &due.lanes[i]
		if err := o.sourceHolds(ctx, lane, now); err != nil {
			return nil, err
		}
		some = e.add(lane.holds...) || some
		lane.holds = slices.Concat(own, ofPool[lane.pool], lane.holds)
	}
	if due.Due > 1 && some || due.cut() {
		e.note(due.ofSources())
	}
	decisiveFirst(e.Holds)
	return e, nil
}

// ExplainPool tells what holds a pool, or every queue; and whether nothing is known of it.
func (o *Operator) ExplainPool(ctx context.Context, pool string) (*Explanation, error) {
	now, err := o.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	holds, takes, err := o.poolHolds(ctx, wanted{pool: pool}, now)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Now: now}
	e.noteTakers(&takes)
	known, err := o.pool(ctx, pool)
	if err != nil {
		return nil, err
	}
	if e.Unknown, err = o.poolUnknown(ctx, &known); err != nil {
		return nil, err
	}
	book, err := o.d.Holds(ctx)
	e.Holds = append(heldBy(book.Everything(), HeldEverything, ""), holds...)
	decisiveFirst(e.Holds)
	return e, err
}

// OpensAt is when all that holds has opened by itself, at the earliest; of several holds on collectors
// it takes the end of as many as let the first collector go on. ok is false when something
// has to happen first.
func (e *Explanation) OpensAt() (at time.Time, ok bool) {
	at = e.Now
	for _, h := range e.Holds {
		if h.beside {
			continue
		}
		if h.Until.IsZero() || h.Kind == dispatch.GateLeased { // a lease ends sooner, or is renewed
			return time.Time{}, false
		}
		if h.Until.After(at) {
			at = h.Until
		}
	}
	return at, true
}

// OpenedBy says in words for people what opens one of the holds, beside its end. A task
// that has settled is not brought back once its source is deleted.
func (e *Explanation) OpenedBy(h *Held) string {
	if h.Kind == dispatch.GateSettled && slices.ContainsFunc(e.Holds, func(h Held) bool { return h.Kind == dispatch.GateSourceDeleted }) {
		return "nothing; its source is deleted"
	}
	return h.openedBy()
}

// openedBy is what opens a gate by itself.
func (h *Held) openedBy() string {
	switch h.Kind {
	case dispatch.GateNotDue:
		return "its due time, or TriggerSources for a seed; SubmitTasks with SOONER for another task"
	case dispatch.GateMinDelay:
		return "time, or a shorter min_delay by SetQueueRule"
	case dispatch.GateMaxInFlight:
		return "the end of a lease of the queue, or a larger max_in_flight by SetQueueRule"
	case dispatch.GateHostBlocked:
		return fmt.Sprintf("time, or LiftHolds of the queue with the name %q", dispatch.HoldWaggle)
	case dispatch.GateEverythingHeld, dispatch.GatePoolHeld, dispatch.GateSourceHeld, dispatch.GateQueueHeld:
		return "LiftHolds" + nameOf(h.Gate.Hold)
	case dispatch.GateSourceDeleted:
		return "nothing; a source that is created again begins anew"
	case dispatch.GateBreaker:
		return "its due time, or TriggerSources"
	case dispatch.GateCollectorHeld:
		return "LiftHolds" + nameOf(h.Gate.Hold) + ", or another collector that fetches them from the pool"
	case dispatch.GateNoCollector:
		if h.Of != HeldPool {
			return "a collector of the pool that narrows its fetches to others, once it fetches them, too; " +
				"one more collector that does, or another pool of the source by UpdateSource"
		}
		return "a collector that fetches them from the pool, or another pool of the source by UpdateSource"
	case dispatch.GateLeased:
		return "a report of its holder, the end of its lease, or RevokeLeases"
	case dispatch.GateSettled:
		return "RetryTasks"
	case dispatch.GateLocked:
		return fmt.Sprintf("the end of the lock, or the deletion of its key in the store; that is seen within %v", dispatch.OrphanLook)
	case dispatch.GateNoSeeds:
		return "seeds, by UpdateSource; tasks that are submitted are handed out all the same"
	}
	return ""
}

// nameOf is the name of a hold that has another one than the default, in words.
func nameOf(hold *dispatch.Hold) string {
	if hold == nil || hold.Name == dispatch.HoldDefault {
		return ""
	}
	return fmt.Sprintf(" with the name %q", hold.Name)
}
