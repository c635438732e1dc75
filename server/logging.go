package server

import (
	"context"
	"strings"
	"sync"
	"time"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// callLog logs each call once, when it ends: at level error what is a fault of
// ours, as a warning what an operator may have to act on, as info what a client
// did wrong, and what succeeded as debug or info. What no one reads costs
// nothing: the fields of a line are made when it is known to be written.
type callLog struct {
	log *zap.Logger
	// whole is for calls by which operators change something: none is left out, since
	// nothing else tells of them.
	whole *zap.Logger
	// trouble is for calls that failed because something is away or full, which
	// then fails them all.
	trouble *zap.Logger
	success bool // log calls that succeed as info
}

// Of calls that failed for one trouble, the first few in a while tell enough.
const (
	troubleLines = 5
	troubleEach  = time.Minute
)

// newCallLog writes no more than burst lines in a second and level before only
// each hundredth is kept: a store that is away fails every call, and the log
// should tell so without filling the disk.
func newCallLog(log *zap.Logger, burst int, success bool) *callLog {
	sampled := func(each time.Duration, first, then int) *zap.Logger {
		return log.WithOptions(zap.WithCaller(false), zap.WrapCore(func(core zapcore.Core) zapcore.Core {
			return zapcore.NewSamplerWithOptions(core, each, first, then)
		}))
	}
	return &callLog{
		log: sampled(time.Second, burst, 100), whole: log.WithOptions(zap.WithCaller(false)),
		trouble: sampled(troubleEach, min(burst, troubleLines), 0), success: success,
	}
}

// callNotes are fields that the line of a call has beside those of every line.
type callNotes struct {
	mu       sync.Mutex // guards what follows
	fields   []zap.Field
	operator bool // by it an operator changed something
	stopping bool // it was sent elsewhere because this dispatcher stops
}

type callNotesKey struct{}

// notedContext is the context of a call, with the call's notes.
type notedContext struct {
	context.Context //nolint:containedctx // it is one, as of context.WithValue, and spares every call an object
	notes           callNotes
}

// Value implements [context.Context].
func (c *notedContext) Value(key any) any {
	if key == (callNotesKey{}) {
		return &c.notes
	}
	return c.Context.Value(key)
}

// addFields adds fields to the line that is written when the call of ctx ends.
func addFields(ctx context.Context, fields ...zap.Field) {
	if notes, ok := ctx.Value(callNotesKey{}).(*callNotes); ok {
		notes.mu.Lock()
		defer notes.mu.Unlock()
		notes.fields = append(notes.fields, fields...)
	}
}

// noteOperator adds fields to the line of a call by which an operator changed
// something, and has it written as info.
func noteOperator(ctx context.Context, fields ...zap.Field) {
	addFields(ctx, fields...)
	if notes, ok := ctx.Value(callNotesKey{}).(*callNotes); ok {
		notes.mu.Lock()
		defer notes.mu.Unlock()
		notes.operator = true
	}
}

// noteStopping has the line of a call written as debug, which was sent elsewhere.
func noteStopping(ctx context.Context) {
	if notes, ok := ctx.Value(callNotesKey{}).(*callNotes); ok {
		notes.mu.Lock()
		defer notes.mu.Unlock()
		notes.stopping = true
	}
}

func (l *callLog) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	began, ctx := time.Now(), &notedContext{Context: stream.Context()}
	noted := middleware.WrapServerStream(stream)
	noted.WrappedContext = ctx
	err := handler(srv, noted)
	l.ended(ctx, &ctx.notes, info.FullMethod, began, err)
	return err
}

// ended writes the line of a call.
func (l *callLog) ended(ctx context.Context, notes *callNotes, fullMethod string, began time.Time, err error) {
	notes.mu.Lock()
	defer notes.mu.Unlock()
	code := status.Code(err)
	level, log, message := callLevel(code, l.success || notes.operator), l.log, "finished call"
	if notes.stopping {
		level = zapcore.DebugLevel // its drain is told once, not for each call
	}
	if level == zapcore.WarnLevel {
		log = l.trouble
	}
	if notes.operator {
		log, message = l.whole, "operator's call"
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
