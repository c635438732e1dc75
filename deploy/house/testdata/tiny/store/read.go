package store

import "context"

// Read implements it.
func (s *Store) Read(ctx context.Context) error { return (&reading{ctx}).err() }
