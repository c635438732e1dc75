package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/peers"
	"github.com/waggle-crawl/waggle/server/internal/relay"
	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// pass passes the call on.
func (p *passing) pass(r *route) (any, outcome, error) {
	ctx := p.whole
	if p.isFetch() { // it may take long
		if p.chain.drains.Err() != nil {
			return p.drained()
		}
		watched, end := p.caller.Watch(p.whole)
		defer end()
		drained, cancel := context.WithCancelCause(watched)
		defer cancel(nil)
		stop := context.AfterFunc(p.chain.drains, func() { cancel(wire.ErrDraining) })
		defer stop()
		ctx = drained
	}
	var moved <-chan struct{} // nil: what the former owner still answers counts
	if repeats(p.method) {
		moved = r.changed
	}
	call := p.chain.callOf(p.whole, p.caller, p.caller.Grants(), p.method)
	if call.Request = p.request; call.Request == nil { // it came as a part of a message
		data, err := proto.Marshal(p.e.message.(proto.Message)) //nolint:forcetypeassert // as all requests of gRPC are
		if err != nil {
			return nil, answered, err
		}
		call.Request = data
	}
	answer, undo, err := r.link.Call(ctx, classOf(p.method), call, moved)
	p.chain.metrics.passedOn(classOf(p.method), err)
	refused, isRefused := errors.AsType[*auth.Refused](err)
	switch {
	case isRefused:
		return nil, answered, refused
	case errors.Is(err, wire.ErrDraining):
		return p.drained()
	case err != nil && p.whole.Err() != nil:
		return nil, answered, context.Cause(p.whole)
	case errors.Is(err, relay.ErrTooMany):
		return nil, answered, tooMany(err.Error(), relay.MaxCalls, p.method)
	case errors.Is(err, relay.ErrTooLarge):
		return nil, answered, status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, relay.ErrNotSent):
		return nil, notDone, nil
	case err != nil:
		return nil, interrupted, nil
	}
	if became := p.chain.became(answer.GetOutcome()); became != answered {
		return nil, became, nil
	}
	if err := statusIn(answer); err != nil {
		return nil, answered, err
	}
	if undo != nil {
		peers.OnLost(p.whole, undo)
	}
	return &encoded{answer.GetResponse(), p.method}, answered, nil
}

func (c *chain) became(o relaypb.Outcome) outcome {
	switch o {
	case relaypb.Outcome_OUTCOME_NOT_OWNER:
		return notDone
	case relaypb.Outcome_OUTCOME_INTERRUPTED:
		return interrupted
	default:
		return answered
	}
}

// statusIn is the error of an answer, as the owner made it.
func statusIn(answer *relaypb.Answer) error {
	if len(answer.GetStatus()) == 0 {
		return nil
	}
	st := new(spb.Status)
	if err := proto.Unmarshal(answer.GetStatus(), st); err != nil {
		return err
	}
	return status.FromProto(st).Err()
}

// drained answers a fetch of a dispatcher that drains, as its own would. Reports that it carries are for another one.
func (p *passing) drained() (any, outcome, error) {
	if req := p.e.message.(*pb.FetchTaskRequest); len(req.GetReports()) > 0 { //nolint:forcetypeassert // of the method
		return nil, answered, wire.ErrDraining
	}
	return &pb.FetchTaskResponse{
		EmptyReason: pb.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING, RetryAfter: durationpb.New(rand.N(time.Second)),
	}, answered, nil
}

// callOf is a call as it is passed on.
func (c *chain) callOf(ctx context.Context, caller *auth.Caller, grants []*auth.Grant, method string) *relaypb.Call {
	call := &relaypb.Call{Method: method, Epoch: c.owners.seen.Load(), Traceparent: traceOf(ctx), Caller: &relaypb.Caller{Client: clientOf(ctx)}}
	if deadline, ok := ctx.Deadline(); ok {
		call.Timeout = durationpb.New(time.Until(deadline))
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		call.Caller.Network, call.Caller.Address = p.Addr.Network(), p.Addr.String()
	}
	if caller != nil {
		call.Caller.Identified, call.Caller.Identity = true, caller.Identity
		for _, g := range grants {
			call.Caller.Grants = append(call.Caller.Grants, &relaypb.Grant{Role: string(g.Role), Sources: g.Sources, Collectors: g.Collectors, Pools: g.Pools})
		}
	}
	return call
}

// classOf is what a call shares a stream between dispatchers with.
func classOf(method string) relay.Class {
	switch method {
	case pb.DispatchService_Heartbeat_FullMethodName, pb.DispatchService_RenewLease_FullMethodName:
		return relay.Keep
	case pb.DispatchService_ReportTask_FullMethodName:
		return relay.Settle
	case pb.DispatchService_FetchTask_FullMethodName:
		return relay.Fetch
	default:
		return relay.Rest
	}
}

// encoded is an answer as the owner has encoded it.
type encoded struct {
	data   []byte
	method string
}

// message decodes it, for encodings other than that of protobuf.
func (a *encoded) message() (proto.Message, error) {
	service, method, _ := strings.Cut(strings.TrimPrefix(a.method, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, err
	}
	out := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method)).Output() //nolint:forcetypeassert // it is served
	kind, err := protoregistry.GlobalTypes.FindMessageByName(out.FullName())
	if err != nil {
		return nil, err
	}
	m := kind.New().Interface()
	return m, proto.Unmarshal(a.data, m)
}
