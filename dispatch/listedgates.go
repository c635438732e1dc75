package dispatch

import (
	"context"
	"fmt"
)

// collectorsListed is [collectorsLookedAt] for a page of listed sources.
const collectorsListed = 200

// addListedGates tells of listed sources what holds them that few reads tell of all: a
// pause of the pool, that no collector takes their tasks, and what rules say of the queue of
// the seed that is due next. Due times, blocks and limits of queues would be a read of each.
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
	book, err := d.catalog.ruleBook(ctx)
	if err != nil {
		return fmt.Errorf("read queue rules: %w", err)
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
		switch stop := book.bySettings[everyQueue]; {
		case v.next != nil:
			*gates = append(*gates, book.fresh(v.next.Queue).Gates...)
		case stop.Settings.Paused:
			*gates = append(*gates, stop.Gate(GateQueuePaused))
		}
	}
	return nil
}
