package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/admit"
	"github.com/waggle-crawl/waggle/server/internal/peers"
	"github.com/waggle-crawl/waggle/server/internal/relay"
	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// passing is a unary call of a store that several dispatchers share. It goes to the owner, which may be this dispatcher, and moves
// with the ownership. What the owner answers is the answer, with its status: it is neither decoded nor made anew.
type passing struct {
	chain   *chain
	whole   context.Context //nolint:containedctx // of the call, with the deadline of its caller
	caller  *auth.Caller
	method  string
	e       *envelope
	here    func() grpc.UnaryHandler // serves it here, once it is decoded
	request []byte                   // as it is passed on
}

// outcome is what became of one try of a call.
type outcome int

const (
	answered    outcome = iota
	notDone             // nothing of it was done
	interrupted         // it may have been done: ownership moved meanwhile
)

// owned is a handler that has the owner make a call. While ownership moves it waits. A call that may have been done is repeated
// once if that is harmless (P7).
func (c *chain) owned(whole context.Context, caller *auth.Caller, method string, e *envelope, here func() grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, _ any) (any, error) {
		p := &passing{chain: c, whole: whole, caller: caller, method: method, e: e, here: here, request: e.raw}
		if p.isFetch() {
			if err := p.prepareFetch(); err != nil {
				return nil, err
			}
		}
		return p.run(ctx)
	}
}

func (p *passing) isFetch() bool { return p.method == pb.DispatchService_FetchTask_FullMethodName }

// run tries until the call is answered.
func (p *passing) run(ctx context.Context) (any, error) {
	repeated, until := false, time.Now().Add(moveTimeout)
	for tries := 0; ; tries++ {
		r, err := p.chain.owners.await(ctx, until)
		if err != nil {
			return nil, err
		}
		var resp any
		var became outcome
		if r.local != nil {
			resp, became, err = p.serve(ctx, r)
		} else {
			resp, became, err = p.pass(r) //nolint:contextcheck // it goes by the deadline of the caller, as the owner does
		}
		switch {
		case became == answered:
			return resp, err
		case became == interrupted && (repeated || !repeats(p.method)):
			return nil, errors.Join(err, errInterrupted)
		case became == interrupted:
			repeated, until = true, time.Now().Add(moveTimeout)
		}
		if err := p.chain.owners.again(ctx, r, tries, until); err != nil {
			return nil, err
		}
	}
}

// errInterrupted is of a call that is not repeated.
var errInterrupted error = &wire.Refusal{
	Code: codes.Unavailable, Reason: pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, Retry: time.Second,
	Text: "the owner of the store changed while the call ran: it may have been done, or not",
}

// serve makes the call here.
func (p *passing) serve(ctx context.Context, r *route) (any, outcome, error) {
	if err := p.e.unpack(); err != nil {
		return nil, answered, err
	}
	resp, moved, err := r.local.during(ctx, p.method, func(ctx context.Context) (any, error) { return p.here()(ctx, p.e.message) })
	if moved {
		return nil, interrupted, nil
	}
	return resp, answered, err
}

// during makes a call while the term lasts: with the term it ends, if it may be repeated. It was interrupted if it has failed by that.
func (t *term) during(
	ctx context.Context, method string, call func(context.Context) (any, error),
) (resp any, interrupted bool, err error) {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if repeats(method) {
		stop := context.AfterFunc(t.over, func() { cancel(errInterrupted) }) //nolint:contextcheck // the end of the term
		defer stop()
	}
	resp, err = call(within)
	return resp, t.over.Err() != nil && ctx.Err() == nil && isMove(resp, err), err
}

// isMove reports whether an answer of a dispatcher that is not the owner any more is due to that.
func isMove(resp any, err error) bool {
	if fetched, ok := resp.(*pb.FetchTaskResponse); ok && err == nil {
		return fetched.GetEmptyReason() == pb.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING
	}
	if err == nil {
		return false
	}
	st, _ := wire.Status(nil, err, "")
	switch st.Code() {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	default:
		return false
	}
}

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
	call.Request = p.request
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

// clientTokenField is the number of FetchTaskRequest.client_token.
const clientTokenField = 3

// prepareFetch gives a fetch a client token if it has none, so that it can be repeated.
func (p *passing) prepareFetch() error {
	if err := p.e.unpack(); err != nil {
		return err
	}
	req := p.e.message.(*pb.FetchTaskRequest) //nolint:forcetypeassert // of the method
	if err := p.caller.Covers(req); err != nil {
		return err
	}
	if req.GetClientToken() == "" {
		req.ClientToken = uuid.NewString()
		p.request = protowire.AppendTag(p.request[:len(p.request):len(p.request)], clientTokenField, protowire.BytesType)
		p.request = protowire.AppendString(p.request, req.GetClientToken())
	}
	return nil
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
	call := &relaypb.Call{Method: method, Epoch: c.owners.seen.Load(), Caller: &relaypb.Caller{Client: clientOf(ctx)}}
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

// repeats reports whether a call may be made twice.
func repeats(method string) bool {
	return admit.Keeps(method) || admit.Reads(method) || method == pb.DispatchService_FetchTask_FullMethodName
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
