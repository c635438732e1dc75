package server

import (
	"context"

	"go.uber.org/zap"
	"google.golang.org/grpc/peer"

	"github.com/waggle-crawl/waggle/dispatch"
)

// byOrPeer is who a change is put down to: who the caller says, else its
// address.
func byOrPeer(ctx context.Context, by string) string {
	if by != "" {
		return by
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return shortBy(p.Addr.String())
	}
	return "unknown"
}

// shortBy keeps an address within what is kept of who did something.
func shortBy(address string) string { return address[:min(len(address), dispatch.MaxIDLength)] }

// logOperator adds who did something and why to the line that logging writes of
// the call, for what is kept nowhere else.
func logOperator(ctx context.Context, by, reason string, r bulkResult) {
	addFields(ctx, zap.String("by", byOrPeer(ctx, by)), zap.String("reason", reason),
		zap.Any("matched", r.matched), zap.Any("changed", r.changed))
}
