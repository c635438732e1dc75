package server

import "google.golang.org/grpc"

// drains ends streams when the server drains that would else wait for as long as their
// clients like: those that only watch (health, reflection) at once, those of fetches
// between two fetches. Streams of heartbeats see to it themselves.
func (s *Server) drains(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if f, ok := stream.Context().Value(fetchStreamKey{}).(*fetchStream); ok {
		if err := s.fetches.add(f, s.limits); err != nil {
			return err
		}
		defer s.fetches.remove(f)
		f.ServerStream = stream
		return handler(srv, f)
	}
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
