package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// queuePage is how many queues one look of an operator's call reads.
const queuePage = 1000

// queue reads one queue; nil when it holds nothing and has no gate.
func (o *Operator) queue(ctx context.Context, name string) (*dispatch.Queue, error) {
	queues, err := o.store.QueuesNamed(ctx, []string{name})
	if err != nil {
		return nil, fmt.Errorf("read queue %q: %w", name, err)
	}
	return queues[0], nil
}

// FindQueue reads a queue, and one that is not there as it would be made, with
// where the hosts of its name are mapped to and whether anything is known of it.
func (o *Operator) FindQueue(ctx context.Context, name string) (*dispatch.Queue, error) {
	queue, err := o.findQueue(ctx, name)
	if err == nil {
		err = o.addPausedPools(ctx, queue)
	}
	return queue, err
}

// findQueue is FindQueue without what holds the pools of its tasks.
func (o *Operator) findQueue(ctx context.Context, name string) (*dispatch.Queue, error) {
	queue, err := o.queueOrNew(ctx, name)
	if err != nil {
		return nil, err
	}
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	if to := book.QueueOf(name); to != name {
		queue.MapsTo = to
	}
	if !book.Names(name) && blankQueue(queue) {
		left, err := o.store.ListTasks(ctx, dispatch.TaskFilter{Queue: name, States: settledListed}, "", 1)
		if err != nil {
			return nil, fmt.Errorf("list tasks of queue %q: %w", name, err)
		}
		queue.Unknown = len(left.Tasks) == 0 && left.Next == ""
	}
	return queue, nil
}

// settledListed are the states of settled tasks that can be listed.
var settledListed = []dispatch.State{dispatch.StateDead, dispatch.StateCanceled}

// blankQueue reports whether the queue holds no task, and nothing is left of one, so that
// at most operators' gates keep it.
func blankQueue(q *dispatch.Queue) bool {
	return q.Waiting+q.Leased == 0 && q.QueueDelay == 0 && q.BlockStep == 0 && !heldBy(q, dispatch.GateMinDelay)
}

// ListQueues lists the queues that exist, by their labels from the last
// (com.example.www), from the first after after. suffix narrows to a name and
// all names below it.
func (o *Operator) ListQueues(ctx context.Context, suffix, after string, limit int) (queues []*dispatch.Queue, next string, err error) {
	queues, err = o.store.ListQueues(ctx, suffix, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list queues: %w", err)
	}
	if len(queues) == limit {
		next = queues[len(queues)-1].Name
	}
	return queues, next, o.addPausedPools(ctx, queues...)
}

// addPausedPools tells of queues which of the pools of their tasks are paused. A queue
// whose pools all are is held until the first of them goes on.
func (o *Operator) addPausedPools(ctx context.Context, queues ...*dispatch.Queue) error {
	if len(queues) == 0 {
		return nil
	}
	paused, err := o.pausedPools(ctx)
	if err != nil {
		return err
	}
	for _, q := range queues {
		var first dispatch.Gate
		for _, pool := range q.Pools {
			gate, ok := paused[pool]
			if !ok {
				continue
			}
			if q.PausedPools = append(q.PausedPools, pool); len(q.PausedPools) == 1 || endsBefore(&gate, &first) {
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
func endsBefore(g *dispatch.Gate, other *dispatch.Gate) bool {
	return !g.Until.IsZero() && (other.Until.IsZero() || g.Until.Before(other.Until))
}

// gateOf is the gate of that kind which holds the queue; nil when none does.
func gateOf(q *dispatch.Queue, kind dispatch.GateKind) *dispatch.Gate {
	i := slices.IndexFunc(q.Gates, func(g dispatch.Gate) bool { return g.Kind == kind })
	if i < 0 {
		return nil
	}
	return &q.Gates[i]
}

// heldBy reports whether a gate of this kind holds the queue.
func heldBy(q *dispatch.Queue, kind dispatch.GateKind) bool {
	return gateOf(q, kind) != nil
}

// queueOrNew reads a queue; one that is not there comes as it would be made.
func (o *Operator) queueOrNew(ctx context.Context, name string) (*dispatch.Queue, error) {
	queue, err := o.queue(ctx, name)
	if queue != nil || err != nil {
		return queue, err
	}
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	return book.NewQueue(name), nil
}

// endDenied ends the leases of all queues that rules deny. It looks again while
// leases change under it.
func (o *Operator) endDenied(ctx context.Context) error {
	rules, version, err := o.store.Rules(ctx)
	if err != nil {
		return fmt.Errorf("read queue rules: %w", err)
	}
	book := engine.NewRuleBook(rules, version)
	for range changeTries {
		again, err := o.endDeniedOnce(ctx, book)
		if err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("end leases of denied queues: they were changed %d times in between: %w", changeTries, dispatch.ErrStoreUnavailable)
}

// endDeniedOnce reports whether a lease was changed before it could be ended.
func (o *Operator) endDeniedOnce(ctx context.Context, book *engine.RuleBook) (again bool, err error) {
	for cursor := ""; ; {
		leased, next, err := o.store.ListLeases(ctx, cursor, queuePage)
		if err != nil {
			return false, fmt.Errorf("list leases: %w", err)
		}
		denied := slices.DeleteFunc(leased, func(t *dispatch.Task) bool { return !book.Denies(t.Queue) })
		if len(denied) > 0 {
			now, err := o.store.Now(ctx)
			if err != nil {
				return false, fmt.Errorf("read the store's clock: %w", err)
			}
			applied, err := o.d.EndLeases(ctx, denied, now, func(t *dispatch.Task, spec *dispatch.SourceSpec, now time.Time) dispatch.Transition {
				return o.policy.Revoke(t, spec, book.Denial(t.Queue), now)
			})
			if err != nil {
				return false, fmt.Errorf("end leases of denied queues: %w", err)
			}
			again = again || engine.CountEnded(applied) < len(applied)
		}
		if cursor = next; cursor == "" {
			return again, nil
		}
	}
}
