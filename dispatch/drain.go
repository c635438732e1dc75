package dispatch

import (
	"context"
	"fmt"
	"maps"
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

// AsGate is the drain as the gate that it closes.
func (d *Drain) AsGate() Gate {
	gate := d.Gate
	gate.Drain = d
	return gate
}

// Holds reports whether a collector with these labels is drained.
func (d *Drain) Holds(id string, labels map[string]string) bool {
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

// Outlasts reports whether the drain ends after the other one; nil is none.
func (d *Drain) Outlasts(other *Drain) bool {
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
