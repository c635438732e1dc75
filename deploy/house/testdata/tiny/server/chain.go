// Package server has the interceptors and the handlers.
package server

import "tiny/grpc"

// Server has a log.
type Server struct{ log *log }

// Chain installs the interceptors.
func (s *Server) Chain() { grpc.Install(s.log.unary, streams) }
