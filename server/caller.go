package server

import (
	"context"
	"errors"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// callerKey is the key of the caller of a context.
type callerKey struct{}

// withCaller is ctx with who makes the call.
func withCaller(ctx context.Context, caller *auth.Caller) context.Context {
	if caller == nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, caller)
}

// identityOf is the identity of the caller of ctx; empty without authentication.
func identityOf(ctx context.Context) string {
	if caller, ok := ctx.Value(callerKey{}).(*auth.Caller); ok {
		return caller.Identity
	}
	return ""
}

// who made a change: the identity with what the caller writes beside it, or without authentication whom the caller names,
// or else its address.
func who(ctx context.Context, by string) string {
	identity := identityOf(ctx)
	switch {
	case identity != "" && by != "":
		by = identity + " (" + by + ")"
	case identity != "":
		by = identity
	case by == "":
		by = addressOf(ctx)
	}
	return strings.ToValidUTF8(by[:min(len(by), bounds.MaxIDLength)], "")
}

// addressOf is where a call comes from.
func addressOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "unknown"
	}
	if p.Addr.Network() == "unix" {
		return "unix socket"
	}
	address := p.Addr.String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host // the port is another one after a reconnect, and a call that is repeated then must name the same
	}
	return address
}

// admit lets a caller make a call, or not; see [auth.Guard.Admit].
func (c *chain) admit(ctx context.Context, method string) (caller *auth.Caller, err error) {
	return caller, recovered(func() (err error) {
		caller, err = c.guard.Admit(ctx, method)
		return err
	})
}

// recovered makes an error of a panic, where none of gRPC's interceptors does.
func recovered(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return f()
}

// within is a handler for requests that are within the caller's grants. A parked fetch ends when the caller is not
// allowed it any more.
func (c *chain) within(caller *auth.Caller, method string, handler grpc.UnaryHandler) grpc.UnaryHandler {
	if caller == nil {
		return handler
	}
	return func(ctx context.Context, req any) (any, error) {
		if err := caller.Within(ctx, req, c.backend); err != nil {
			return nil, err
		}
		if method != pb.DispatchService_FetchTask_FullMethodName {
			resp, err := handler(ctx, req)
			if err != nil {
				return nil, err
			}
			if shown, ok := resp.(*pb.GetTaskResponse); ok {
				if err := caller.Shows(shown.GetTask().GetSourceId()); err != nil {
					return nil, err
				}
			}
			return resp, caller.Redact(resp.(proto.Message)) //nolint:forcetypeassert // as all answers of gRPC are
		}
		ctx, end := caller.Watch(ctx)
		defer end()
		resp, err := handler(ctx, req)
		return resp, refusedMeanwhile(ctx, err)
	}
}

// refusedMeanwhile is the error of a call that has failed because its caller is not allowed it any more.
func refusedMeanwhile(ctx context.Context, err error) error {
	if refused, ok := errors.AsType[*auth.Refused](context.Cause(ctx)); ok && err != nil {
		return refused
	}
	return err
}

// refusal is a refused call as its caller gets it.
func refusal(r *auth.Refused) error {
	refused := &wire.Refusal{
		Code: codes.PermissionDenied, Reason: pb.ErrorReason_ERROR_REASON_PERMISSION_DENIED, Text: r.Error(),
		Pairs: []string{"identity", r.Identity, "method", r.Method},
	}
	switch {
	case r.Identity == "":
		refused.Code, refused.Reason, refused.Pairs = codes.Unauthenticated, pb.ErrorReason_ERROR_REASON_UNAUTHENTICATED, nil
	case r.Collector != "":
		refused.Reason, refused.Pairs = pb.ErrorReason_ERROR_REASON_COLLECTOR_BOUND, []string{"collector_id", r.Collector, "identity", r.Identity}
	}
	return refused
}

// SourcesOf implements [auth.Backend].
func (b *backend) SourcesOf(ctx context.Context, tasks []string) ([]string, error) {
	return b.o.SourcesOf(ctx, tasks)
}

// BindCollector implements [auth.Backend].
func (b *backend) BindCollector(ctx context.Context, collector, identity string) error {
	return b.o.BindCollector(ctx, collector, identity)
}
