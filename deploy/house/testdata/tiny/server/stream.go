package server

import "tiny/grpc"

type wrapped struct{ grpc.Stream }

func streams(stream grpc.Stream, handler grpc.StreamHandler) error { return handler(wrapped{stream}) }
