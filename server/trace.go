package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats" //nolint:depguard // otelgrpc makes spans by it, and names its type in a filter
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/proto/tracing"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// tracer makes the spans of a dispatcher; nil makes none. Calls have one each, by [tracer.option], but for those that are parked, or
// that come for as long as a lease runs. Of those, tasks that carry a trace context have spans for the grant and the report.
type tracer struct {
	trace.Tracer
	provider trace.TracerProvider
}

func newTracer(provider trace.TracerProvider) *tracer {
	if provider == nil {
		return nil
	}
	return &tracer{provider.Tracer(tracing.Scope), provider}
}

// hasSpan reports whether a call has a span of its own.
func hasSpan(method string) bool {
	switch method {
	case pb.DispatchService_FetchTask_FullMethodName, pb.DispatchService_Work_FullMethodName,
		pb.DispatchService_Heartbeat_FullMethodName, pb.DispatchService_RenewLease_FullMethodName:
		return false
	default:
		return strings.HasPrefix(method, "/waggle.v1.")
	}
}

// options make the spans of calls.
func (t *tracer) options() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return hasSpan(info.FullMethodName) }),
	))}
}

// passed starts the span of a call that another dispatcher has passed on in a trace. end ends it with the error of the call.
func (t *tracer) passed(ctx context.Context, method, traceparent string) (spanned context.Context, end func(error)) {
	ctx = tracing.With(ctx, traceparent)
	if t == nil || traceparent == "" || !hasSpan(method) {
		return ctx, func(error) {}
	}
	name := strings.TrimPrefix(method, "/")
	ctx, span := t.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(name)))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, status.Convert(err).Message())
		}
		span.End()
	}
}

// traceOf is the W3C trace context of a call, if it is sampled: that of its span, or else of its caller.
func traceOf(ctx context.Context) string {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return tracing.Sampled(ctx)
	}
	sent := metadata.ValueFromIncomingContext(ctx, tracing.Header)
	if len(sent) != 1 {
		return ""
	}
	return tracing.Sampled(tracing.With(ctx, sent[0]))
}

// granted makes a span of each grant that a fetch was given for a task in a trace. It begins when the task was granted, not when the
// fetch came, and is linked to the span of the fetch's caller. The collector goes on from there.
func (t *tracer) granted(ctx context.Context, collector string, came time.Time, result *engine.FetchResult) {
	if t == nil {
		return
	}
	at := came.Add(result.Waited)
	for i := range result.Tasks {
		task := &result.Tasks[i].Task
		if task.Traceparent == "" {
			continue
		}
		options := []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(at),
			trace.WithAttributes(tracing.Waited(max(at.Sub(task.Due), 0).Seconds())),
		}
		if caller := trace.SpanContextFromContext(ctx); caller.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: caller}))
		}
		spanned, span := tracing.Start(tracing.With(ctx, task.Traceparent), t, tracing.Grant, tracing.Task{
			ID: string(task.ID), Pool: task.Pool, Queue: task.Queue, SourceID: task.SourceID, Collector: collector, Attempt: int(task.Counters.Attempt),
		}, options...)
		span.End()
		if next := tracing.Sampled(spanned); next != "" { // else what the submitter sampled goes on without this dispatcher
			task.Traceparent = next
		}
	}
}

// follows reports whether one of the reports is in a trace.
func (t *tracer) follows(reports []*pb.TaskReport) bool {
	return t != nil && slices.ContainsFunc(reports, func(r *pb.TaskReport) bool { return r.GetTraceparent() != "" })
}

// reported makes a span of each report in a trace that was settled since began.
func (t *tracer) reported(ctx context.Context, collector string, began time.Time, reports []*pb.TaskReport, results []*pb.ReportResult) {
	if t == nil {
		return
	}
	for i, report := range reports {
		if report.GetTraceparent() == "" || i >= len(results) {
			continue
		}
		within := tracing.With(ctx, report.GetTraceparent())
		if trace.SpanContextFromContext(within).Equal(trace.SpanContextFromContext(ctx)) {
			continue // it is no trace context
		}
		code := strings.ToLower(strings.TrimPrefix(results[i].GetCode().String(), "REPORT_CODE_"))
		_, span := tracing.Start(within, t, tracing.Report, tracing.Task{ID: report.GetTaskId(), Collector: collector},
			trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(began), trace.WithAttributes(tracing.Outcome(code)))
		span.End()
	}
}
