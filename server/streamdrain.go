package server

import (
	"google.golang.org/grpc"
)

// drains ends streams that only watch (health, reflection) when the server drains: they
// would else go on for as long as their clients like. Heartbeats see to it themselves.
func (s *Server) drains(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if s.limits.policies[info.FullMethod] != classProbe {
		return handler(srv, stream)
	}
	ended := make(chan error, 1)
	go func() { ended <- handler(srv, stream) }()
	select {
	case err := <-ended:
		return err
	case <-s.draining:
		// The handler's stream ends with this return, and with it the handler.
		return errStopping()
	}
}
