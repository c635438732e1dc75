package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Explanation is what holds a task, source, queue or pool.
type Explanation struct {
	// Now is the store's time of the look.
	Now time.Time
	// Holds are all gates that hold it; none: it is granted in its turn.
	Holds []Hold
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
func (e *Explanation) add(holds ...Hold) (added bool) {
	for _, h := range holds {
		i := slices.IndexFunc(e.Holds, func(has Hold) bool { return has.same(&h) })
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
func (d *Dispatcher) ExplainTask(ctx context.Context, id TaskID) (*Explanation, error) {
	tasks, now, err := d.store.Tasks(ctx, []TaskID{id}, true)
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", id, err)
	}
	t := tasks[0]
	if t == nil {
		return nil, fmt.Errorf("task %s: %w", id, ErrTaskNotFound)
	}
	var holds []Hold
	gate, ok := t.stateGate()
	if ok && t.Lease != nil {
		gate.overdue(now)
	}
	if ok {
		holds = append(holds, Hold{Gate: gate, Of: HeldTask, Name: string(t.ID)})
	}
	source, err := d.store.Source(ctx, t.SourceID)
	if errors.Is(err, ErrSourceNotFound) || err == nil && (source.UID != t.SourceUID || source.Deleted) {
		gate := t.sourceGone(source)
		return &Explanation{Now: now, Holds: append(holds, Hold{Gate: gate, Of: HeldSource, Name: cmp.Or(t.SourceID, t.SourceUID)})}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("source %q: %w", t.SourceID, err)
	}
	e := &Explanation{Now: now, Holds: holds}
	if !ok {
		var who takers
		e.Holds, who, err = d.holdsOf(ctx, source, t, now)
		e.noteTakers(&who)
	}
	return e, err
}

// ExplainSource tells what holds a source: what holds the seed that is due next;
// where none waits, what holds one of the others; or that it has none. And what holds
// the first of its tasks that are due, in a few of the queues in which there are some.
// ErrSourceNotFound.
func (d *Dispatcher) ExplainSource(ctx context.Context, id string) (*Explanation, error) {
	source, err := d.liveSource(ctx, id)
	if err != nil {
		return nil, err
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	seeds, _, err := d.store.Tasks(ctx, source.AppliedSeeds, true)
	if err != nil {
		return nil, fmt.Errorf("read the seeds of source %q: %w", id, err)
	}
	due, err := d.dueLanes(ctx, TaskFilter{SourceUID: source.UID})
	if err != nil {
		return nil, err
	}
	next := nextSeed(seeds)
	first := next
	if first == nil {
		first = due.firstTask()
	}
	e := &Explanation{Now: now}
	held, who, err := d.holdsOf(ctx, source, first, now)
	if err != nil {
		return nil, err
	}
	e.Holds = held
	e.noteTakers(&who)
	switch {
	case len(source.Spec.Seeds) == 0 && first == nil:
		e.add(Hold{Gate: Gate{Kind: GateNoSeeds, Reason: "it has no seeds"}, Of: HeldSource, Name: id})
	case next == nil:
		e.add(seedsBusy(seeds)...)
	}
	for i := range due.lanes {
		lane := &due.lanes[i]
		if lane.holds, _, err = d.holdsOf(ctx, source, lane.first, now); err != nil {
			return nil, err
		}
		e.add(lane.holds...)
	}
	if !due.only(next) {
		e.note(due.inQueues())
	}
	return e, nil
}

// seedsBusy is why no seed waits: one that is worked on, else one that has
// settled for good.
func seedsBusy(seeds []*Task) []Hold {
	var found []Hold
	for _, t := range seeds {
		if t == nil {
			continue
		}
		if gate, ok := t.stateGate(); ok && (found == nil || gate.Kind == GateLeased) {
			found = []Hold{{Gate: gate, Of: HeldTask, Name: string(t.ID)}}
			if gate.Kind == GateLeased {
				break
			}
		}
	}
	return found
}

// ExplainQueue tells what holds a queue and the pools of its tasks, and a few of the
// sources of which tasks are due in it; of one that is not there, what would hold it.
func (d *Dispatcher) ExplainQueue(ctx context.Context, name string) (*Explanation, error) {
	queue, err := d.findQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	e := &Explanation{Now: now, Holds: queue.holds(), MapsTo: queue.MapsTo, Unknown: queue.Unknown}
	own, ofPool := slices.Clone(e.Holds), make(map[string][]Hold, len(queue.Pools))
	for _, pool := range queue.Pools {
		of, takes, err := d.poolHolds(ctx, wanted{pool: pool, queue: name}, now)
		if err != nil {
			return nil, err
		}
		ofPool[pool] = of
		e.add(of...)
		e.noteTakers(&takes)
	}
	due, err := d.dueLanes(ctx, TaskFilter{Queue: name})
	if err != nil {
		return nil, err
	}
	due.pools = len(queue.Pools) > 1
	some := due.pools && len(e.Holds) > len(own) // are held beside the queue
	for i := range due.lanes {
		lane := &due.lanes[i]
		if err := d.sourceHolds(ctx, lane, now); err != nil {
			return nil, err
		}
		some = e.add(lane.holds...) || some
		lane.holds = slices.Concat(own, ofPool[lane.pool], lane.holds)
	}
	if due.Due > 1 && some || due.cut() {
		e.note(due.ofSources())
	}
	return e, nil
}

// ExplainPool tells what holds a pool, or every queue; and whether nothing is known of it.
func (d *Dispatcher) ExplainPool(ctx context.Context, pool string) (*Explanation, error) {
	now, err := d.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	holds, takes, err := d.poolHolds(ctx, wanted{pool: pool}, now)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Now: now}
	e.noteTakers(&takes)
	known, err := d.pool(ctx, pool)
	if err != nil {
		return nil, err
	}
	if e.Unknown, err = d.poolUnknown(ctx, &known); err != nil {
		return nil, err
	}
	e.Holds, err = d.stopped(ctx, holds)
	return e, err
}

// OpensAt is when all that holds has opened by itself, at the earliest; of several drains
// it takes the end of as many as let the first collector go on. ok is false when something
// has to happen first.
func (e *Explanation) OpensAt() (at time.Time, ok bool) {
	at = e.Now
	for _, h := range e.Holds {
		if h.beside {
			continue
		}
		if h.Until.IsZero() || h.Kind == GateLeased { // a lease ends sooner, or is renewed
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
func (e *Explanation) OpenedBy(h *Hold) string {
	if h.Kind == GateSettled && slices.ContainsFunc(e.Holds, func(h Hold) bool { return h.Kind == GateSourceDeleted }) {
		return "nothing; its source is deleted"
	}
	return h.openedBy()
}

// sourceGone is the gate of a task whose source is deleted; source is what is kept under
// its id, nil where nothing is.
func (t *Task) sourceGone(source *Source) Gate {
	const means = "its source is deleted, and its tasks end CANCELED"
	deletion := t.SourceDeleted
	if deletion == nil && source != nil && source.UID == t.SourceUID {
		deletion = source.Deletion
	}
	if deletion == nil {
		return Gate{Kind: GateSourceDeleted, By: "waggle", Reason: means}
	}
	gate := *deletion
	if gate.Reason = cmp.Or(gate.Reason, means); deletion.Reason != "" {
		gate.Reason = means + ": " + deletion.Reason
	}
	return gate
}

// Canceled is who canceled a task that is CANCELED, or asked for it while it is LEASED,
// when and why; nil of any other, or where nobody said. A deletion of its source is that
// only of what was not CANCELED before it. It takes a task with details.
func (t *Task) Canceled() *Gate {
	if t.State != StateCanceled && t.CancelRequested == CancelNone {
		return nil
	}
	deletion := t.SourceDeleted
	for i := len(t.History) - 1; i >= 0; i-- {
		a := &t.History[i]
		if a.Result != ResultCanceled {
			continue
		}
		if deletion == nil || !a.Ended.Before(deletion.Time) || t.State == StateCanceled && t.SettledAt.Before(deletion.Time) {
			return &Gate{By: a.By, Reason: a.Reason, Time: a.Ended}
		}
		break
	}
	return deletion
}

// stateGate is what holds a task that does not wait.
func (t *Task) stateGate() (gate Gate, ok bool) {
	switch {
	case t.Lease != nil:
		gate = Gate{Kind: GateLeased, By: t.Lease.Token.Collector, Time: t.Lease.Granted, Until: t.Lease.Deadline, Reason: "a collector works on it"}
		if t.CancelRequested != CancelNone {
			gate.Reason += "; it ends CANCELED with its lease" + t.canceledWords()
		}
	case t.State.Settled():
		gate = Gate{Kind: GateSettled, Time: t.SettledAt, Reason: "it is " + t.State.String()}
		if e := t.LastError; e != nil && e.Message != "" && t.State == StateDead {
			gate.Reason += quoted(e.Message)
		}
		if c := t.Canceled(); c != nil {
			gate.By = c.By
			if c.Reason != "" {
				gate.Reason += ": " + c.Reason
			}
		}
	}
	return gate, gate.Kind != ""
}

// overdue says of the gate of a lease that its deadline has passed, and why it stands all
// the same: until when, the next sweeps decide.
func (g *Gate) overdue(now time.Time) {
	if g.Until.After(now) {
		return
	}
	g.Reason += fmt.Sprintf("; its lease ran out %v ago and is ended by the next sweep, unless it is renewed before: "+
		"after an outage of the store, or of all dispatchers, of over %v, that is when collectors have had %v of grace to renew",
		now.Sub(g.Until).Truncate(time.Second), OutageAfter, OutageGrace)
	g.Until = time.Time{}
}

// canceledWords is who asked for the end of a leased task, and why.
func (t *Task) canceledWords() string {
	c := t.Canceled()
	switch {
	case c == nil:
		return ""
	case c.Reason == "":
		return ", as " + c.By + " asked"
	default:
		return ", as " + c.By + " asked: " + c.Reason
	}
}

// openedBy is what opens a gate by itself.
func (h *Hold) openedBy() string {
	switch h.Kind {
	case GateNotDue:
		return "its due time, or TriggerSources for a seed; SubmitTasks with SOONER for another task"
	case GateMinDelay:
		return "time, or a shorter min_delay by SetQueueRule"
	case GateMaxInFlight:
		return "the end of a lease of the queue, or a larger max_in_flight by SetQueueRule"
	case GateHostBlocked:
		return "time, or UnblockQueue with include_automatic"
	case GateBlocked:
		return "UnblockQueue"
	case GatePaused:
		return "ResumeQueue"
	case GateQueuePaused, GateQueueDenied:
		return fmt.Sprintf("SetQueueRule or DeleteQueueRule of the rule %q", h.Rule)
	case GateSourcePaused:
		return "ResumeSources"
	case GateSourceDeleted:
		return "nothing; a source that is created again begins anew"
	case GateBreaker:
		return "its due time, or TriggerSources"
	case GatePoolPaused:
		return "ResumePool"
	case GateDrained:
		return "ResumeCollectors, or another collector that fetches them from the pool"
	case GateNoCollector:
		if h.Of != HeldPool {
			return "a collector of the pool that narrows its fetches to others, once it fetches them, too; " +
				"one more collector that does, or another pool of the source by UpdateSource"
		}
		return "a collector that fetches them from the pool, or another pool of the source by UpdateSource"
	case GateLeased:
		return "a report of its holder, the end of its lease, or RevokeLeases"
	case GateSettled:
		return "RetryTasks"
	case GateNoSeeds:
		return "seeds, by UpdateSource; tasks that are submitted are handed out all the same"
	}
	return ""
}
