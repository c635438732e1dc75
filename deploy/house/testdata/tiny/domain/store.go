package domain

import "context"

// Store has two methods, one of them embedded.
type Store interface {
	Reader
	// Claim takes a task.
	Claim(ctx context.Context, n int) (State, error)
}

// Reader is embedded.
type Reader interface {
	// Read reads a task.
	Read(ctx context.Context) error
}
