package operate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// newHold is an operator's hold as it is set now. ErrInvalid when it would be over already.
func (o *Operator) newHold(ctx context.Context, target dispatch.HoldTarget, name dispatch.HoldName, gate dispatch.Gate) (dispatch.Hold, error) {
	hold := dispatch.Hold{Target: target, Name: name, Gate: gate}
	if err := hold.Check(false); err != nil {
		return hold, err
	}
	var err error
	hold.Gate, err = o.dated(ctx, hold.Gate)
	return hold, err
}

// dated is an operator's gate as it is set now. ErrInvalid when it would be over already.
func (o *Operator) dated(ctx context.Context, gate dispatch.Gate) (dispatch.Gate, error) {
	now, err := o.store.Now(ctx)
	if err != nil {
		return gate, fmt.Errorf("read the store's clock: %w", err)
	}
	if !gate.Until.IsZero() && !gate.Until.After(now) {
		return gate, dispatch.Invalid("until", gate.Until.Format(time.RFC3339Nano), "must be in the future")
	}
	gate.Time = now
	return gate, nil
}

// HoldQueue holds grants of a queue by a block or a pause until gate.Until (zero: until it
// is released). The queue need not exist yet (Unknown of what it returns). Kind and Time of
// the gate are set here. It replaces the hold of that name, and returns it (Replaced); of
// two calls at the same instant neither may return the other's. New tasks of a host that
// is mapped away (MapsTo) are not held by it.
func (o *Operator) HoldQueue(ctx context.Context, name string, by dispatch.HoldName, gate dispatch.Gate) (*QueueView, error) {
	hold, err := o.newHold(ctx, dispatch.HoldTarget{Queue: name}, by, gate)
	if err != nil {
		return nil, err
	}
	before, err := o.queue(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := o.store.SetHold(ctx, hold); err != nil {
		return nil, fmt.Errorf("%s queue %q: %w", by, name, err)
	}
	queue, err := o.FindQueue(ctx, name)
	if err == nil && before != nil {
		queue.Replaced = gateOf(before, hold.Kind)
	}
	return queue, err
}

// ReleaseQueue lifts holds of a queue, not those of a rule. It returns the queue as it was
// left, or as it would be made again when nothing was left of it, and whether one of them
// held: to release a queue that is not held, or does not exist, changes nothing.
func (o *Operator) ReleaseQueue(ctx context.Context, name string, holds ...dispatch.HoldName) (queue *QueueView, changed bool, err error) {
	for _, by := range holds {
		held, err := o.store.LiftHold(ctx, dispatch.HoldTarget{Queue: name}, by)
		if err != nil {
			return nil, changed, fmt.Errorf("lift hold %s of queue %q: %w", by, name, err)
		}
		changed = changed || held
	}
	queue, err = o.FindQueue(ctx, name)
	return queue, changed, err
}

// PausePool holds grants of a pool's tasks until gate.Until (zero: until resumed); it
// replaces a pause that stands, and returns it (Replaced). Kind and Time of the gate are
// set here.
func (o *Operator) PausePool(ctx context.Context, name string, gate dispatch.Gate) (PoolView, error) {
	hold, err := o.newHold(ctx, dispatch.HoldTarget{Pool: name}, dispatch.HoldDefault, gate)
	if err != nil {
		return PoolView{}, err
	}
	before, err := o.pool(ctx, name)
	if err != nil {
		return PoolView{}, err
	}
	if err := o.store.SetHold(ctx, hold); err != nil {
		return PoolView{}, fmt.Errorf("pause pool %q: %w", name, err)
	}
	known, err := o.pool(ctx, name)
	pool := PoolView{Pool: known, Replaced: before.Paused}
	if err == nil {
		pool.Unknown, err = o.poolUnknown(ctx, &known)
	}
	return pool, err
}

// ResumePool lets grants of a pool go on, and reports whether it was paused.
func (o *Operator) ResumePool(ctx context.Context, name string) (pool PoolView, changed bool, err error) {
	if changed, err = o.store.LiftHold(ctx, dispatch.HoldTarget{Pool: name}, dispatch.HoldDefault); err != nil {
		return pool, false, fmt.Errorf("resume pool %q: %w", name, err)
	}
	pool.Pool, err = o.pool(ctx, name)
	return pool, changed, err
}

// DrainCollectors has the collectors of a target get nothing until gate.Until (zero: until
// they are resumed), replacing the hold of the same target: their fetches end with
// [engine.EmptyDraining], and their beats ask for it. What they hold they finish. Kind
// and Time of the gate are set here. replaced is the one that stood; nil: none did. With
// dryRun nothing changes.
func (o *Operator) DrainCollectors(ctx context.Context, target dispatch.HoldTarget, gate dispatch.Gate, dryRun bool) (hold dispatch.Hold, replaced *dispatch.Gate, err error) {
	if hold, err = o.newHold(ctx, target, dispatch.HoldDefault, gate); err != nil {
		return hold, nil, err
	}
	drains, err := o.drains(ctx)
	if err != nil {
		return hold, nil, err
	}
	if i := slices.IndexFunc(drains, func(other dispatch.Hold) bool { return other.Key() == hold.Key() }); i >= 0 {
		replaced = &drains[i].Gate
	} else if len(drains) >= bounds.MaxHolds {
		err := hold.TooMany()
		return hold, nil, err
	}
	if dryRun {
		return hold, replaced, nil
	}
	if err := o.store.SetHold(ctx, hold); err != nil {
		return hold, nil, fmt.Errorf("drain collectors: %w", err)
	}
	return hold, replaced, o.drainsChanged(ctx)
}

// drains reads the holds of collectors.
func (o *Operator) drains(ctx context.Context) ([]dispatch.Hold, error) {
	holds, err := o.store.Holds(ctx)
	if err != nil {
		return nil, fmt.Errorf("read holds: %w", err)
	}
	return slices.DeleteFunc(holds, func(h dispatch.Hold) bool { return h.Kind != dispatch.GateDrained }), nil
}

// DrainedBy finds the collectors of a target, by id, of those whose beats were heard
// within [dispatch.CollectorMemory]. By labels it looks at all of these.
func (o *Operator) DrainedBy(ctx context.Context, target *dispatch.HoldTarget) (ids []string, err error) {
	if target.Collector == "" {
		_, err = o.eachCollector(ctx, math.MaxInt, func(c *dispatch.CollectorRecord) bool {
			if target.Matches(c.Info.ID, c.Info.Labels) {
				ids = append(ids, c.Info.ID)
			}
			return true
		})
		return ids, err
	}
	info, err := o.collector(ctx, target.Collector)
	if info != nil {
		ids = []string{target.Collector}
	}
	return ids, err
}

// ResumeCollectors lifts the hold of a target, and reports whether there was one; and of a
// collector named by its id what still drains it.
func (o *Operator) ResumeCollectors(ctx context.Context, target dispatch.HoldTarget) (changed bool, still *dispatch.Gate, err error) {
	if changed, err = o.store.LiftHold(ctx, target, dispatch.HoldDefault); err != nil {
		return changed, nil, fmt.Errorf("resume collectors: %w", err)
	}
	if err := o.drainsChanged(ctx); err != nil || target.Collector == "" {
		return changed, nil, err
	}
	info, err := o.collector(ctx, target.Collector)
	if err != nil {
		return changed, nil, err
	}
	book, err := o.d.Holds(ctx)
	if err != nil {
		return changed, nil, err
	}
	var labels map[string]string // of one that has not beaten yet
	if info != nil {
		labels = info.Labels
	}
	if other := book.Of(target.Collector, labels); other != nil {
		gate := other.AsGate()
		still = &gate
	}
	return changed, still, nil
}

// drainsChanged lets a change of holds of collectors take effect, here by the time it
// returns.
func (o *Operator) drainsChanged(ctx context.Context) error {
	if err := o.d.RefreshHolds(ctx); err != nil {
		return err
	}
	if err := o.store.Publish(ctx, dispatch.Hint{Kind: dispatch.HintHolds}); err != nil {
		return fmt.Errorf("publish that holds have changed: %w", err)
	}
	return nil
}

// ListDrains lists holds of collectors by key, from the first after after.
func (o *Operator) ListDrains(ctx context.Context, after string, limit int) (drains []dispatch.Hold, next string, err error) {
	if drains, err = o.drains(ctx); err != nil {
		return nil, "", err
	}
	drains = slices.DeleteFunc(drains, func(h dispatch.Hold) bool { return h.Key() <= after })
	if len(drains) > limit {
		drains = drains[:limit]
		next = drains[limit-1].Key()
	}
	return drains, next, nil
}
