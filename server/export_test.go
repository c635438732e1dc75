package server

import (
	"context"
	"crypto/tls"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/dispatch/operate"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// ErrDraining is errDraining.
var ErrDraining = errDraining

// Methods are the full names of all methods that the server serves.
func (s *Server) Methods() []string {
	var out []string
	for service, info := range s.grpc.GetServiceInfo() {
		for _, method := range info.Methods {
			out = append(out, "/"+service+"/"+method.Name)
		}
	}
	return out
}

// Policies are the methods that have a policy.
func Policies() map[string]bool {
	out := make(map[string]bool)
	for method := range methodPolicies() {
		out[method] = true
	}
	return out
}

// Register serves one more service.
func (s *Server) Register(desc *grpc.ServiceDesc, service any) { s.grpc.RegisterService(desc, service) }

// StatusOf is what callers are told of err.
func StatusOf(ctx context.Context, err error) *status.Status {
	st, _ := statusOf(ctx, err, "an-id")
	return st
}

// HoldCalls counts calls at work as if n more were.
func (s *Server) HoldCalls(n int64) { s.limits.working.Add(n) }

// NewKeyPair is the certificate of a server that is serving from these files.
func NewKeyPair(certFile, keyFile string, log *zap.Logger) (func() (*tls.Certificate, error), error) {
	k, err := newKeyPair(certFile, keyFile, log)
	if err != nil {
		return nil, err
	}
	return func() (*tls.Certificate, error) { return k.certificate(nil) }, nil
}

// Services are the handlers of collectors and producers, without gRPC, for benchmarks.
func Services(o *operate.Operator) (pb.DispatchServiceServer, pb.TaskServiceServer) {
	cfg := Config{}
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	b := &backend{o.Dispatcher(), o}
	return &dispatchService{backend: b, limits: newLimits(&cfg), metrics: NewMetrics()}, &taskService{backend: b}
}
