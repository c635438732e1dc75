package dispatch

import (
	"context"
	"time"
)

// How long collector ids belong to identities.
const (
	// BindingTTL is how long a collector id that was granted tasks belongs to an identity that does not use it.
	BindingTTL = 30 * 24 * time.Hour
	// BindingStep is by how much the end of a binding moves at least, so that a store does not record each use.
	BindingStep = time.Hour
)

// Bindings is a [Store] that keeps which identity a collector id belongs to.
type Bindings interface {
	// BindCollector gives the collector id to identity for ttl if it belongs to nobody. If it belongs to identity, the
	// binding ends a ttl from now, unless its end would move by less than [BindingStep] or half of ttl. It returns whose
	// the collector id is then. It is one step, and idempotent. ErrInvalid if either is empty.
	BindCollector(ctx context.Context, collectorID, identity string, ttl time.Duration) (owner string, err error)
	// ReleaseCollector makes the collector id nobody's, and returns whose it was, "" if nobody's. It is one step.
	// Repeated, it returns "".
	ReleaseCollector(ctx context.Context, collectorID string) (owner string, err error)
}
