package collector

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/waggle-crawl/waggle/proto/tracing"
)

// traced starts the span of a handler, in the trace of its task. The report goes on in it. end ends it with what the handler
// returned.
func (r *run) traced(l *lease) (ctx context.Context, end func(error)) {
	t := l.task
	ctx, span := tracing.Start(tracing.With(l.ctx, t.traceparent), r.tracer, tracing.Process, tracing.Task{
		ID: t.ID, Pool: t.Pool, Queue: t.Queue, SourceID: t.SourceID, Collector: r.cfg.ID, Attempt: t.Attempt,
	}, trace.WithSpanKind(trace.SpanKindConsumer))
	l.traceparent = tracing.Sampled(ctx)
	return ctx, func(err error) {
		switch {
		case err == nil:
			span.SetAttributes(tracing.Outcome("succeeded"))
		case is[*Released](err) || l.ctx.Err() != nil:
			span.SetAttributes(tracing.Outcome("released"))
		default:
			span.SetAttributes(tracing.Outcome("failed"))
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}
