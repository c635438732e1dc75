// Package grpc stands for the library of that name.
package grpc

import "context"

// UnaryHandler is what interceptors of calls get.
type UnaryHandler func(ctx context.Context, req any) (any, error)

// StreamHandler is what interceptors of streams get.
type StreamHandler func(stream Stream) error

// Stream has a context.
type Stream interface {
	// Context is that of the call.
	Context() context.Context
	// Recv receives a message.
	Recv() error
}

// Install takes interceptors.
func Install(...any) {}
