package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/admit"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// Methods are the full names of all methods of the API that the server serves. What dispatchers ask each other is none of them.
func (s *Server) Methods() []string {
	var out []string
	for service, info := range (inChain{s.grpc, s.chain, nil}).GetServiceInfo() {
		for _, method := range info.Methods {
			out = append(out, "/"+service+"/"+method.Name)
		}
	}
	return out
}

// ServiceNames are the names of all services that the server serves.
func (s *Server) ServiceNames() []string {
	return slices.Sorted(maps.Keys(inChain{s.grpc, s.chain, nil}.GetServiceInfo()))
}

// Policies are the methods that have a policy.
func Policies() map[string]bool {
	out := make(map[string]bool)
	for _, method := range admit.Methods() {
		out[method] = true
	}
	return out
}

// Register serves one more service.
func (s *Server) Register(desc *grpc.ServiceDesc, service any) {
	inChain{s.grpc, s.chain, nil}.RegisterService(desc, service)
}

// StatusOf is what callers are told of err.
func StatusOf(ctx context.Context, err error) *status.Status {
	st, _ := wire.Status(ctx.Err(), err, "an-id")
	return st
}

// HoldCalls counts n more calls as at work, until release.
func (s *Server) HoldCalls(n int) (release func()) {
	var leaves []func()
	for range n {
		leave, err := s.limits.Call(pb.DispatchService_ReportTask_FullMethodName)
		if err != nil {
			panic(err)
		}
		leaves = append(leaves, leave)
	}
	return func() {
		for _, leave := range leaves {
			leave()
		}
	}
}

// Services are the handlers of collectors and producers, without gRPC, for benchmarks.
func Services(o *operate.Operator) (pb.DispatchServiceServer, pb.TaskServiceServer) {
	cfg := Config{}
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	b := new(backend)
	b.now.Store(o)
	limits := cfg.limits()
	limits.Open()
	return &dispatchService{backend: b, limits: limits, metrics: NewMetrics()}, &taskService{backend: b}
}

// OldestClient is a line of the table of clients that are too old.
type OldestClient = oldestClient

// NewOldestClient makes one.
func NewOldestClient(name, dispatcher, oldest string) OldestClient {
	return oldestClient{name: name, dispatcher: dispatcher, oldest: oldest}
}

// OldestClients are those that are in force.
func OldestClients() []OldestClient { return oldestClients }

// ClientTable is which clients are served by which dispatchers, as proto/README.md has it.
func ClientTable(rules []OldestClient) string {
	var names, dispatchers []string
	for _, rule := range rules {
		if !slices.Contains(names, rule.name) {
			names = append(names, rule.name)
		}
		if !slices.Contains(dispatchers, rule.dispatcher) {
			dispatchers = append(dispatchers, rule.dispatcher)
		}
	}
	slices.SortFunc(dispatchers, compareVersions)
	var b strings.Builder
	b.WriteString("| client |")
	for _, dispatcher := range dispatchers {
		fmt.Fprintf(&b, " dispatcher %s and later |", dispatcher)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(dispatchers)) + "\n")
	for _, name := range names {
		fmt.Fprintf(&b, "| `%s` |", name)
		served := "all"
		for _, dispatcher := range dispatchers {
			for _, rule := range rules {
				if rule.name == name && rule.dispatcher == dispatcher {
					served = rule.oldest + " and later"
				}
			}
			fmt.Fprintf(&b, " %s |", served)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// AdvertiseForTest changes the address under which others are to reach the server.
func (s *Server) AdvertiseForTest(address string) { s.cfg.Advertise = address }

// PoolLabelsForTest are the labels of pools, of which there may be many.
func PoolLabelsForTest(pools []dispatch.Pool) (labels []string) {
	for _, p := range labeledPools(pools) {
		labels = append(labels, p.Name)
	}
	return labels
}
