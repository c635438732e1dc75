package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// queuePage is how many queues one look of an operator's call reads.
const queuePage = 1000

// Queue reads one queue; ErrQueueNotFound when it holds nothing and has no
// gate.
func (d *Dispatcher) Queue(ctx context.Context, name string) (*Queue, error) {
	queue, err := d.store.Queue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("queue %q: %w", name, err)
	}
	return queue, nil
}

// FindQueue reads a queue, and one that is not there as it would be made, with
// where the hosts of its name are mapped to and whether anything is known of it.
func (d *Dispatcher) FindQueue(ctx context.Context, name string) (*Queue, error) {
	queue, err := d.findQueue(ctx, name)
	if err == nil {
		err = d.addPausedPools(ctx, queue)
	}
	return queue, err
}

// findQueue is FindQueue without what holds the pools of its tasks.
func (d *Dispatcher) findQueue(ctx context.Context, name string) (*Queue, error) {
	queue, err := d.queueOrNew(ctx, name)
	if err != nil {
		return nil, err
	}
	book, err := d.catalog.ruleBook(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	if to := book.queueOf(name); to != name {
		queue.MapsTo = to
	}
	if !book.names(name) && queue.blank() {
		left, err := d.store.ListTasks(ctx, TaskFilter{Queue: name, States: settledListed}, "", 1)
		if err != nil {
			return nil, fmt.Errorf("list tasks of queue %q: %w", name, err)
		}
		queue.Unknown = len(left.Tasks) == 0 && left.Next == ""
	}
	return queue, nil
}

// settledListed are the states of settled tasks that can be listed.
var settledListed = []State{StateDead, StateCanceled}

// blank reports whether the queue holds no task, and nothing is left of one, so that
// at most operators' gates keep it.
func (q *Queue) blank() bool {
	return q.Waiting+q.Leased == 0 && q.QueueDelay == 0 && q.BlockStep == 0 && !q.heldBy(GateMinDelay)
}

// ListQueues lists the queues that exist, by their labels from the last
// (com.example.www), from the first after after. suffix narrows to a name and
// all names below it.
func (d *Dispatcher) ListQueues(ctx context.Context, suffix, after string, limit int) (queues []*Queue, next string, err error) {
	queues, err = d.store.ListQueues(ctx, suffix, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list queues: %w", err)
	}
	if len(queues) == limit {
		next = queues[len(queues)-1].Name
	}
	return queues, next, d.addPausedPools(ctx, queues...)
}

// addPausedPools tells of queues which of the pools of their tasks are paused. A queue
// whose pools all are is held until the first of them goes on.
func (d *Dispatcher) addPausedPools(ctx context.Context, queues ...*Queue) error {
	if len(queues) == 0 {
		return nil
	}
	paused, err := d.store.PausedPools(ctx)
	if err != nil {
		return fmt.Errorf("read pauses of pools: %w", err)
	}
	for _, q := range queues {
		var first Gate
		for _, pool := range q.Pools {
			gate, ok := paused[pool]
			if !ok {
				continue
			}
			if q.PausedPools = append(q.PausedPools, pool); len(q.PausedPools) == 1 || gate.endsBefore(&first) {
				first = gate
			}
		}
		if len(q.PausedPools) == 0 || len(q.PausedPools) < len(q.Pools) {
			continue
		}
		if q.Gates = append(q.Gates, first); first.Until.After(q.NextGrant) {
			q.NextGrant = first.Until
		}
	}
	return nil
}

// endsBefore reports whether the gate ends before the other one.
func (g *Gate) endsBefore(other *Gate) bool {
	return !g.Until.IsZero() && (other.Until.IsZero() || g.Until.Before(other.Until))
}

// BlockQueue holds grants of a queue until gate.Until (zero: until unblocked).
// The queue need not exist yet (Unknown of what it returns). Kind and Time of the
// gate are set here. It replaces a block that stands, and tells of it (Replaced); of two
// calls at the same instant neither may tell of the other. New tasks of a host that is
// mapped away (MapsTo) are not held by it.
func (d *Dispatcher) BlockQueue(ctx context.Context, name string, gate Gate) (*Queue, error) {
	gate.Kind = GateBlocked
	return d.holdQueue(ctx, name, gate, d.store.BlockQueue)
}

// PauseQueue holds grants of a queue until gate.Until (zero: until resumed),
// beside a block that may stand. The queue need not exist yet. Kind and Time of
// the gate are set here.
func (d *Dispatcher) PauseQueue(ctx context.Context, name string, gate Gate) (*Queue, error) {
	gate.Kind = GatePaused
	return d.holdQueue(ctx, name, gate, d.store.PauseQueue)
}

func (d *Dispatcher) holdQueue(ctx context.Context, name string, gate Gate, hold func(context.Context, string, Gate) error) (*Queue, error) {
	gate, err := d.dated(ctx, gate)
	if err != nil {
		return nil, err
	}
	before, err := d.store.Queue(ctx, name)
	if err != nil && !errors.Is(err, ErrQueueNotFound) {
		return nil, fmt.Errorf("queue %q: %w", name, err)
	}
	if err := hold(ctx, name, gate); err != nil {
		return nil, fmt.Errorf("close gate %s of queue %q: %w", gate.Kind, name, err)
	}
	queue, err := d.FindQueue(ctx, name)
	if err == nil && before != nil {
		queue.Replaced = before.gate(gate.Kind)
	}
	return queue, err
}

// gate is the gate of that kind which holds the queue; nil when none does.
func (q *Queue) gate(kind GateKind) *Gate {
	i := slices.IndexFunc(q.Gates, func(g Gate) bool { return g.Kind == kind })
	if i < 0 {
		return nil
	}
	return &q.Gates[i]
}

// dated is an operator's gate as it is set now. ErrInvalid when it would be over
// already.
func (d *Dispatcher) dated(ctx context.Context, gate Gate) (Gate, error) {
	now, err := d.store.Now(ctx)
	if err != nil {
		return gate, fmt.Errorf("read the store's clock: %w", err)
	}
	if !gate.Until.IsZero() && !gate.Until.After(now) {
		return gate, Invalid("until", gate.Until.Format(time.RFC3339Nano), "must be in the future")
	}
	gate.Time = now
	return gate, nil
}

// UnblockQueue lifts an operator's block, and with automatic the one that
// failures of the host caused. What it returns is the queue as it was left, or
// as it would be made again when nothing was left of it, and whether there was a
// block to lift: unblocking a queue that is not blocked, or is not there, changes
// nothing.
func (d *Dispatcher) UnblockQueue(ctx context.Context, name string, automatic bool) (queue *Queue, changed bool, err error) {
	return d.letQueueGo(ctx, name, func(q *Queue) bool {
		// A block that has ended can still have a step to set back.
		return q.heldBy(GateBlocked) || automatic && (q.heldBy(GateHostBlocked) || q.BlockStep > 0)
	}, func() error { return d.store.UnblockQueue(ctx, name, automatic) })
}

// ResumeQueue lifts an operator's pause of a queue, not that of a rule. It
// returns as UnblockQueue does.
func (d *Dispatcher) ResumeQueue(ctx context.Context, name string) (queue *Queue, changed bool, err error) {
	return d.letQueueGo(ctx, name, func(q *Queue) bool { return q.heldBy(GatePaused) },
		func() error { return d.store.ResumeQueue(ctx, name) })
}

func (d *Dispatcher) letQueueGo(ctx context.Context, name string, held func(*Queue) bool, lift func() error) (queue *Queue, changed bool, err error) {
	before, err := d.FindQueue(ctx, name)
	if err != nil {
		return nil, false, err
	}
	if !held(before) {
		return before, false, nil
	}
	if err := lift(); err != nil && !errors.Is(err, ErrQueueNotFound) { // gone since the look
		return nil, false, fmt.Errorf("open a gate of queue %q: %w", name, err)
	}
	queue, err = d.FindQueue(ctx, name)
	return queue, true, err
}

// heldBy reports whether a gate of this kind holds the queue.
func (q *Queue) heldBy(kind GateKind) bool {
	return q.gate(kind) != nil
}

// queueOrNew reads a queue; one that is not there comes as it would be made.
func (d *Dispatcher) queueOrNew(ctx context.Context, name string) (*Queue, error) {
	queue, err := d.Queue(ctx, name)
	if !errors.Is(err, ErrQueueNotFound) {
		return queue, err
	}
	book, err := d.catalog.ruleBook(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	return book.fresh(name), nil
}

// endDenied ends the leases of all queues that rules deny. It looks again while
// leases change under it.
func (d *Dispatcher) endDenied(ctx context.Context) error {
	rules, version, err := d.store.Rules(ctx)
	if err != nil {
		return fmt.Errorf("read queue rules: %w", err)
	}
	book := newRuleBook(rules, version)
	for range settleTries {
		again, err := d.endDeniedOnce(ctx, book)
		if err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("end leases of denied queues: they were changed %d times in between: %w", settleTries, ErrStoreUnavailable)
}

// endDeniedOnce reports whether a lease was changed before it could be ended.
func (d *Dispatcher) endDeniedOnce(ctx context.Context, book *ruleBook) (again bool, err error) {
	for cursor := ""; ; {
		leased, next, err := d.store.ListLeases(ctx, cursor, queuePage)
		if err != nil {
			return false, fmt.Errorf("list leases: %w", err)
		}
		denied := slices.DeleteFunc(leased, func(t *Task) bool { return !book.denies(t.Queue) })
		if len(denied) > 0 {
			now, err := d.store.Now(ctx)
			if err != nil {
				return false, fmt.Errorf("read the store's clock: %w", err)
			}
			applied, err := d.endLeases(ctx, denied, now, func(t *Task, spec *SourceSpec, now time.Time) Transition {
				return d.policy.Revoke(t, spec, book.denial(t.Queue), now)
			})
			if err != nil {
				return false, fmt.Errorf("end leases of denied queues: %w", err)
			}
			again = again || countEnded(applied) < len(applied)
		}
		if cursor = next; cursor == "" {
			return again, nil
		}
	}
}
