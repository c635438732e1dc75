package dispatch

import (
	"context"
	"time"
)

// BindingTTL is how long a collector id belongs to an identity that does not use it.
const BindingTTL = 30 * 24 * time.Hour

// Bindings is a [Store] that keeps which identity a collector id belongs to.
type Bindings interface {
	// BindCollector gives the collector id to identity if it belongs to nobody. If it belongs to identity, it does so for
	// another [BindingTTL]. It returns whose it is then. It is one step, and idempotent. ErrInvalid if either is empty.
	BindCollector(ctx context.Context, collectorID, identity string) (owner string, err error)
	// ReleaseCollector makes the collector id nobody's, and returns whose it was, "" if nobody's. It is one step.
	// Repeated, it returns "".
	ReleaseCollector(ctx context.Context, collectorID string) (owner string, err error)
}
