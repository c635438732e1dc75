package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

// HeldKind is the kind of thing that a gate is of.
type HeldKind uint8

// What gates are of.
const (
	HeldTask HeldKind = iota + 1
	HeldSource
	HeldQueue
	HeldPool
	HeldEverything
)

// Held is a gate with what it is of.
type Held struct {
	dispatch.Gate
	Of   HeldKind
	Name string // id of the task or source, name of the queue or pool; empty for everything

	// beside: it is a hold on collectors beside another one whose end is enough.
	beside bool
}

// same reports whether both are one gate of one thing.
func (h *Held) same(other *Held) bool {
	return h.Kind == other.Kind && h.Of == other.Of && h.Name == other.Name &&
		(h.Gate.Hold == nil || other.Gate.Hold == nil || h.Gate.Hold.Key() == other.Gate.Hold.Key())
}

// maxQuoted bounds what a gate quotes of a failure, in bytes.
const maxQuoted = 300

// maxLockQuoted bounds what a gate quotes of a lock, in characters.
const maxLockQuoted = 100

// snapshot is the holds in force at one time of the store. Explanations are made from it.
type snapshot struct {
	*Operator
	book *holdbook.Book
	now  time.Time
}

func (o *Operator) snapshot(ctx context.Context) (*snapshot, error) {
	book, err := o.d.Holds(ctx)
	if err != nil {
		return nil, err
	}
	now, err := o.Now(ctx)
	return &snapshot{o, book, now}, err
}

// holdsOf reads what holds a task of a source; or would hold any task if t is nil.
func (s *snapshot) holdsOf(ctx context.Context, source *dispatch.Source, t *dispatch.Task) (holds []Held, who takers, err error) {
	want := wantedOf(source, t)
	found, err := s.takers(ctx, collectorsLookedAt, []wanted{want})
	if err != nil {
		return nil, who, err
	}
	var queue *dispatch.Queue
	if t != nil {
		if queue, err = s.queue(ctx, t.Queue); err != nil {
			return nil, who, err
		}
	}
	return s.allHolds(source, t, found[want], queue), found[want], nil
}

// allHolds is what holds a task of a source: from the source to its pool and queue. Of t nil there
// is no queue.
func (s *snapshot) allHolds(source *dispatch.Source, t *dispatch.Task, who takers, queue *dispatch.Queue) []Held {
	holds := append(heldBy(s.book.Everything(), HeldEverything, ""), s.holdsOn(source)...)
	if t != nil && t.Due.After(s.now) {
		holds = append(holds, Held{Gate: dueGate(t, source.Spec.Schedule.Once()), Of: HeldTask, Name: string(t.ID)})
	}
	if t != nil && t.Lock != nil {
		holds = append(holds, Held{Gate: lockGate(t.Lock), Of: HeldTask, Name: string(t.ID)})
	}
	holds = append(holds, heldBy(s.book.Pool(source.Spec.Pool), HeldPool, source.Spec.Pool)...)
	holds = append(holds, wantedOf(source, t).holds(who)...)
	if t != nil {
		holds = append(holds, s.holdsOfQueue(t.Queue, queue)...)
	}
	decisiveFirst(holds)
	return holds
}

// decisiveFirst sorts gates by which opens last: first those without an end, then the latest.
// Holds on collectors beside the one that decides come after all.
func decisiveFirst(holds []Held) {
	end := func(h *Held) time.Time {
		switch {
		case h.beside:
			return time.Time{}
		case h.Until.IsZero():
			return dispatch.Forever
		}
		return h.Until
	}
	slices.SortStableFunc(holds, func(a, b Held) int { return end(&b).Compare(end(&a)) })
}

// gatesOf are gates without what they are of.
func gatesOf(holds []Held) []dispatch.Gate {
	gates := make([]dispatch.Gate, len(holds))
	for i := range holds {
		gates[i] = holds[i].Gate
	}
	return gates
}

// heldBy are the gates of holds.
func heldBy(holds []*dispatch.Hold, of HeldKind, name string) []Held {
	held := make([]Held, len(holds))
	for i, h := range holds {
		held[i] = Held{Gate: h.Gate(), Of: of, Name: name}
	}
	return held
}

// holdsOn are the gates of the holds on a source.
func (s *snapshot) holdsOn(source *dispatch.Source) []Held {
	var standing []*dispatch.Hold
	for i := range source.Holds {
		if h := &source.Holds[i]; !h.Over(s.now) {
			standing = append(standing, h)
		}
	}
	return heldBy(standing, HeldSource, source.ID)
}

// holdsOfQueue are the gates of a queue, those of the holds on it first; q is nil if it does not exist.
func (s *snapshot) holdsOfQueue(name string, q *dispatch.Queue) []Held {
	holds := heldBy(s.book.Queue(name), HeldQueue, name)
	if q != nil {
		for _, gate := range q.Gates {
			holds = append(holds, Held{Gate: gate, Of: HeldQueue, Name: name})
		}
	}
	return holds
}

