package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// collectorsListed is [collectorsLookedAt] for a page of listed sources.
const collectorsListed = 200

// addListedGates tells of listed sources what holds them beside their due times: a pause of
// the pool, that no collector takes their tasks, and pauses, denials and blocks of the queue
// of the seed that is due next. Its delay and its limit on leases, which hold every busy
// queue for a moment, are left out.
func (o *Operator) addListedGates(ctx context.Context, views []*SourceView) error {
	if len(views) == 0 {
		return nil
	}
	now, err := o.store.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the store's clock: %w", err)
	}
	paused, err := o.pausedPools(ctx)
	if err != nil {
		return err
	}
	queues, stop, err := o.listedQueues(ctx, views)
	if err != nil {
		return err
	}
	wants := make([]wanted, len(views))
	for i, v := range views {
		wants[i] = wanted{pool: v.Source.Spec.Pool, source: v.Source.ID}
		if v.next != nil {
			wants[i].queue = v.next.Queue
		}
	}
	nobody, err := o.takersAmong(ctx, collectorsListed, wants, now)
	if err != nil {
		return err
	}
	for i, v := range views {
		gates := &v.Status.Gates
		if gate, ok := paused[v.Source.Spec.Pool]; ok {
			*gates = append(*gates, gate)
		}
		who := nobody[wants[i]]
		*gates = append(*gates, who.gates[:min(1, len(who.gates))]...)
		v.Status.CollectorUnknown = who.cut
		if v.next != nil {
			*gates = append(*gates, queues[v.next.Queue]...)
		} else {
			*gates = append(*gates, stop...)
		}
	}
	return nil
}

// listedQueues are what holds the queues of the seeds that are due next, by name, and what
// holds every queue.
func (o *Operator) listedQueues(ctx context.Context, views []*SourceView) (gates map[string][]dispatch.Gate, stop []dispatch.Gate, err error) {
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read queue rules: %w", err)
	}
	if rule := book.BySettings[engine.EveryQueue]; rule.Settings.Paused {
		stop = []dispatch.Gate{rule.Gate(dispatch.GateQueuePaused)}
	}
	gates = make(map[string][]dispatch.Gate, len(views))
	for _, v := range views {
		if v.next != nil {
			gates[v.next.Queue] = nil
		}
	}
	names := slices.Sorted(maps.Keys(gates))
	queues, err := o.store.QueuesNamed(ctx, names)
	if err != nil {
		return nil, nil, fmt.Errorf("read queues: %w", err)
	}
	for i, name := range names {
		queue := queues[i]
		if queue == nil {
			queue = book.NewQueue(name)
		}
		for _, gate := range queue.Gates {
			if gate.Kind != dispatch.GateMinDelay && gate.Kind != dispatch.GateMaxInFlight {
				gates[name] = append(gates[name], gate)
			}
		}
	}
	return gates, stop, nil
}
