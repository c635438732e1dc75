package server

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/peers"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// callerKey is the key of the caller of a context.
type callerKey struct{}

// withCaller is ctx with who makes the call.
func withCaller(ctx context.Context, caller *auth.Caller) context.Context {
	if caller == nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, caller)
}

// callerOf is the caller of ctx; nil without authentication.
func callerOf(ctx context.Context) *auth.Caller {
	caller, _ := ctx.Value(callerKey{}).(*auth.Caller)
	return caller
}

// identityOf is the identity of the caller of ctx; empty without authentication.
func identityOf(ctx context.Context) string {
	if caller := callerOf(ctx); caller != nil {
		return caller.Identity
	}
	return ""
}

// who made a change: the identity with what the caller writes beside it, or without authentication whom the caller names,
// or else its address.
func who(ctx context.Context, by string) string {
	identity := identityOf(ctx)
	switch {
	case identity != "" && by != "":
		by = identity + " (" + by + ")"
	case identity != "":
		by = identity
	case by == "":
		by = addressOf(ctx)
	}
	return strings.ToValidUTF8(by[:min(len(by), bounds.MaxIDLength)], "")
}

// addressOf is where a call comes from.
func addressOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "unknown"
	}
	if p.Addr.Network() == "unix" {
		return "unix socket"
	}
	address := p.Addr.String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host // the port is another one after a reconnect, and a call that is repeated then must name the same
	}
	return address
}

// clientHeader is the metadata by which a client library names itself, as name/version.
const clientHeader = "waggle-client"

// clientOf is the client that made the call of ctx, as it names itself; empty if it does not.
func clientOf(ctx context.Context) string {
	return strings.Join(metadata.ValueFromIncomingContext(ctx, clientHeader), ", ")
}

// admit lets a caller make a call, or not; see [auth.Guard.Admit]. Its client must not be too old.
func (c *chain) admit(ctx context.Context, method string) (caller *auth.Caller, err error) {
	return caller, recovered(func() (err error) {
		if caller, err = c.guard.Admit(ctx, method); err == nil {
			err = checkClient(clientOf(ctx))
		}
		return err
	})
}

// recovered makes an error of a panic, where none of gRPC's interceptors does.
func recovered(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return f()
}

// within is a handler for requests that are within the caller's grants, of collectors that may call. A parked fetch ends
// when the caller is not allowed it any more.
func (c *chain) within(caller *auth.Caller, method string, handler grpc.UnaryHandler) grpc.UnaryHandler {
	if caller == nil && !strings.HasPrefix(method, collectorMethods) {
		return handler
	}
	return func(ctx context.Context, req any) (any, error) {
		if err := c.meet(ctx, caller, req); err != nil {
			return nil, err
		}
		if caller == nil {
			return handler(ctx, req)
		}
		if err := caller.Within(ctx, req, c.backend); err != nil {
			return nil, err
		}
		if method != pb.DispatchService_FetchTask_FullMethodName {
			resp, err := handler(ctx, req)
			if err != nil {
				return nil, err
			}
			if shown, ok := resp.(*pb.GetTaskResponse); ok {
				if err := caller.Shows(shown.GetTask().GetSourceId()); err != nil {
					return nil, err
				}
			}
			return resp, caller.Redact(resp.(proto.Message)) //nolint:forcetypeassert // as all answers of gRPC are
		}
		ctx, end := caller.Watch(ctx)
		defer end()
		resp, err := handler(ctx, req)
		return resp, refusedMeanwhile(ctx, err)
	}
}

// collectorMethods begins the names of the methods that collectors call.
const collectorMethods = "/waggle.v1.DispatchService/"

// meet lets the request of a collector in, unless its identity, or its address without identities, has brought too many
// collector ids that were granted nothing.
func (c *chain) meet(ctx context.Context, caller *auth.Caller, req any) error {
	id := auth.CollectorOf(req)
	if id == "" {
		return nil
	}
	if err := caller.Covers(req); err != nil {
		return err
	}
	if c.backend.d().Meet(ctx, newcomer(req, countedBy(ctx, caller), id), c.newcomers) {
		return nil
	}
	c.peers.Refused.WithLabelValues(peers.LimitNewcomers).Inc()
	return &wire.Refusal{
		Code: codes.ResourceExhausted, Reason: pb.ErrorReason_ERROR_REASON_RATE_LIMITED, Retry: newcomerRetry,
		Text:  "more collector ids of this caller than are allowed were granted nothing yet",
		Pairs: []string{"limit", strconv.Itoa(c.newcomers), "collector_id", id},
	}
}

// countedBy is what the new collector ids of a call are counted by.
func countedBy(ctx context.Context, caller *auth.Caller) string {
	if caller != nil {
		return caller.Identity
	}
	if key := peers.Key(ctx); key != "" {
		return key
	}
	return addressOf(ctx)
}

// newcomer is the collector of a call by a peer, with some of the leases that the call names.
func newcomer(req any, peer, id string) engine.Newcomer {
	n := engine.Newcomer{Peer: peer, Collector: id}
	add := func(lease interface {
		GetTaskId() string
		GetLeaseToken() string
	},
	) {
		if len(n.Leases) < leasesShown {
			n.Leases = append(n.Leases, engine.LeaseBeat{ID: dispatch.TaskID(lease.GetTaskId()), Token: lease.GetLeaseToken()})
		}
	}
	switch r := req.(type) {
	case interface {
		GetCollector() *pb.CollectorInfo
		GetLeases() []*pb.LeaseBeat
	}:
		n.Size = proto.Size(r.GetCollector())
		for _, lease := range r.GetLeases() {
			add(lease)
		}
	case interface{ GetReports() []*pb.TaskReport }:
		for _, report := range r.GetReports() {
			add(report)
		}
	case *pb.SubmitDiscoveredRequest:
		add(r)
	}
	return n
}

// leasesShown are how many of the leases of a call show whether its collector is a newcomer.
const leasesShown = 3

// newcomerRetry is how long a collector that was refused as a newcomer is asked to wait: until others were granted tasks, or
// are forgotten.
const newcomerRetry = 5 * time.Second

// refusedMeanwhile is the error of a call that has failed because its caller is not allowed it any more.
func refusedMeanwhile(ctx context.Context, err error) error {
	if refused, ok := errors.AsType[*auth.Refused](context.Cause(ctx)); ok && err != nil {
		return refused
	}
	return err
}

// refusal is a refused call as its caller gets it.
func refusal(r *auth.Refused) error {
	refused := &wire.Refusal{
		Code: codes.PermissionDenied, Reason: pb.ErrorReason_ERROR_REASON_PERMISSION_DENIED, Text: r.Error(),
		Pairs: []string{"identity", r.Identity, "method", r.Method},
	}
	switch {
	case r.Identity == "":
		refused.Code, refused.Reason, refused.Pairs = codes.Unauthenticated, pb.ErrorReason_ERROR_REASON_UNAUTHENTICATED, nil
	case r.Collector != "":
		refused.Reason, refused.Pairs = pb.ErrorReason_ERROR_REASON_COLLECTOR_BOUND, []string{"collector_id", r.Collector, "identity", r.Identity}
	}
	return refused
}

// SourcesOf implements [auth.Backend].
func (b *backend) SourcesOf(ctx context.Context, tasks []string) ([]string, error) {
	return b.d().SourcesOf(ctx, tasks)
}

// BindCollector implements [auth.Backend].
func (b *backend) BindCollector(ctx context.Context, collector, identity string) error {
	return b.d().BindCollector(ctx, collector, identity)
}
