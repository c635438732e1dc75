package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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
	// Notes are what holds only a part of it, and what was not looked at, in words for people.
	Notes []string
	// LastError is the last error of the task, or of the seeds of the source, where they redirect to, and its due tasks, since
	// the last success.
	LastError *dispatch.Failure
	// Partly: nothing holds all of it, but a part may be held (see Notes).
	Partly bool
	// Silent is the source if it succeeds and does not give what it should: see [SourceView.Silence].
	Silent *SourceView
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

// noteError keeps the latest of the last errors of tasks.
func (e *Explanation) noteError(tasks ...*dispatch.Task) {
	for _, t := range tasks {
		if t != nil && t.LastError != nil && (e.LastError == nil || t.LastError.Time.After(e.LastError.Time)) {
			e.LastError = t.LastError
		}
	}
}

// noteTakers adds the note on the collectors that take it.
func (e *Explanation) noteTakers(who takers) {
	if who.note != "" {
		e.Notes = append(e.Notes, who.note)
	}
	e.Partly = e.Partly || who.note != "" && len(who.gates) == 0
}

// ExplainTask explains what holds a task: that it has settled, who works on it, or
// every gate on its way to be granted; and that its source is deleted.
// ErrTaskNotFound.
func (o *Operator) ExplainTask(ctx context.Context, id dispatch.TaskID) (*Explanation, error) {
	t, err := o.taskByID(ctx, id)
	if err != nil {
		return nil, err
	}
	s, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	source, err := o.keptSource(ctx, t.SourceID)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Now: s.now}
	e.noteError(t)
	gate, ok := stateGate(t)
	if ok {
		if t.Lease != nil {
			noteOverdue(&gate, s.now)
			if err := s.noteHolder(ctx, &gate); err != nil {
				return nil, err
			}
		}
		e.add(Held{Gate: gate, Of: HeldTask, Name: string(t.ID)})
	}
	switch {
	case !owns(source, t):
		e.add(Held{Gate: sourceGone(t, source), Of: HeldSource, Name: cmp.Or(t.SourceID, t.SourceUID)})
	case !ok:
		var who takers
		e.Holds, who, err = s.holdsOf(ctx, source, t)
		e.noteTakers(who)
	}
	return e, err
}

// noteHolder adds to the gate of a lease what may be wrong with its holder: how long it has been silent, if it has
// missed a beat, how many of its slots are stuck, and the problem that it reports.
func (s *snapshot) noteHolder(ctx context.Context, g *dispatch.Gate) error {
	if g.Kind != dispatch.GateLeased {
		return nil
	}
	records, err := s.store.ListCollectors(ctx, dispatch.CollectorFilter{IDs: []string{g.By}}, "", 0)
	if err != nil {
		return fmt.Errorf("read collector %q: %w", g.By, err)
	}
	r := records[0]
	if r == nil {
		return nil
	}
	if s.now.Sub(r.Seen) > dispatch.IdleBeat {
		g.Reason += fmt.Sprintf("; its last heartbeat came %v ago", s.now.Sub(r.Seen).Truncate(time.Second))
	}
	if r.Info.StuckSlots > 0 {
		g.Reason += "; it has " + stuckSlots(&r.Info)
	}
	if r.Info.Problem != "" {
		g.Reason += "; it reports a problem " + problem(&r.Info)
	}
	return nil
}

// ExplainSource explains what holds a source: what holds the seed that is due next;
// if none waits, what holds one of the others; or that it has none. It also explains what holds
// the first of its due tasks, in a few of the queues that have some. ErrSourceNotFound.
func (o *Operator) ExplainSource(ctx context.Context, id string) (*Explanation, error) {
	source, err := o.liveSource(ctx, id)
	if err != nil {
		return nil, err
	}
	s, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	seeds, _, err := o.store.Tasks(ctx, source.AppliedSeeds, true)
	if err != nil {
		return nil, fmt.Errorf("read the seeds of source %q: %w", id, err)
	}
	due, err := s.dueLanes(ctx, dispatch.TaskFilter{SourceUID: source.UID})
	if err != nil {
		return nil, err
	}
	next := nextSeed(seeds)
	first := next
	if first == nil {
		first = due.firstTask()
	}
	e := &Explanation{Now: s.now}
	e.noteError(append(seeds, first)...)
	moves, err := o.d.Moves(ctx, []*dispatch.Source{source})
	if err != nil {
		return nil, err
	}
	for _, m := range moves[0] {
		e.noteError(&dispatch.Task{LastError: m.Failure})
	}
	held, who, err := s.holdsOf(ctx, source, first)
	if err != nil {
		return nil, err
	}
	e.Holds = held
	e.noteTakers(who)
	switch {
	case len(source.Spec.Seeds) == 0 && first == nil:
		e.add(Held{Gate: dispatch.Gate{Kind: dispatch.GateNoSeeds, Reason: "it has no seeds"}, Of: HeldSource, Name: id})
	case next == nil:
		busy := seedsBusy(seeds)
		for i := range busy {
			if err := s.noteHolder(ctx, &busy[i].Gate); err != nil {
				return nil, err
			}
		}
		e.add(busy...)
	}
	for i := range due.lanes {
		lane := &due.lanes[i]
		if lane.holds, _, err = s.holdsOf(ctx, source, lane.first); err != nil {
			return nil, err
		}
		e.add(lane.holds...)
	}
	if !due.only(next) {
		e.Notes = append(e.Notes, due.notes("queue", func(l *dueLane) string { return l.first.Queue })...)
	}
	decisiveFirst(e.Holds)
	view, err := o.Source(ctx, id)
	if err == nil && view.Silence(s.now) != "" {
		e.Silent = view
	}
	return e, err
}

