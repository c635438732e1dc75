package operate

import (
	"context"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
)

// OwnerMove is a change of owner that somebody has asked for.
type OwnerMove struct {
	From, To string // the dispatcher that gives the store up, and the one that takes it over
	Done     bool   // another one than From owns the store already
}

// OwnerMove returns what MoveOwner would do, with the same errors. From is empty if the store has no owner.
func (o *Operator) OwnerMove(ctx context.Context, from string) (OwnerMove, error) {
	stats, err := o.store.Stats(ctx)
	if err != nil {
		return OwnerMove{}, fmt.Errorf("read who owns the store: %w", err)
	}
	owned := stats.Ownership
	switch {
	case owned == nil:
		return OwnerMove{}, fmt.Errorf("%w: a store of the kind %s has no owner", dispatch.ErrNoStandby, o.store.Kind())
	case from != "" && from != owned.Owner:
		return OwnerMove{From: from, To: owned.Owner, Done: true}, nil
	case owned.Standby == "" || owned.WithoutStandby > 0:
		return OwnerMove{From: owned.Owner}, fmt.Errorf("%w: %d shards have none", dispatch.ErrNoStandby, owned.WithoutStandby)
	}
	return OwnerMove{From: owned.Owner, To: owned.Standby}, nil
}

// MoveOwner begins to give the store from its owner to the standby: see [dispatch.Store]. With from it does so only while that
// dispatcher owns the store. The error wraps [dispatch.ErrNoStandby] if there is none, or the store has no owner.
func (o *Operator) MoveOwner(ctx context.Context, from string) (OwnerMove, error) {
	move, err := o.OwnerMove(ctx, from)
	if err != nil || move.Done {
		return move, err
	}
	if move.To, err = o.store.MoveOwner(ctx); err != nil {
		return move, fmt.Errorf("move the owner: %w", err)
	}
	return move, nil
}
