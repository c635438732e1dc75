package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// queuePage is how many queues one look of an operator's call reads.
const queuePage = 1000

// QueueView is a queue with what operators want to see of it.
type QueueView struct {
	dispatch.Queue
	// HeldPools are those of Pools that are held, or all where everything is. Where all
	// are, Gates has the hold that ends first.
	HeldPools []string
	// Hour is its last hour ([dispatch.Queues.QueueHours]).
	Hour dispatch.QueueHour
	// MeanFetch is the mean FetchDuration of reports in the last hour; 0 = there was none.
	MeanFetch time.Duration
	// MapsTo is the queue that new tasks of a host of this name go to; empty =
	// this one, and in lists.
	MapsTo string
	// Unknown: no task but perhaps DONE ones is in it, nothing else is left of one, nothing happened in it in the last
	// hour, no rule is for this very name, and no hold stops the queue; never in lists.
	Unknown bool
	// Rates are what has ended in it lately.
	Rates engine.Rates
}

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
func (o *Operator) FindQueue(ctx context.Context, name string) (*QueueView, error) {
	queue, err := o.findQueue(ctx, name)
	if err == nil {
		err = o.addHolds(ctx, queue)
	}
	return queue, err
}

// findQueue is FindQueue without holds.
func (o *Operator) findQueue(ctx context.Context, name string) (*QueueView, error) {
	known, err := o.queue(ctx, name)
	if err != nil {
		return nil, err
	}
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	if known == nil {
		known = book.NewQueue(name)
	}
	queue := &QueueView{Queue: *known}
	if err := o.addHours(ctx, queue); err != nil {
		return nil, err
	}
	if to := book.QueueOf(name); to != name {
		queue.MapsTo = to
	}
	if !book.Names(name) && blankQueue(known) && queue.Hour.Intervals == nil {
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
	return q.Waiting+q.Leased == 0 && q.QueueDelay == 0 && q.BlockStep == 0 && gateOf(q, dispatch.GateMinDelay) == nil
}

// ListQueues lists the queues that exist, by their labels from the last
// (com.example.www), from the first after after. suffix narrows to a name and
// all names below it.
func (o *Operator) ListQueues(ctx context.Context, suffix, after string, limit int) (queues []*QueueView, next string, err error) {
	known, err := o.store.ListQueues(ctx, suffix, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list queues: %w", err)
	}
	for _, q := range known {
		queues = append(queues, &QueueView{Queue: *q})
	}
	if len(queues) == limit {
		next = queues[len(queues)-1].Name
	}
	if err := o.addHours(ctx, queues...); err != nil {
		return nil, "", err
	}
	return queues, next, o.addHolds(ctx, queues...)
}

// QueueOrder is an order of queues.
type QueueOrder int

// The orders: as by [Operator.ListQueues], those with the most waiting tasks first, those with the longest mean fetch time first.
const (
	QueuesByName QueueOrder = iota
	QueuesByWaiting
	QueuesBySlowness
)

// QueuePick selects and orders queues by what all of them have to be read for.
type QueuePick struct {
	Suffix string
	// Held selects those that a hold stops, Blocked those that failures have blocked; both: those that are either.
	Held, Blocked bool
	// Order of the queues.
	Order QueueOrder
}

// selects reports whether a queue matches.
func (p *QueuePick) selects(q *QueueView) bool {
	blocked := func(g dispatch.Gate) bool { return g.Kind == dispatch.GateHostBlocked }
	held := func(g dispatch.Gate) bool {
		return slices.Contains([]dispatch.GateKind{dispatch.GateEverythingHeld, dispatch.GatePoolHeld, dispatch.GateQueueHeld}, g.Kind)
	}
	return !p.Held && !p.Blocked || p.Blocked && slices.ContainsFunc(q.Gates, blocked) || p.Held && slices.ContainsFunc(q.Gates, held)
}

// PickQueues lists at most limit queues from the first after after. By another order than that of the names it reads all queues and returns
// the first ones, without a next; else a page may have fewer than limit, even none, and still a next.
func (o *Operator) PickQueues(ctx context.Context, pick QueuePick, after string, limit int) (picked []*QueueView, next string, err error) {
	for {
		found, next, err := o.ListQueues(ctx, pick.Suffix, after, queuePage)
		if err != nil {
			return nil, "", err
		}
		for _, q := range found {
			if !pick.selects(q) {
				continue
			}
			if picked = append(picked, q); pick.Order == QueuesByName && len(picked) == limit {
				next = q.Name
				break
			}
		}
		if pick.Order != QueuesByName && (len(picked) > 2*limit || next == "") {
			picked = firstQueues(picked, pick.Order, limit)
		}
		if after = next; next == "" || pick.Order == QueuesByName {
			return picked, next, nil
		}
	}
}

// firstQueues are the first queues by an order.
func firstQueues(queues []*QueueView, order QueueOrder, limit int) []*QueueView {
	slices.SortStableFunc(queues, func(a, b *QueueView) int {
		if order == QueuesBySlowness {
			return cmp.Compare(b.MeanFetch, a.MeanFetch)
		}
		return cmp.Compare(b.Waiting, a.Waiting)
	})
	return queues[:min(len(queues), limit)]
}

// addHours adds to queues their last hours, and what these say.
func (o *Operator) addHours(ctx context.Context, queues ...*QueueView) error {
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = q.Name
	}
	hours, err := o.store.QueueHours(ctx, names)
	if err != nil {
		return fmt.Errorf("read the last hour of queues: %w", err)
	}
	now := time.Now()
	for i, q := range queues {
		q.Hour, q.Rates = hours[i], engine.RatesOf(&hours[i], now)
		var fetches int64
		for j := range q.Hour.Intervals {
			fetches += q.Hour.Intervals[j].Fetches
			q.MeanFetch += q.Hour.Intervals[j].FetchTime
		}
		q.MeanFetch /= time.Duration(max(fetches, 1))
	}
	return nil
}

