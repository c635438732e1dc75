package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// callMetrics count calls and their messages, under the names and labels that go-grpc-prometheus has made common. To find five
// metrics by their labels in each call would be a fifteenth of what a small call costs: those of a method are found once.
type callMetrics struct {
	started, handled, received, sent *prometheus.CounterVec
	took                             *prometheus.HistogramVec

	methods map[string]*methodMetrics // by full name; complete before the first call
}

// methodMetrics are those of one method.
type methodMetrics struct {
	started, received, sent prometheus.Counter
	handled                 [codes.Unauthenticated + 1]prometheus.Counter // by code
	took                    prometheus.Observer
}

func newCallMetrics() *callMetrics {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append(labels[:len(labels):len(labels)], more...))
	}
	return &callMetrics{
		started:  counter("grpc_server_started_total", "Total number of RPCs started on the server."),
		handled:  counter("grpc_server_handled_total", "Total number of RPCs completed on the server, regardless of success or failure.", "grpc_code"),
		received: counter("grpc_server_msg_received_total", "Total number of RPC stream messages received on the server."),
		sent:     counter("grpc_server_msg_sent_total", "Total number of gRPC stream messages sent by the server."),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "grpc_server_handling_seconds",
			Help:    "Histogram of response latency (seconds) of gRPC that had been application-level handled by the server.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 31},
		}, labels),
		methods: make(map[string]*methodMetrics),
	}
}

// add makes the metrics of all methods of a service, with 0.
func (m *callMetrics) add(desc *grpc.ServiceDesc) {
	add := func(kind, method string) {
		of := &methodMetrics{
			started: m.started.WithLabelValues(kind, desc.ServiceName, method), took: m.took.WithLabelValues(kind, desc.ServiceName, method),
			received: m.received.WithLabelValues(kind, desc.ServiceName, method), sent: m.sent.WithLabelValues(kind, desc.ServiceName, method),
		}
		for code := range of.handled {
			of.handled[code] = m.handled.WithLabelValues(kind, desc.ServiceName, method, codes.Code(code).String()) //nolint:gosec // small
		}
		m.methods["/"+desc.ServiceName+"/"+method] = of
	}
	for _, method := range desc.Methods {
		add("unary", method.MethodName)
	}
	for _, stream := range desc.Streams {
		switch {
		case stream.ClientStreams && stream.ServerStreams:
			add("bidi_stream", stream.StreamName)
		case stream.ClientStreams:
			add("client_stream", stream.StreamName)
		default:
			add("server_stream", stream.StreamName)
		}
	}
}

// begin counts a call that begins.
func (m *methodMetrics) begin() time.Time {
	m.started.Inc()
	return time.Now()
}

// end counts a call that ends with the status that its caller sees.
func (m *methodMetrics) end(began time.Time, err error) {
	m.took.Observe(time.Since(began).Seconds())
	m.handled[min(status.Code(err), codes.Unauthenticated)].Inc()
}

// countedStream is a stream whose messages are counted.
type countedStream struct {
	grpc.ServerStream

	of *methodMetrics
}

// SendMsg sends a message.
func (s *countedStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.of.sent.Inc()
	}
	return err
}

// RecvMsg receives a message.
func (s *countedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.of.received.Inc()
	}
	return err
}
