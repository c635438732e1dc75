package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// chain is every interceptor, the outermost first. The order, and why:
//
//  1. metrics count every call with the code that its caller sees, refused ones
//     included. Only a request over MaxReceiveBytes, which is not read, comes to none
//     of these.
//  2. logging likewise, and with what statuses notes of a fault.
//  3. statuses turn each error below into a status with its details, at one
//     place. What they do not know is a fault of ours: they hand its text to
//     logging, which logs it once, and the caller gets an id.
//  4. limits refuse what is in no policy, and more calls at once than may run. What load
//     or rate refuse, before a request is decoded, and what does not decode comes out
//     where the handler would be called (arrival).
//  5. operators has the log tell who changed what, and drains end streams that are
//     only watched when the server is to stop.
//  6. recovery is last, so that a panic of a handler is an error to all of the
//     above, and none of them is skipped.
//
// Of calls that are no streams, 2 to 6 are one interceptor: of several, gRPC makes an
// object for each in each call.
func (s *Server) chain() []grpc.ServerOption {
	calls := newCallLog(s.log, s.cfg.LogBurst, s.cfg.LogCalls)
	onPanic := recovery.WithRecoveryHandlerContext(recovered)
	unary := unaryChain{log: calls, limits: s.limits, recovery: recovery.UnaryServerInterceptor(onPanic)}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(
			s.metrics.calls.UnaryServerInterceptor(),
			unary.logging,
		),
		grpc.ChainStreamInterceptor(
			s.metrics.calls.StreamServerInterceptor(),
			calls.stream,
			streamStatuses,
			s.limits.stream,
			s.drains,
			recovery.StreamServerInterceptor(onPanic),
		),
	}
}

// unaryChain is the interceptors of calls that are no streams, behind metrics: each of
// its methods is one or two, and calls the next.
type unaryChain struct {
	log      *callLog
	limits   *limits
	recovery grpc.UnaryServerInterceptor
}

func (c *unaryChain) logging(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	began, noted := time.Now(), &notedContext{Context: ctx}
	resp, err := c.statuses(noted, req, info, handler) //nolint:contextcheck // it inherits ctx
	c.log.ended(ctx, &noted.notes, info.FullMethod, began, err)
	return resp, err
}

func (c *unaryChain) statuses(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := c.letIn(ctx, req, info, handler)
	if err != nil {
		return nil, told(ctx, err)
	}
	return resp, nil
}

// letIn is limits, operators and recovery.
func (c *unaryChain) letIn(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	at, err := c.limits.enter(info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer at.leave()
	resp, err := c.recovery(ctx, req, info, handler)
	if err == nil {
		logOperator(ctx, req)
	}
	return resp, err
}

// panicError is a panic of a handler with the stack it left.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func recovered(_ context.Context, value any) error {
	return &panicError{value: value, stack: string(debug.Stack())}
}

func streamStatuses(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := handler(srv, decodedStream{stream}); err != nil {
		return told(stream.Context(), err)
	}
	return nil
}

// told is err as its caller is told of it. What the caller is not told becomes
// part of the line that logging writes when the call ends: all of a fault of
// ours, and why the store cannot be worked with.
func told(ctx context.Context, err error) error {
	errorID := uuid.NewString()
	st, known := statusOf(ctx, err, errorID)
	kind := kindOf(err)
	switch {
	case !known:
		addFields(ctx, zap.String("error_id", errorID), zap.String("cause", err.Error()))
		var p *panicError
		if errors.As(err, &p) {
			addFields(ctx, zap.String("stack", p.stack))
		}
	case errors.Is(err, errDraining):
		noteStopping(ctx)
	case kind != nil && kind.retry > 0:
		addFields(ctx, zap.String("cause", err.Error()))
	}
	return st.Err()
}
