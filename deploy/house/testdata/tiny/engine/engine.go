// Package engine is between the handlers and the store.
package engine

import (
	"context"

	"tiny/domain"
)

// Engine works with a store.
type Engine struct {
	store  domain.Store
	claims merger[int, domain.State]
}

// New makes one.
func New(store domain.Store) *Engine {
	return &Engine{store: store, claims: merger[int, domain.State]{ask: store.Claim}}
}

// Fetch gets to the store by a function in a field.
func (e *Engine) Fetch(ctx context.Context, n int) (int, error) {
	e.report(ctx)
	n, err := checked(ctx, n)
	if err != nil {
		return 0, err
	}
	state, err := e.claims.one(ctx, n)
	return int(state), err
}

// Beat gets to the store by a function handed over, which Fetch does not: both call retry.
func (e *Engine) Beat(ctx context.Context) error {
	return retry(func() error { return e.store.Read(ctx) })
}
