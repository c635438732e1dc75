// Package store is the store that the roads lead to.
package store

import (
	"context"

	"tiny/domain"
)

// Store implements [domain.Store].
type Store struct{ states []domain.State }

// Claim implements it.
func (s *Store) Claim(_ context.Context, n int) (domain.State, error) { return s.states[n], nil }
