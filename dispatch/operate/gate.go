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

// HeldKind says what kind of thing a gate is of.
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

// holdsOf is what holds a task of a source, from the source to its pool and
// queue; without a task, what would hold any; and who takes it.
func (o *Operator) holdsOf(ctx context.Context, source *dispatch.Source, t *dispatch.Task, now time.Time) (holds []Held, takes takers, err error) {
	book, err := o.d.Holds(ctx)
	if err != nil {
		return nil, takes, err
	}
	holds = append(heldBy(book.Everything(), HeldEverything, ""), holdsOn(source, now)...)
	if t != nil && t.Due.After(now) {
		holds = append(holds, Held{Gate: dueGate(t, source.Spec.Schedule.Once()), Of: HeldTask, Name: string(t.ID)})
	}
	if t != nil && t.Lock != nil {
		holds = append(holds, Held{Gate: lockGate(t.Lock), Of: HeldTask, Name: string(t.ID)})
	}
	who := wanted{pool: source.Spec.Pool, source: source.ID}
	if t != nil {
		who.queue = t.Queue
	}
	pool, takes, err := o.poolHolds(ctx, who, now)
	if err != nil {
		return nil, takes, err
	}
	holds = append(holds, pool...)
	if t != nil {
		queue, err := o.queue(ctx, t.Queue)
		if err != nil {
			return nil, takes, err
		}
		if queue == nil {
			queue = &dispatch.Queue{Name: t.Queue}
		}
		holds = append(holds, holdsOfQueue(queue, book)...)
	}
	decisiveFirst(holds)
	return holds, takes, nil
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

// heldBy are the gates of holds.
func heldBy(holds []*dispatch.Hold, of HeldKind, name string) []Held {
	held := make([]Held, len(holds))
	for i, h := range holds {
		held[i] = Held{Gate: h.Gate(), Of: of, Name: name}
	}
	return held
}

// holdsOn are the gates of the holds on a source.
func holdsOn(source *dispatch.Source, now time.Time) []Held {
	var standing []*dispatch.Hold
	for i := range source.Holds {
		if h := &source.Holds[i]; !h.Over(now) {
			standing = append(standing, h)
		}
	}
	return heldBy(standing, HeldSource, source.ID)
}

// holdsOfQueue are the gates of a queue, those of the holds on it first.
func holdsOfQueue(q *dispatch.Queue, book *holdbook.Book) []Held {
	holds := heldBy(book.Queue(q.Name), HeldQueue, q.Name)
	for _, gate := range q.Gates {
		holds = append(holds, Held{Gate: gate, Of: HeldQueue, Name: q.Name})
	}
	return holds
}

// poolHolds are the gates of a pool, and of what in it is wanted, and who takes that.
func (o *Operator) poolHolds(ctx context.Context, who wanted, now time.Time) (holds []Held, takes takers, err error) {
	book, err := o.d.Holds(ctx)
	if err != nil {
		return nil, takes, err
	}
	holds = heldBy(book.Pool(who.pool), HeldPool, who.pool)
	found, err := o.takers(ctx, []wanted{who}, now)
	if err != nil {
		return nil, takes, err
	}
	takes = found[who]
	return append(holds, who.holds(takes)...), takes, nil
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
			gate.Reason += "; it ends CANCELED with its lease" + canceledWords(t)
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

// tellOverdue says of the gate of a lease that its deadline has passed, and why it stands all
// the same: until when, the next sweeps decide.
func tellOverdue(g *dispatch.Gate, now time.Time) {
	if g.Until.After(now) {
		return
	}
	g.Reason += fmt.Sprintf("; its lease ran out %v ago and is ended by the next sweep, unless it is renewed before: "+
		"after an outage of the store, or of all dispatchers, of over %v, that is when collectors have had %v of grace to renew",
		now.Sub(g.Until).Truncate(time.Second), dispatch.OutageAfter, dispatch.OutageGrace)
	g.Until = time.Time{}
}

// canceledWords is who asked for the end of a leased task, and why.
func canceledWords(t *dispatch.Task) string {
	c := Cancellation(t)
	switch {
	case c == nil:
		return ""
	case c.Reason == "":
		return ", as " + c.By + " asked"
	default:
		return ", as " + c.By + " asked: " + c.Reason
	}
}

// holds are the gates of what is wanted: of the pool, unless collectors take others of it.
func (w wanted) holds(who takers) []Held {
	of, name := HeldPool, w.pool
	switch {
	case !who.narrowed:
	case w.source != "":
		of, name = HeldSource, w.source
	default:
		of, name = HeldQueue, w.queue
	}
	holds := make([]Held, len(who.gates))
	for i, gate := range who.gates {
		holds[i] = Held{Gate: gate, Of: of, Name: name, beside: i > 0}
	}
	return holds
}
