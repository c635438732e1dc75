package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	sampledCall  = "00-" + callersTrace + "-b7ad6b7169203331-01"
)

// submitIn submits a task in a trace.
func submitIn(t *testing.T, b *bed, traceparent, url string) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent)
	item := &pb.SubmitItem{SourceId: "news", Url: url}
	if _, err := b.tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{item}}); err != nil {
		t.Fatal(err)
	}
}

// traced is a provider that notes spans, which spans lists by name.
func traced(t *testing.T) (provider *sdk.TracerProvider, spans func() map[string][]tracetest.SpanStub) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider = sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return provider, func() map[string][]tracetest.SpanStub {
		named := make(map[string][]tracetest.SpanStub)
		for _, s := range exporter.GetSpans() {
			named[s.Name] = append(named[s.Name], s)
		}
		return named
	}
}

// A task goes on with the trace of the call that submitted it: over plain calls, on a Work stream, and over two dispatchers. Calls
// that are parked and heartbeats have no spans.
func TestTraces(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]func(*bed, *testing.T) (traceparent string){
		"plain": func(b *bed, t *testing.T) string {
			task := b.fetch(t, 1)[0]
			report := succeeded(task)
			report.Traceparent = task.GetTask().GetTraceparent()
			if _, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{report}}); err != nil {
				t.Fatal(err)
			}
			return report.GetTraceparent()
		},
		"carried": func(b *bed, t *testing.T) string {
			task := b.fetch(t, 1)[0]
			report := succeeded(task)
			report.Traceparent = task.GetTask().GetTraceparent()
			req := &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(0), Reports: []*pb.TaskReport{report}}
			if resp, err := b.dispatch.FetchTask(t.Context(), req); err != nil || resp.GetReportResults()[0].GetCode() != pb.ReportCode_REPORT_CODE_OK {
				t.Fatal(resp, err)
			}
			return report.GetTraceparent()
		},
		"stream": func(b *bed, t *testing.T) string {
			w := works(t, b)
			task := w.granted(w.fetch("t1", 1), 1)[0]
			report := succeeded(task)
			report.Traceparent = task.GetTask().GetTraceparent()
			w.settled(w.report(report), pb.ReportCode_REPORT_CODE_OK)
			return report.GetTraceparent()
		},
	} {
		for _, passed := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", passed on"}[passed], func(t *testing.T) {
				t.Parallel()
				provider, spans := traced(t)
				cfg := server.Config{TracerProvider: provider}
				var b *bed
				if passed {
					b = newGroup(t, 2, cfg).members[1].bed
				} else {
					b = newBed(t, cfg)
				}
				b.source(t, "news")
				submitIn(t, b, sampledCall, "https://example.com/a")
				onward := by(b, t)
				got := spans()
				for span, want := range map[string]int{
					"grant default": 1, "report": 1, "waggle.v1.TaskService/SubmitTasks": 1 + map[bool]int{true: 1}[passed],
					"waggle.v1.DispatchService/FetchTask": 0, "waggle.v1.DispatchService/Work": 0, "waggle.v1.DispatchService/Heartbeat": 0,
				} {
					if len(got[span]) != want {
						t.Errorf("%d spans are named %q, want %d", len(got[span]), span, want)
					}
					for _, s := range got[span] {
						if s.SpanContext.TraceID().String() != callersTrace {
							t.Errorf("%q is in trace %s", span, s.SpanContext.TraceID())
						}
					}
				}
				if t.Failed() {
					return
				}
				grant, report := got["grant default"][0], got["report"][0]
				if want := "00-" + callersTrace + "-" + grant.SpanContext.SpanID().String() + "-01"; onward != want {
					t.Errorf("the collector goes on with %q, want the grant's %q", onward, want)
				}
				if report.Parent.SpanID() != grant.SpanContext.SpanID() {
					t.Error("the report is not within what the collector named")
				}
				outcome := attribute.String("waggle.outcome", "ok")
				if attributes := report.Attributes; len(attributes) == 0 || attributes[0] != outcome {
					t.Errorf("the report has %v, want %v", attributes, outcome)
				}
			})
		}
	}
}

// A call that is not sampled leaves nothing with its tasks. Of one that is, a dispatcher that makes no spans hands the context on.
func TestTraces_Sampled(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	for traceparent, want := range map[string]string{sampledCall: sampledCall, "00-" + callersTrace + "-b7ad6b7169203331-00": "", "no context": ""} {
		submitIn(t, b, traceparent, "https://"+traceparent[len(traceparent)-2:]+".example.com/")
		tasks := b.fetch(t, 1)
		if len(tasks) != 1 || tasks[0].GetTask().GetTraceparent() != want {
			t.Errorf("a call of %q left %v", traceparent, tasks)
		}
		b.succeed(t, tasks...)
	}
}

// The grant's span begins with the grant: how long the fetch was parked is no part of it.
func TestTraces_Parked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		provider, spans := traced(t)
		b := newBed(t, server.Config{TracerProvider: provider})
		b.source(t, "news")
		fetched := make(chan []*pb.LeasedTask, 1)
		go func() {
			resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(20 * time.Second)})
			if err != nil {
				t.Error(err)
			}
			fetched <- resp.GetLeasedTasks()
		}()
		time.Sleep(9 * time.Second)
		began := time.Now()
		submitIn(t, b, sampledCall, "https://example.com/a")
		if tasks := <-fetched; len(tasks) != 1 {
			t.Fatalf("fetched %v", tasks)
		}
		if grants := spans()["grant default"]; len(grants) != 1 || grants[0].StartTime.Before(began) {
			t.Errorf("the grants are %v; one is wanted, after %v", grants, began)
		}
	})
}

// Lines of calls in a trace have its id.
func TestTraces_Log(t *testing.T) {
	t.Parallel()
	provider, _ := traced(t)
	b := newBed(t, server.Config{TracerProvider: provider, LogCalls: true})
	b.source(t, "news")
	submitIn(t, b, sampledCall, "https://example.com/a")
	for _, line := range b.logs.FilterMessage("finished call").All() {
		if fields := line.ContextMap(); fields["grpc.method"] == "SubmitTasks" && fields["trace_id"] == callersTrace && fields["span_id"] != nil {
			return
		}
	}
	t.Error("no line of SubmitTasks has the trace's id")
}