// poolHolds are the gates of a pool, and of what is wanted of it.
func (s *snapshot) poolHolds(ctx context.Context, want wanted) (holds []Held, who takers, err error) {
	found, err := s.takers(ctx, collectorsLookedAt, []wanted{want})
	if err != nil {
		return nil, who, err
	}
	return append(heldBy(s.book.Pool(want.pool), HeldPool, want.pool), want.holds(found[want])...), found[want], nil
}

// dueGate is why a task is not due, and until when.
func dueGate(t *dispatch.Task, once bool) dispatch.Gate {
	gate := dispatch.Gate{Kind: dispatch.GateNotDue, Until: t.Due, By: "waggle", Reason: "its next cycle has not come"}
	switch {
	case t.Counters.Attempt > 0:
		gate.Reason = "it waits for its next attempt"
		if e := t.LastError; e != nil && e.Message != "" {
			gate.Reason += quoted(e.Message)
		}
	case t.Counters.GivenUp > 0:
		gate.Kind, gate.Reason = dispatch.GateBreaker, fmt.Sprintf("cycles given up in a row: %d", t.Counters.GivenUp)
	case once || !t.Recurring:
		gate.Reason = "it is due at a time that was asked for"
	}
	return gate
}

// lockGate is what keeps a waiting task from being granted while the lock stands. It does not
// show the client token of a lease, which is its holder's.
func lockGate(l *dispatch.StrayLock) dispatch.Gate {
	gate := dispatch.Gate{Kind: dispatch.GateLocked, Until: l.Ends}
	token, err := dispatch.ParseLeaseToken(l.Value)
	switch {
	case l.Value == "":
		gate.Reason = "its lock was deleted, which is seen at the next look"
	case err == nil:
		gate.By = token.Collector
		gate.Reason = fmt.Sprintf("a lock of a lease that it does not have stands on it, as after a failover (fence %d)", token.Fence)
	default:
		gate.Reason = fmt.Sprintf("a lock that Waggle has not set stands on it: %.*q", maxLockQuoted, l.Value)
	}
	return gate
}

// quoted is the message of a failure, cut for a gate's reason.
func quoted(message string) string {
	return " after: " + strings.ToValidUTF8(message[:min(len(message), maxQuoted)], "")
}

// sourceGone is the gate of a task whose source is deleted; source is what is kept under
// its id, nil where nothing is.
func sourceGone(t *dispatch.Task, source *dispatch.Source) dispatch.Gate {
	const means = "its source is deleted, and its tasks end CANCELED"
	deletion := t.SourceDeleted
	if deletion == nil && source != nil && source.UID == t.SourceUID {
		deletion = source.Deletion
	}
	if deletion == nil {
		return dispatch.Gate{Kind: dispatch.GateSourceDeleted, By: "waggle", Reason: means}
	}
	gate := *deletion
	if gate.Reason = cmp.Or(gate.Reason, means); deletion.Reason != "" {
		gate.Reason = means + ": " + deletion.Reason
	}
	return gate
}

// stateGate is what holds a task that does not wait.
func stateGate(t *dispatch.Task) (gate dispatch.Gate, ok bool) {
	switch {
	case t.Lease != nil:
		gate = dispatch.Gate{Kind: dispatch.GateLeased, By: t.Lease.Token.Collector, Time: t.Lease.Granted, Until: t.Lease.Deadline, Reason: "a collector works on it"}
		if t.CancelRequested != dispatch.CancelNone {
			gate.Reason += "; it ends CANCELED with its lease"
			if c := Cancellation(t); c != nil {
				gate.Reason += strings.TrimSuffix(fmt.Sprintf(", as %s asked: %s", c.By, c.Reason), ": ")
			}
		}
	case t.State.Settled():
		gate = dispatch.Gate{Kind: dispatch.GateSettled, Time: t.SettledAt, Reason: "it is " + t.State.String()}
		if e := t.LastError; e != nil && e.Message != "" && t.State == dispatch.StateDead {
			gate.Reason += quoted(e.Message)
		}
		if c := Cancellation(t); c != nil {
			gate.By = c.By
			if c.Reason != "" {
				gate.Reason += ": " + c.Reason
			}
		}
	}
	return gate, gate.Kind != ""
}

// noteOverdue adds to the gate of an overdue lease why it still stands. The next sweep ends it, so
// its end is not known.
func noteOverdue(g *dispatch.Gate, now time.Time) {
	if g.Until.After(now) {
		return
	}
	g.Reason += fmt.Sprintf("; its lease ran out %v ago, and the next sweep ends it unless it is renewed before; "+
		"after an outage of over %v collectors may renew for as long as it was, at most %v",
		now.Sub(g.Until).Truncate(time.Second), dispatch.OutageAfter, dispatch.OutageGrace)
	g.Until = time.Time{}
}
