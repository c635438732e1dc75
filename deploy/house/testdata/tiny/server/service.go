package server

import (
	"context"

	"tiny/engine"
	"tiny/grpc"
)

// Service has the handlers.
type Service struct {
	Engine *engine.Engine // gets all calls
}

// Fetch is a call.
func (s *Service) Fetch(ctx context.Context, n int) (int, error) { return s.Engine.Fetch(ctx, plus(n)) }

// Beat is a stream.
func (s *Service) Beat(stream grpc.Stream) error { return s.Engine.Beat(stream.Context()) }