// addHolds adds to queues the holds that stop them, and which of the pools of their tasks are
// held. A queue whose pools all are is held until the first of them goes on.
func (o *Operator) addHolds(ctx context.Context, queues ...*QueueView) error {
	book, err := o.d.Holds(ctx)
	if err != nil {
		return err
	}
	for _, q := range queues {
		gates := heldBy(book.Queue(q.Name), HeldQueue, q.Name)
		q.Unknown = q.Unknown && len(gates) == 0
		var first *dispatch.Hold // to end, of the last holds of its pools
		for _, pool := range q.Pools {
			last := lastToEnd(slices.Concat(book.Everything(), book.Pool(pool)))
			if last == nil {
				continue
			}
			if q.HeldPools = append(q.HeldPools, pool); first == nil || last.End().Before(first.End()) {
				first = last
			}
		}
		if len(q.HeldPools) > 0 && len(q.HeldPools) == len(q.Pools) {
			gates = append(gates, Held{Gate: first.Gate()})
			if first.Until.After(q.NextGrant) {
				q.NextGrant = first.Until
			}
		}
		q.Gates = append(gatesOf(gates), q.Gates...)
	}
	return nil
}

// lastToEnd is the hold that ends last; nil: there is none.
func lastToEnd(holds []*dispatch.Hold) (last *dispatch.Hold) {
	for _, h := range holds {
		if last == nil || h.End().After(last.End()) {
			last = h
		}
	}
	return last
}

// gateOf is the gate of that kind which holds the queue; nil when none does.
func gateOf(q *dispatch.Queue, kind dispatch.GateKind) *dispatch.Gate {
	i := slices.IndexFunc(q.Gates, func(g dispatch.Gate) bool { return g.Kind == kind })
	if i < 0 {
		return nil
	}
	return &q.Gates[i]
}

// PoolView is a pool with the holds on it.
type PoolView struct {
	dispatch.Pool
	Holds []*dispatch.Hold
}

// poolUnknown reports whether nothing is known of a pool: none of its tasks waits, and no
// known collector reports that it takes them; never of [dispatch.DefaultPool].
func (o *Operator) poolUnknown(ctx context.Context, pool *dispatch.Pool) (bool, error) {
	if pool.Name == dispatch.DefaultPool || pool.Open+pool.Waiting > 0 {
		return false, nil
	}
	return o.eachCollector(ctx, collectorsLookedAt, func(c *dispatch.CollectorRecord) bool {
		return !slices.Contains(c.Info.Pools, pool.Name)
	})
}

func (o *Operator) pool(ctx context.Context, name string) (dispatch.Pool, error) {
	known, err := o.store.ListPools(ctx, name, "", 1)
	if err != nil {
		return dispatch.Pool{}, fmt.Errorf("read pool %q: %w", name, err)
	}
	if len(known) == 0 {
		return dispatch.Pool{Name: name}, nil
	}
	return known[0], nil
}

// ListPools lists pools by name from the first after after.
func (o *Operator) ListPools(ctx context.Context, after string, limit int) (pools []PoolView, next string, err error) {
	known, err := o.store.ListPools(ctx, "", after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list pools: %w", err)
	}
	book, err := o.d.Holds(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, pool := range known {
		pools = append(pools, PoolView{Pool: pool, Holds: book.Pool(pool.Name)})
	}
	if len(pools) == limit {
		next = pools[len(pools)-1].Name
	}
	return pools, next, nil
}
