// Package tracing is what dispatchers and collectors share of traces: the W3C trace context that a task carries, and the names of
// spans and attributes. OpenTelemetry's conventions for messaging are not stable yet: their names stand here only.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the tracers of Waggle.
const Scope = "github.com/waggle-crawl/waggle"

// Header is the metadata of a call, and the header of a request over HTTP, that has its caller's trace context.
const Header = "traceparent"

// Operation is something that is done to a task.
type Operation struct {
	name, kind string // kind is what the conventions call it
}

// The operations that have spans.
var (
	// Grant is its hand-out by a dispatcher, from the grant to the answer.
	Grant = Operation{"grant", "receive"}
	// Process is the work of a handler on it.
	Process = Operation{"process", "process"}
	// Report is the settlement of its lease by a dispatcher.
	Report = Operation{"report", "settle"}
)

// Task is what spans show of a task. What is not known is left zero.
type Task struct {
	ID, Pool, Queue, SourceID, Collector string
	Attempt                              int
}

// Start starts a span of an operation, as a child of that of the context. Its name has the pool, if that is known: "grant default".
func Start(ctx context.Context, tracer trace.Tracer, of Operation, t Task, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	name := of.name
	if t.Pool != "" {
		name += " " + t.Pool
	}
	ctx, span := tracer.Start(ctx, name, opts...)
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(
		attribute.String("messaging.system", "waggle"),
		attribute.String("messaging.operation.name", of.name),
		attribute.String("messaging.operation.type", of.kind),
		attribute.String("messaging.message.id", t.ID),
	)
	for _, known := range []attribute.KeyValue{
		attribute.String("messaging.destination.name", t.Pool), attribute.String("messaging.client.id", t.Collector),
		attribute.String("waggle.queue", t.Queue), attribute.String("waggle.source_id", t.SourceID),
	} {
		if known.Value.AsString() != "" {
			span.SetAttributes(known)
		}
	}
	if t.Attempt > 0 {
		span.SetAttributes(attribute.Int("waggle.attempt", t.Attempt))
	}
	return ctx, span
}

// Waited is how long a granted task had been due, in seconds.
func Waited(seconds float64) attribute.KeyValue { return attribute.Float64("waggle.wait", seconds) }

// Outcome is how the work on a task ended, or what became of its report.
func Outcome(outcome string) attribute.KeyValue { return attribute.String("waggle.outcome", outcome) }

// carrier is the headers of a trace context: only the one that tasks carry.
type carrier string

// Get returns the header.
func (c *carrier) Get(key string) string {
	if key == Header {
		return string(*c)
	}
	return ""
}

// Set sets it.
func (c *carrier) Set(key, value string) {
	if key == Header {
		*c = carrier(value)
	}
}

// Keys are its name.
func (c *carrier) Keys() []string { return []string{Header} }

// With is ctx with a W3C trace context, as that of a caller elsewhere. What is none changes nothing.
func With(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	c := carrier(traceparent)
	return propagation.TraceContext{}.Extract(ctx, &c)
}

// Sampled is the W3C trace context of a context, if it is sampled; else empty.
func Sampled(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	var c carrier
	propagation.TraceContext{}.Inject(ctx, &c)
	return string(c)
}
