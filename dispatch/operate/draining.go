package operate

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// DrainCollectors has collectors handed out nothing until drain.Until (zero: until
// they are resumed), replacing the drain that names the same ones: their fetches end
// with [EmptyDraining], and their beats ask for it. What they hold they finish. Kind
// and Time of the drain are set here. replaced is the one that stood; nil: none did.
func (o *Operator) DrainCollectors(ctx context.Context, drain dispatch.Drain) (kept dispatch.Drain, replaced *dispatch.Gate, err error) {
	drain, replaced, err = o.WouldDrain(ctx, drain)
	if err != nil {
		return drain, nil, err
	}
	if err := o.store.SetDrain(ctx, drain); err != nil {
		return drain, nil, fmt.Errorf("drain collectors: %w", err)
	}
	return drain, replaced, o.drainsChanged(ctx)
}

// WouldDrain is the drain as DrainCollectors would keep it, and the one that it would
// replace.
func (o *Operator) WouldDrain(ctx context.Context, drain dispatch.Drain) (kept dispatch.Drain, replaced *dispatch.Gate, err error) {
	drain.Kind = dispatch.GateDrained
	if drain.Gate, err = o.dated(ctx, drain.Gate); err != nil {
		return drain, nil, err
	}
	all, err := o.store.Drains(ctx)
	if err != nil {
		return drain, nil, fmt.Errorf("read drains of collectors: %w", err)
	}
	if i := slices.IndexFunc(all, func(other dispatch.Drain) bool { return other.Name() == drain.Name() }); i >= 0 {
		return drain, &all[i].Gate, nil
	}
	if len(all) >= dispatch.MaxDrains {
		err = dispatch.TooManyDrains(&drain)
	}
	return drain, nil, err
}

// DrainedBy finds the collectors that a drain names, by id, of those whose beats were
// heard within [CollectorMemory]. By labels it looks at all of these.
func (o *Operator) DrainedBy(ctx context.Context, drain *dispatch.Drain) (ids []string, err error) {
	if drain.Collector == "" {
		_, err = o.eachCollector(ctx, math.MaxInt, func(c *dispatch.CollectorRecord) bool {
			if drain.Holds(c.Info.ID, c.Info.Labels) {
				ids = append(ids, c.Info.ID)
			}
			return true
		})
		return ids, err
	}
	infos, err := o.store.CollectorInfos(ctx, []string{drain.Collector})
	if err != nil {
		return nil, fmt.Errorf("read what collector %q tells: %w", drain.Collector, err)
	}
	if infos[0] != nil {
		ids = []string{drain.Collector}
	}
	return ids, nil
}

// ResumeCollectors ends the drain that names the same collectors, and reports whether
// there was one; and of a collector named by its id what still drains it.
func (o *Operator) ResumeCollectors(ctx context.Context, drain dispatch.Drain) (changed bool, still *dispatch.Gate, err error) {
	if changed, err = o.store.DeleteDrain(ctx, drain.Name()); err != nil {
		return changed, nil, fmt.Errorf("resume collectors: %w", err)
	}
	if err := o.drainsChanged(ctx); err != nil || drain.Collector == "" {
		return changed, nil, err
	}
	infos, err := o.store.CollectorInfos(ctx, []string{drain.Collector})
	if err != nil {
		return changed, nil, fmt.Errorf("read what collector %q tells: %w", drain.Collector, err)
	}
	book, err := o.d.Drains(ctx)
	if err != nil {
		return changed, nil, err
	}
	if other := book.Of(drain.Collector, infos[0]); other != nil {
		gate := other.AsGate()
		still = &gate
	}
	return changed, still, nil
}

// drainsChanged lets a change of drains hold, here by the time it returns.
func (o *Operator) drainsChanged(ctx context.Context) error {
	if err := o.d.RefreshDrains(ctx); err != nil {
		return err
	}
	if err := o.store.Publish(ctx, dispatch.Hint{Kind: dispatch.HintDrains}); err != nil {
		return fmt.Errorf("tell of drains: %w", err)
	}
	return nil
}

// ListDrains lists drains by name from the first after after.
func (o *Operator) ListDrains(ctx context.Context, after string, limit int) (drains []dispatch.Drain, next string, err error) {
	all, err := o.store.Drains(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("read drains of collectors: %w", err)
	}
	drains = slices.DeleteFunc(all, func(d dispatch.Drain) bool { return d.Name() <= after })
	if len(drains) > limit {
		drains = drains[:limit]
		next = drains[limit-1].Name()
	}
	return drains, next, nil
}
