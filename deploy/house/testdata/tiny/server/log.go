package server

import (
	"context"

	"tiny/grpc"
)

type log struct{ lines int }

func (l *log) unary(ctx context.Context, req any, handler grpc.UnaryHandler) (any, error) {
	l.lines = plus(l.lines)
	return handler(ctx, req)
}
