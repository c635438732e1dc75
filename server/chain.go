package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/admit"
	"github.com/waggle-crawl/waggle/server/internal/peers"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// chain is what every call goes through, in this order, and why:
//
//  0. A call is let in, or refused, by what its address has open and holds (enter): nothing of it is kept before.
//  1. Its caller's identity and role let it in, or not (package auth). Streams are checked again at each message.
//  2. The request is admitted by its size, and then decoded (decoded): what load or rate refuse costs no decoding. What
//     is refused here, or does not decode, ends where the handler would be called, so that all that follows sees it.
//     Only a request over MaxReceiveBytes, which is not read, comes to none of these. Of one that gzip has packed, the bytes
//     count that it has unpacked; it is unpacked once it is admitted. Messages of streams are decoded in turn likewise.
//  3. Metrics count every call with the code that its caller sees, refused ones included.
//  4. The log likewise, with what is noted of a fault, and of operators who made which change (ended).
//  5. Each error below becomes a status with its details, at one place (statusOf). One that is not known there is a fault of
//     ours: it is logged once, and the caller gets an id.
//  6. Admission refuses a method that has no policy, and more calls at once than may run.
//  7. A panic of the handler becomes an error, so that none of the above is skipped.
//  8. If this dispatcher does not own the store, the whole call is passed to the one that does, or waits while ownership moves
//     (owned; of streams ownedStream). The owner goes on with 4, for the caller that this one has let in (passed.go).
//  9. The sources, pools and collector id of the request are within the caller's grants (within). It takes the store to know.
//  10. What an operator changes is recorded (audited).
//
// The span of a call, if it has one, holds all of these (tracer).
//
// The handler's context ends a little ahead of the caller's deadline, so that its answer is there in time (inTime).
//
// 4 to 7 are one interceptor: of several, each call would take an object for each.
type chain struct {
	limits    *admit.Limits
	peers     *peers.Peers
	newcomers int // that one identity or address may have
	guard     *auth.Guard
	backend   *backend
	draining  <-chan struct{}

	gather      *gather
	owners      *ownership
	methods     map[string]*served // those of the API, which are passed to the owner
	higherEpoch func(uint64) bool  // nil: an epoch stays as it was
	feeds       func(context.Context, FeedStream) error
	reaches     func(ctx context.Context, address string) error
	metrics     *Metrics
	tracer      *tracer
	maxBytes    int             // of a request
	closing     <-chan struct{} // closed when no more calls are taken
	grace       time.Duration   // for how long a stream is answered once it was asked to reconnect
	drains      context.Context //nolint:containedctx // ends when the drain begins
	drain       context.CancelFunc

	log *zap.Logger
	// whole is for calls by which operators change something: none is left out, since nothing else records them.
	whole *zap.Logger
	// trouble is for calls that failed because something is away or full, which then fails them all.
	trouble *zap.Logger
	success bool // log calls that succeed as info

	recoverUnary  grpc.UnaryServerInterceptor
	recoverStream grpc.StreamServerInterceptor
}

// Of calls that failed for one trouble, the first few in a while are enough.
const (
	troubleLines = 5
	troubleEach  = time.Minute
)

// newChain logs no more than burst lines in a second and level before only each hundredth is kept: a store that is away
// fails every call, and the log should show that without filling the disk.
func (s *Server) newChain() *chain {
	burst, log := s.cfg.LogBurst, s.log
	log = log.WithOptions(zap.WithCaller(false))
	sampled := func(each time.Duration, first, then int) *zap.Logger {
		return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
			return zapcore.NewSamplerWithOptions(core, each, first, then)
		}))
	}
	onPanic := recovery.WithRecoveryHandlerContext(func(_ context.Context, value any) error {
		return newPanicError(value)
	})
	drains, drain := context.WithCancel(context.Background()) //nolint:forbidigo // of the server, not of a call
	c := &chain{
		owners: s.owners, methods: make(map[string]*served), higherEpoch: s.cfg.HigherEpoch, feeds: s.cfg.Feed, reaches: s.reaches, metrics: s.metrics, tracer: newTracer(s.cfg.TracerProvider),
		maxBytes: s.cfg.MaxReceiveBytes, closing: s.closing, grace: s.patience(), drains: drains, drain: drain,
		limits: s.limits, peers: s.peers, newcomers: s.cfg.MaxNewCollectors, guard: s.guard, backend: &s.backend, draining: s.draining,
		log: sampled(time.Second, burst, 100), whole: log,
		trouble: sampled(troubleEach, min(burst, troubleLines), 0), success: s.cfg.LogCalls,
		recoverUnary: recovery.UnaryServerInterceptor(onPanic), recoverStream: recovery.StreamServerInterceptor(onPanic),
	}
	c.gather = &gather{chain: c}
	return c
}

// counted is a call from 3 on.
func (c *chain) counted(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	began := time.Now()
	answerPlainly(ctx)
	resp, err := c.unary(ctx, req, info, handler)
	c.metrics.calls.methods[info.FullMethod].end(began, err)
	return resp, err
}

