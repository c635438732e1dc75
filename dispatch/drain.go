package dispatch

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Bounds of drains.
const (
	// MaxDrains bounds the drains that hold at a time.
	MaxDrains = 1000
	// MaxDrainLabels bounds the labels that one names.
	MaxDrainLabels = 16
)

// Drain is an operator's rule that collectors are handed out nothing: the one of an
// id, or all that have some labels, also when they come later.
type Drain struct {
	Collector string `json:"collector,omitempty"`
	// Labels, all of which a collector has; not with Collector.
	Labels map[string]string `json:"labels,omitempty"`
	Gate
}

// Name tells drains apart: the same for those that name the same collectors, in the
// order in which they are listed.
func (d *Drain) Name() string {
	if d.Collector != "" {
		return "id\x00" + d.Collector
	}
	name := "labels"
	for _, key := range slices.Sorted(maps.Keys(d.Labels)) {
		name += "\x00" + key + "\x00" + d.Labels[key]
	}
	return name
}

// gate is the drain as the gate that it closes.
func (d *Drain) gate() Gate {
	gate := d.Gate
	gate.Drain = d
	return gate
}

// holds reports whether a collector with these labels is drained.
func (d *Drain) holds(id string, labels map[string]string) bool {
	if d.Collector != "" {
		return d.Collector == id
	}
	for key, value := range d.Labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return len(d.Labels) > 0
}

// outlasts reports whether the drain ends after the other one; nil is none.
func (d *Drain) outlasts(other *Drain) bool {
	return other == nil || !other.Until.IsZero() && (d.Until.IsZero() || d.Until.After(other.Until))
}

// TooManyDrains is the error of a drain beyond MaxDrains.
func TooManyDrains(d *Drain) error {
	limit := fmt.Sprintf("would be one more than the limit of %d drains", MaxDrains)
	if d.Collector != "" {
		return Invalid("collector_id", d.Collector, limit)
	}
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(d.Labels)) {
		pairs = append(pairs, key+"="+d.Labels[key])
	}
	return Invalid("labels", strings.Join(pairs, ","), limit)
}

// Drains keeps drains of collectors.
type Drains interface {
	// SetDrain keeps a drain, replacing the one of the same name. Until zero = until
	// it is deleted. Idempotent. ErrInvalid when MaxDrains others hold.
	SetDrain(ctx context.Context, drain Drain) error
	// DeleteDrain removes the drain of a name, if there is one, and reports whether it
	// still held. Idempotent.
	DeleteDrain(ctx context.Context, name string) (held bool, err error)
	// Drains reads all that hold now, by name.
	Drains(ctx context.Context) ([]Drain, error)
}

// DrainCollectors has collectors handed out nothing until drain.Until (zero: until
// they are resumed), replacing the drain that names the same ones: their fetches end
// with [EmptyDraining], and their beats ask for it. What they hold they finish. Kind
// and Time of the drain are set here. replaced is the one that stood; nil: none did.
func (d *Dispatcher) DrainCollectors(ctx context.Context, drain Drain) (kept Drain, replaced *Gate, err error) {
	drain, replaced, err = d.WouldDrain(ctx, drain)
	if err != nil {
		return drain, nil, err
	}
	if err := d.store.SetDrain(ctx, drain); err != nil {
		return drain, nil, fmt.Errorf("drain collectors: %w", err)
	}
	return drain, replaced, d.drainsChanged(ctx)
}

// WouldDrain is the drain as DrainCollectors would keep it, and the one that it would
// replace.
func (d *Dispatcher) WouldDrain(ctx context.Context, drain Drain) (kept Drain, replaced *Gate, err error) {
	drain.Kind = GateDrained
	if drain.Gate, err = d.dated(ctx, drain.Gate); err != nil {
		return drain, nil, err
	}
	all, err := d.store.Drains(ctx)
	if err != nil {
		return drain, nil, fmt.Errorf("read drains of collectors: %w", err)
	}
	if i := slices.IndexFunc(all, func(other Drain) bool { return other.Name() == drain.Name() }); i >= 0 {
		return drain, &all[i].Gate, nil
	}
	if len(all) >= MaxDrains {
		err = TooManyDrains(&drain)
	}
	return drain, nil, err
}

// DrainedBy finds the collectors that a drain names, by id, of those whose beats were
// heard within [CollectorMemory]. By labels it looks at all of these.
func (d *Dispatcher) DrainedBy(ctx context.Context, drain *Drain) (ids []string, err error) {
	if drain.Collector == "" {
		_, err = d.eachCollector(ctx, math.MaxInt, func(c *CollectorRecord) bool {
			if drain.holds(c.Info.ID, c.Info.Labels) {
				ids = append(ids, c.Info.ID)
			}
			return true
		})
		return ids, err
	}
	infos, err := d.store.CollectorInfos(ctx, []string{drain.Collector})
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
func (d *Dispatcher) ResumeCollectors(ctx context.Context, drain Drain) (changed bool, still *Gate, err error) {
	if changed, err = d.store.DeleteDrain(ctx, drain.Name()); err != nil {
		return changed, nil, fmt.Errorf("resume collectors: %w", err)
	}
	if err := d.drainsChanged(ctx); err != nil || drain.Collector == "" {
		return changed, nil, err
	}
	infos, err := d.store.CollectorInfos(ctx, []string{drain.Collector})
	if err != nil {
		return changed, nil, fmt.Errorf("read what collector %q tells: %w", drain.Collector, err)
	}
	if other := d.drains.book.Load().of(drain.Collector, infos[0]); other != nil {
		gate := other.gate()
		still = &gate
	}
	return changed, still, nil
}

// drainsChanged lets a change of drains hold, here by the time it returns.
func (d *Dispatcher) drainsChanged(ctx context.Context) error {
	if err := d.drains.refresh(ctx); err != nil {
		return err
	}
	if err := d.store.Publish(ctx, Hint{Kind: HintDrains}); err != nil {
		return fmt.Errorf("tell of drains: %w", err)
	}
	return nil
}

// ListDrains lists drains by name from the first after after.
func (d *Dispatcher) ListDrains(ctx context.Context, after string, limit int) (drains []Drain, next string, err error) {
	all, err := d.store.Drains(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("read drains of collectors: %w", err)
	}
	drains = slices.DeleteFunc(all, func(d Drain) bool { return d.Name() <= after })
	if len(drains) > limit {
		drains = drains[:limit]
		next = drains[limit-1].Name()
	}
	return drains, next, nil
}