// seedsBusy is why no seed waits: one is leased, or else one has settled for good.
func seedsBusy(seeds []*dispatch.Task) (found []Held) {
	for _, t := range seeds {
		if t == nil {
			continue
		}
		gate, ok := stateGate(t)
		if ok && (found == nil || gate.Kind == dispatch.GateLeased) {
			found = []Held{{Gate: gate, Of: HeldTask, Name: string(t.ID)}}
		}
		if gate.Kind == dispatch.GateLeased {
			break
		}
	}
	return found
}

// ExplainQueue explains what holds a queue and the pools of its tasks, and a few of the
// sources that have due tasks in it. Of a queue that does not exist it explains what would hold it.
func (o *Operator) ExplainQueue(ctx context.Context, name string) (*Explanation, error) {
	queue, err := o.findQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	own := s.holdsOfQueue(name, &queue.Queue)
	e := &Explanation{Now: s.now, Holds: slices.Clone(own), MapsTo: queue.MapsTo, Unknown: queue.Unknown && len(own) == 0}
	ofPool := make(map[string][]Held, len(queue.Pools))
	for _, pool := range queue.Pools {
		held, who, err := s.poolHolds(ctx, wanted{pool: pool, queue: name})
		if err != nil {
			return nil, err
		}
		ofPool[pool] = held
		e.add(held...)
		e.noteTakers(who)
	}
	e.add(heldBy(s.book.Everything(), HeldEverything, "")...)
	due, err := s.dueLanes(ctx, dispatch.TaskFilter{Queue: name})
	if err != nil {
		return nil, err
	}
	pools := len(queue.Pools) > 1
	differ := pools && len(e.Holds) > len(own) // not all tasks of the queue are held alike
	for i := range due.lanes {
		lane := &due.lanes[i]
		if err := s.addSourceHolds(ctx, lane); err != nil {
			return nil, err
		}
		differ = e.add(lane.holds...) || differ
		lane.holds = slices.Concat(own, ofPool[lane.pool], lane.holds)
	}
	if due.Due > 1 && differ || due.cut() {
		e.Notes = append(e.Notes, due.notes("source", func(l *dueLane) string {
			if pools && l.pool != "" {
				return l.first.SourceID + " of pool " + l.pool
			}
			return l.first.SourceID
		})...)
	}
	decisiveFirst(e.Holds)
	return e, nil
}

// ExplainPool explains what holds a pool, or every queue; and whether nothing is known of it.
func (o *Operator) ExplainPool(ctx context.Context, pool string) (*Explanation, error) {
	s, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	holds, who, err := s.poolHolds(ctx, wanted{pool: pool})
	if err != nil {
		return nil, err
	}
	known, err := o.pool(ctx, pool)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Now: s.now, Holds: append(heldBy(s.book.Everything(), HeldEverything, ""), holds...)}
	e.noteTakers(who)
	decisiveFirst(e.Holds)
	e.Unknown, err = o.poolUnknown(ctx, &known)
	e.Unknown = e.Unknown && len(s.book.Pool(pool)) == 0
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

// opening is what opens gates beside their end, in words for people.
var opening = map[dispatch.GateKind]string{
	dispatch.GateNotDue:         "its due time, or TriggerSources for a seed; SubmitTasks with SOONER for another task",
	dispatch.GateMinDelay:       "time, or a shorter min_delay by SetQueueRule",
	dispatch.GateMaxInFlight:    "the end of a lease of the queue, or a larger max_in_flight by SetQueueRule",
	dispatch.GateHostBlocked:    fmt.Sprintf("time, or LiftHolds of the queue with the name %q", dispatch.HoldWaggle),
	dispatch.GateEverythingHeld: "LiftHolds",
	dispatch.GatePoolHeld:       "LiftHolds",
	dispatch.GateSourceHeld:     "LiftHolds",
	dispatch.GateQueueHeld:      "LiftHolds",
	dispatch.GateCollectorHeld:  "LiftHolds",
	dispatch.GateSourceDeleted:  "nothing; a source that is created again begins anew",
	dispatch.GateBreaker:        "its due time, or TriggerSources",
	dispatch.GateNoCollector:    "a collector that fetches them from the pool, or another pool of the source by UpdateSource",
	dispatch.GateLeased:         "a report of its holder, the end of its lease, or RevokeLeases",
	dispatch.GateSettled:        "RetryTasks",
	dispatch.GateLocked: fmt.Sprintf("the end of the lock, or the deletion of its key in the store; "+
		"that is seen within %v", dispatch.OrphanLook),
	dispatch.GateNoSeeds: "seeds, by UpdateSource; tasks that are submitted are handed out all the same",
}

// OpenedBy is what opens one of the holds beside its end, in words for people. A settled task
// cannot be retried if its source is deleted.
func (e *Explanation) OpenedBy(h *Held) string {
	text := opening[h.Kind]
	if h.Kind == dispatch.GateSettled && slices.ContainsFunc(e.Holds, func(h Held) bool { return h.Kind == dispatch.GateSourceDeleted }) {
		return "nothing; its source is deleted"
	}
	if hold := h.Gate.Hold; hold != nil && hold.Name != dispatch.HoldDefault && strings.HasPrefix(text, "LiftHolds") {
		text += fmt.Sprintf(" with the name %q", hold.Name)
	}
	if h.Kind == dispatch.GateCollectorHeld {
		text += ", or another collector that fetches them from the pool"
	}
	return text
}