// countedStream is a stream from 3 on.
func (c *chain) countedStream(srv any, with grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	began := time.Now()
	answerPlainly(with.Context())
	err := c.stream(srv, with, info, handler)
	c.metrics.calls.methods[info.FullMethod].end(began, err)
	return err
}

// answerPlainly keeps the answers to a request that gzip has packed from being packed too: with the exporters of traces a process has a
// compressor, by which grpc-go would. The call may be none of gRPC.
func answerPlainly(ctx context.Context) {
	_ = grpc.SetSendCompressor(ctx, "identity") //nolint:forbidigo // nothing stable keeps grpc-go from it
}

// options are the chain as options of a gRPC server, whose services are registered by what decoded makes of them.
func (c *chain) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(c.tapped),
		grpc.CustomCodec(envelopeCodec{}),      //nolint:staticcheck // stable throughout 1.x; what replaces it is of the whole process, or experimental
		grpc.RPCDecompressor(packedRequests{}), //nolint:staticcheck // what replaces it is of the whole process, and packs answers too
	}
}

// tapped lets a stream of gRPC in, or refuses it, before anything of it is kept.
func (c *chain) tapped(ctx context.Context, info *tap.Info) (context.Context, error) {
	if err := c.enter(ctx, info.FullMethodName); err != nil {
		return ctx, err
	}
	if info.FullMethodName == pb.DispatchService_FetchTask_FullMethodName {
		ctx = peers.Enter(ctx)
	}
	return ctx, nil
}

// enter lets a call in, or refuses it, by what its address has open.
func (c *chain) enter(ctx context.Context, method string) error {
	if most, full := c.peers.Full(ctx, admit.Keeps(method)); full {
		return tooMany("the connections of this address have more calls and streams open than are allowed", most, method)
	}
	return nil
}

// tooMany refuses a stream because of what its address has open.
func tooMany(text string, limit int, method string) error {
	st, _ := wire.Status(nil, &wire.Refusal{
		Code: codes.ResourceExhausted, Reason: pb.ErrorReason_ERROR_REASON_RATE_LIMITED, Retry: time.Second,
		Text: text, Pairs: []string{"limit", strconv.Itoa(limit), "method", method},
	}, "")
	return st.Err()
}

func (c *chain) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	began, notes := time.Now(), new(callNotes)
	ctx = context.WithValue(ctx, callNotesKey{}, notes)
	resp, err := c.admitted(ctx, req, info, handler)
	if err != nil {
		err = statusOf(ctx, err)
	}
	c.ended(ctx, notes, info.FullMethod, began, err)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (c *chain) admitted(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	leave, err := c.limits.Call(info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := inTime(ctx)
	defer cancel()
	return c.recoverUnary(ctx, req, info, handler)
}

// A call ends what it waits for ahead of its caller's deadline by a tenth of the time left, within these bounds, so that
// its answer is there in time: what was done, or that the store did not answer.
const (
	shortestMargin = 50 * time.Millisecond
	longestMargin  = 500 * time.Millisecond
)

// inTime is ctx with an end a margin before its deadline, because the store did not answer; it has none without a
// deadline.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Until(deadline)
	margin := min(max(left/10, shortestMargin), longestMargin, left/2)
	return context.WithDeadlineCause(ctx, deadline.Add(-margin), dispatch.ErrStoreUnavailable)
}

func (c *chain) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return c.logged(stream.Context(), info.FullMethod, time.Now(), func(ctx context.Context) error {
		caller, err := c.admit(ctx, info.FullMethod)
		if err != nil {
			return err
		}
		watched, end := caller.Watch(withCaller(ctx, caller))
		defer end()
		line := peers.Other
		if admit.Keeps(info.FullMethod) {
			line = peers.Beats
		}
		err = c.admittedStream(srv, &decodedStream{stream, watched, caller, c, line}, info, handler) //nolint:contextcheck // it is the stream's
		return refusedMeanwhile(watched, err)
	})
}

// logged is 4 and 5 of a stream, or of a call that nobody waits for.
func (c *chain) logged(ctx context.Context, method string, began time.Time, serve func(context.Context) error) error {
	notes := new(callNotes)
	ctx = context.WithValue(ctx, callNotesKey{}, notes)
	err := serve(ctx)
	if err != nil {
		err = statusOf(ctx, err)
	}
	c.ended(ctx, notes, method, began, err)
	return err
}

