//go:build e2e

package e2e_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// receiver takes spans by OTLP over gRPC.
type receiver struct {
	collectorpb.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []receivedSpan
}

// receivedSpan is a span with the service that sent it.
type receivedSpan struct {
	*tracepb.Span

	service string
}

// Export implements the service of OTLP.
func (r *receiver) Export(_ context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range req.GetResourceSpans() {
		service := attributeOf(resource.GetResource().GetAttributes(), "service.name")
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				r.spans = append(r.spans, receivedSpan{span, service})
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// find finds a span by its service and name; nil: it has not come.
func (r *receiver) find(service, name string) *tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.service == service && s.GetName() == name {
			return s.Span
		}
	}
	return nil
}

func attributeOf(attributes []*commonpb.KeyValue, key string) string {
	for _, a := range attributes {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// receive starts a receiver, and returns its URL.
func receive(t *testing.T) (r *receiver, url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r = new(receiver)
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, r)
	go func() {
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(server.Stop)
	return r, "http://" + listener.Addr().String()
}

// tracing is the environment of a service whose spans go to a receiver; more settings win.
func tracing(url, service string, more ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "WAGGLE_") && !strings.HasPrefix(kv, "OTEL_") {
			env = append(env, kv)
		}
	}
	env = append(env, "OTEL_EXPORTER_OTLP_ENDPOINT="+url, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_SERVICE_NAME="+service, "OTEL_BSP_SCHEDULE_DELAY=100")
	return append(env, more...)
}

// launchTraced starts the waggle command with an environment.
func launchTraced(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(programs.path("waggle"), args...)
	cmd.Env = env
	return launchCommand(t, name, cmd)
}

// TestTraces has a task submitted to a dispatcher that passes calls on, granted by the owner, worked on by a collector and reported:
// an OTLP receiver gets one trace of these four processes. Nothing comes where the variables turn traces off.
func TestTraces(t *testing.T) {
	t.Parallel()
	spans, url := receive(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a page") }))
	t.Cleanup(page.Close)
	redis, prefix := shared.Server(t)
	dispatch := func(name string) *dispatcher {
		return awaitServing(t, launchTraced(t, name, tracing(url, name), "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
			"--store", redis.URL(), "--prefix", prefix, "--log-format", "json", "--log-calls"))
	}
	owner := dispatch("owner")
	other := dispatch("other")
	c := dial(t, other.addr)
	c.createSource(t, &pb.SourceSpec{Id: "news"})
	collect := launchTraced(t, "collector", tracing(url, "collector"), "collect", "--id", "c1", "--server", other.addr,
		"--allow-private", "--ignore-robots", "--log-format", "json")
	submit := launchTraced(t, "submitter", tracing(url, "submitter"), "task", "submit", "--server", other.addr, "--source", "news", page.URL+"/a")
	if code := submit.exit(startLimit); code != 0 {
		t.Fatalf("submit ended with %d", code)
	}
	const submitted = "waggle.v1.TaskService/SubmitTasks"
	chain := []struct{ service, name string }{ // each the child of the one before
		{"submitter", submitted}, {"other", submitted}, {"owner", submitted}, {"owner", "grant default"}, {"collector", "process default"}, {"owner", "report"},
	}
	until(t, startLimit, "the report's span has come", func() bool {
		return spans.find("owner", "report") != nil && spans.find("collector", "process default") != nil
	})
	var parent *tracepb.Span
	for _, link := range chain {
		until(t, startLimit, link.name+" of "+link.service+" has come", func() bool { return spans.find(link.service, link.name) != nil })
		span := spans.find(link.service, link.name)
		if parent != nil && (hex.EncodeToString(span.GetTraceId()) != hex.EncodeToString(parent.GetTraceId()) ||
			hex.EncodeToString(span.GetParentSpanId()) != hex.EncodeToString(parent.GetSpanId())) {
			t.Errorf("%s of %s is no child of %s", link.name, link.service, parent.GetName())
		}
		parent = span
	}
	owner.line(hex.EncodeToString(parent.GetTraceId()), startLimit)
	collect.stop(startLimit)
	other.stop(startLimit)
	owner.stop(startLimit)
	spans.mu.Lock()
	for _, s := range spans.spans {
		if strings.Contains(s.GetName(), "FetchTask") || strings.Contains(s.GetName(), "Heartbeat") || strings.HasSuffix(s.GetName(), "/Work") || strings.Contains(s.GetName(), "RenewLease") {
			t.Errorf("%s has sent a span of %s", s.service, s.GetName())
		}
	}
	spans.spans = nil
	spans.mu.Unlock()

	off := awaitServing(t, launchTraced(t, "off", tracing(url, "off", "OTEL_TRACES_EXPORTER=none"), "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--store", "memory", "--log-format", "json"))
	c = dial(t, off.addr)
	c.createSource(t, &pb.SourceSpec{Id: "news"})
	c.submit(t, &pb.SubmitItem{SourceId: "news", Url: "https://example.com/a"})
	c.report(t, "c1", "s1", c.fetchOne(t, "c1", "s1", time.Second).GetLease())
	off.stop(startLimit)
	if spans.mu.Lock(); len(spans.spans) > 0 {
		t.Errorf("%d spans have come although they are off", len(spans.spans))
	}
	spans.mu.Unlock()
}

// A setting that nothing can be done with is wrong usage, before anything starts.
func TestTraces_Usage(t *testing.T) {
	t.Parallel()
	p := launchTraced(t, "wrong", tracing("http://127.0.0.1:1", "wrong", "OTEL_TRACES_EXPORTER=zipkin"), "version")
	if code := p.exit(startLimit); code != 2 {
		t.Errorf("ended with %d", code)
	}
	p.line("OTEL_TRACES_EXPORTER=zipkin: want otlp or none", startLimit)
}
