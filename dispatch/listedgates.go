package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// collectorsListed is [collectorsLookedAt] for a page of listed sources.
const collectorsListed = 200

// addListedGates tells of listed sources what holds them beside their due times: a pause of
// the pool, that no collector takes their tasks, and pauses, denials and blocks of the queue
// of the seed that is due next. Its delay and its limit on leases, which hold every busy
// queue for a moment, are left out.
func (d *Dispatcher) addListedGates(ctx context.Context, views []*SourceView) error {
	if len(views) == 0 {
		return nil
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the store's clock: %w", err)
	}
	paused, err := d.store.PausedPools(ctx)
	if err != nil {
		return fmt.Errorf("read pauses of pools: %w", err)
	}
	queues, stop, err := d.listedQueues(ctx, views)
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
	nobody, err := d.takersAmong(ctx, collectorsListed, wants, now)
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
func (d *Dispatcher) listedQueues(ctx context.Context, views []*SourceView) (gates map[string][]Gate, stop []Gate, err error) {
	book, err := d.catalog.ruleBook(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read queue rules: %w", err)
	}
	if rule := book.bySettings[everyQueue]; rule.Settings.Paused {
		stop = []Gate{rule.Gate(GateQueuePaused)}
	}
	gates = make(map[string][]Gate, len(views))
	for _, v := range views {
		if v.next != nil {
			gates[v.next.Queue] = nil
		}
	}
	names := slices.Sorted(maps.Keys(gates))
	queues, err := d.store.QueuesNamed(ctx, names)
	if err != nil {
		return nil, nil, fmt.Errorf("read queues: %w", err)
	}
	for i, name := range names {
		queue := queues[i]
		if queue == nil {
			queue = book.fresh(name)
		}
		for _, gate := range queue.Gates {
			if gate.Kind != GateMinDelay && gate.Kind != GateMaxInFlight {
				gates[name] = append(gates[name], gate)
			}
		}
	}
	return gates, stop, nil
}