// admittedStream ends streams that only watch (health, reflection) when the server drains: they would else go on for as
// long as their clients like. Heartbeats see to it themselves.
func (c *chain) admittedStream(srv any, stream *decodedStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := c.limits.Stream(info.FullMethod); err != nil {
		return err
	}
	switch {
	case info.FullMethod == pb.DispatchService_Work_FullMethodName: // its calls go to the owner, each by itself
		return c.recoverStream(srv, stream, info, handler)
	case !admit.IsProbe(info.FullMethod):
		return c.atOwner(srv, stream, info, handler)
	}
	if info.FullMethod != grpc_health_v1.Health_Watch_FullMethodName {
		leave, full := c.peers.Reflect(stream.Context())
		defer leave()
		if full {
			return tooMany("this address has more streams of server reflection open than are allowed", peers.MaxReflections, info.FullMethod)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- c.recoverStream(srv, stream, info, handler) }()
	select {
	case err := <-ended:
		return err
	case <-c.draining:
		return wire.ErrDraining // with this return the handler's stream ends, and with it the handler
	}
}

// atOwner has the owner serve a stream.
func (c *chain) atOwner(srv any, stream *decodedStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !c.owners.shared.Load() {
		return c.recoverStream(srv, stream, info, handler)
	}
	return c.ownedStream(stream, info, func(local *localStream) error {
		return c.recoverStream(srv, &decodedStream{local, local.ctx, local.moving.vouched(), c, stream.line}, info, handler)
	})
}

// panicError is a panic of a handler with the stack it left.
type panicError struct {
	value any
	stack string
}

func newPanicError(value any) *panicError {
	return &panicError{value: value, stack: string(debug.Stack())}
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// statusOf is err as its caller gets it. What the caller does not get is noted for the log: all of a fault of ours, and why
// the store cannot be worked with.
func statusOf(ctx context.Context, err error) error {
	errorID := uuid.NewString()
	if refused, ok := errors.AsType[*auth.Refused](err); ok {
		err = refusal(refused)
	}
	st, known := wire.Status(ctx.Err(), err, errorID)
	switch {
	case !known:
		addFields(ctx, zap.String("error_id", errorID), zap.String("cause", err.Error()))
		if p, ok := errors.AsType[*panicError](err); ok {
			addFields(ctx, zap.String("stack", p.stack))
		}
	case errors.Is(err, wire.ErrDraining):
		note(ctx, func(notes *callNotes) { notes.stopping = true })
	case st.Code() == codes.Unavailable || st.Code() == codes.ResourceExhausted:
		addFields(ctx, zap.String("cause", err.Error()))
	}
	return st.Err()
}

// callNotes are what the line of a call has beside what every line has.
type callNotes struct {
	mu       sync.Mutex // guards what follows
	fields   []zap.Field
	operator bool // by it an operator changed something
	stopping bool // it was sent elsewhere because this dispatcher stops
}

type callNotesKey struct{}

// note changes the notes of the call of ctx, if it is one.
func note(ctx context.Context, change func(*callNotes)) {
	if notes, ok := ctx.Value(callNotesKey{}).(*callNotes); ok {
		notes.mu.Lock()
		defer notes.mu.Unlock()
		change(notes)
	}
}

// addFields adds fields to the line that is written when the call of ctx ends.
func addFields(ctx context.Context, fields ...zap.Field) {
	note(ctx, func(notes *callNotes) { notes.fields = append(notes.fields, fields...) })
}

// ended logs a call once: at level error what is a fault of ours, as a warning what an operator may have to act on, as
// info what a client did wrong, and what succeeded as debug or info. What no one reads costs nothing: the fields of a
// line are made when it is known to be written.
func (c *chain) ended(ctx context.Context, notes *callNotes, fullMethod string, began time.Time, err error) {
	notes.mu.Lock()
	defer notes.mu.Unlock()
	code := status.Code(err)
	level, log, message := callLevel(code, c.success || notes.operator), c.log, "finished call"
	if notes.stopping {
		level = zapcore.DebugLevel // its drain is logged once, not for each call
	}
	if level == zapcore.WarnLevel {
		log = c.trouble
	}
	if notes.operator {
		log, message = c.whole, "operator's call"
	}
	entry := log.Check(level, message)
	if entry == nil {
		return
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	fields := []zap.Field{
		zap.String("grpc.service", service), zap.String("grpc.method", method), zap.String("grpc.start_time", began.Format(time.RFC3339)),
	}
	if p, ok := peer.FromContext(ctx); ok {
		fields = append(fields, zap.Stringer("peer.address", p.Addr))
	}
	if deadline, ok := ctx.Deadline(); ok {
		fields = append(fields, zap.String("grpc.request.deadline", deadline.Format(time.RFC3339)))
	}
	if identity := identityOf(ctx); identity != "" {
		fields = append(fields, zap.String("identity", identity))
	}
	if in := trace.SpanContextFromContext(ctx); in.IsSampled() {
		fields = append(fields, zap.Stringer("trace_id", in.TraceID()), zap.Stringer("span_id", in.SpanID()))
	}
	fields = append(fields, notes.fields...)
	fields = append(fields, zap.Stringer("grpc.code", code))
	if err != nil {
		fields = append(fields, zap.String("grpc.error", err.Error()))
	}
	entry.Write(append(fields, zap.Stringer("grpc.duration", time.Since(began)))...)
}

func callLevel(code codes.Code, success bool) zapcore.Level {
	switch code {
	case codes.OK:
		if success {
			return zapcore.InfoLevel
		}
		return zapcore.DebugLevel
	case codes.Canceled, codes.DeadlineExceeded:
		return zapcore.DebugLevel
	case codes.Unavailable, codes.ResourceExhausted:
		return zapcore.WarnLevel
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return zapcore.ErrorLevel
	default:
		return zapcore.InfoLevel
	}
}
