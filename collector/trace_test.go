package collector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const leasedTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A handler works within its span, which is a child of the grant's; its report names the span. Without a provider the trace of the
// grant goes on as it is.
func TestCollector_Traces(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"succeeded": nil, "failed": errors.New("no such page"), "without a provider": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				exporter := tracetest.NewInMemoryExporter()
				provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
				d := newDispatcher()
				d.ready <- &wagglev1.Task{Id: "1-a", Pool: "default", Attempt: 1, Traceparent: leasedTrace}
				within := make(chan trace.SpanContext, 1)
				r := start(t, d, collector.HandlerFunc(func(ctx context.Context, _ *collector.Task) (collector.Succeeded, error) {
					within <- trace.SpanContextFromContext(ctx)
					return collector.Succeeded{}, failure
				}), func(cfg *collector.Config) {
					if name != "without a provider" {
						cfg.TracerProvider = provider
					}
				})
				of := <-within
				synctest.Wait()
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				if len(d.reports) == 0 || d.reports[0].GetTraceparent() != "00-"+of.TraceID().String()+"-"+of.SpanID().String()+"-01" {
					t.Errorf("the handler was in %v, and its reports are %v", of, d.reports)
				}
				if of.TraceID().String() != leasedTrace[3:35] {
					t.Errorf("the handler was in trace %s", of.TraceID())
				}
				spans := exporter.GetSpans()
				switch {
				case name == "without a provider":
					if of.SpanID().String() != leasedTrace[36:52] || len(spans) > 0 {
						t.Errorf("the handler was in span %s; spans %v", of.SpanID(), spans)
					}
				case len(spans) != 1 || spans[0].Name != "process default" || spans[0].Parent.SpanID().String() != leasedTrace[36:52]:
					t.Errorf("spans %v", spans)
				case (failure != nil) != (spans[0].Status.Code == codes.Error):
					t.Errorf("status %v of %v", spans[0].Status, failure)
				}
			})
		})
	}
}
