package server

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/peers"
	"github.com/waggle-crawl/waggle/server/internal/relay"
	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// served is what a method is served by.
type served struct {
	service any
	unary   grpc.MethodHandler // nil: it is a stream
	stream  grpc.StreamHandler
	info    *grpc.StreamServerInfo
}

// takes lets the calls of a service be passed on.
func (c *chain) takes(desc *grpc.ServiceDesc, service any) {
	if !strings.HasPrefix(desc.ServiceName, "waggle.v1.") {
		return // health and reflection are each dispatcher's own
	}
	for _, m := range desc.Methods {
		c.methods["/"+desc.ServiceName+"/"+m.MethodName] = &served{service: service, unary: m.Handler}
	}
	for _, s := range desc.Streams {
		info := streamInfo(desc, &s)
		c.methods[info.FullMethod] = &served{service: service, stream: s.Handler, info: info}
	}
}

var _ relay.Receiver = (*chain)(nil)

// Secret implements [relay.Receiver].
func (c *chain) Secret() []byte {
	c.owners.mu.Lock()
	defer c.owners.mu.Unlock()
	return c.owners.secret
}

// IsStream implements [relay.Receiver].
func (c *chain) IsStream(method string) bool {
	of := c.methods[method]
	return of != nil && of.stream != nil || method == relay.StandByMethod
}

// termFor is the term in which a call that was passed on is served; nil: this dispatcher does not own the store, stops, or does not
// own the store any more: the sender has seen a higher epoch.
func (c *chain) termFor(call *relaypb.Call) *term {
	select {
	case <-c.closing:
		return nil // a drain that took more would last as long as they come
	default:
	}
	t := c.owners.now.Load().local
	if t != nil && call.GetEpoch() > t.epoch {
		if c.higherEpoch == nil || !c.higherEpoch(call.GetEpoch()) {
			return nil
		}
	}
	return t
}

// Unary serves a call that another dispatcher has passed on, from 4 on; see chain. It implements [relay.Receiver].
func (c *chain) Unary(ctx context.Context, call *relaypb.Call) (*relaypb.Answer, func()) {
	of, t := c.methods[call.GetMethod()], c.termFor(call)
	switch {
	case of == nil:
		return answerOf(status.Errorf(codes.Unimplemented, "the owner of the store is of a version without %s", call.GetMethod())), nil
	case t == nil:
		return &relaypb.Answer{Outcome: relaypb.Outcome_OUTCOME_NOT_OWNER}, nil
	}
	undo := new(peers.Undo)
	caller, ctx := c.passedBy(undo.With(ctx), call)
	ctx, end := c.tracer.passed(ctx, call.GetMethod(), call.GetTraceparent())
	e := c.newEnvelope(ctx, call.GetMethod())
	defer e.end()
	decode := func(req any) error { //nolint:unparam // as gRPC has it
		e.message = req
		e.put(call.GetRequest(), nil)
		e.decode(c.maxBytes)
		return nil
	}
	resp, moved, err := t.during(ctx, call.GetMethod(), func(ctx context.Context) (any, error) {
		return of.unary(of.service, ctx, decode, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			return c.unary(ctx, req, info, c.here(caller, e, call.GetMethod(), handler))
		})
	})
	end(err)
	switch {
	case isDrained(resp, err): // it can come again
		return &relaypb.Answer{Outcome: relaypb.Outcome_OUTCOME_NOT_OWNER}, nil
	case moved:
		return &relaypb.Answer{Outcome: relaypb.Outcome_OUTCOME_INTERRUPTED}, nil
	}
	if err != nil {
		return answerOf(err), nil
	}
	data, err := proto.Marshal(resp.(proto.Message)) //nolint:forcetypeassert // as all answers of gRPC are
	if err != nil {
		return answerOf(statusOf(ctx, err)), nil
	}
	return &relaypb.Answer{Response: data}, undo.Lost
}

// isDrained reports whether a call is answered so because this dispatcher drains. Callers of other dispatchers wait for the next owner.
func isDrained(resp any, err error) bool {
	if err != nil {
		return isDrainStatus(err)
	}
	return isMove(resp, nil)
}

func isDrainStatus(err error) bool {
	if err == nil {
		return false
	}
	drains, _ := wire.Status(nil, wire.ErrDraining, "")
	st, _ := wire.Status(nil, err, "")
	return st.Code() == codes.Unavailable && st.Message() == drains.Message()
}

func answerOf(err error) *relaypb.Answer {
	data, failed := proto.Marshal(status.Convert(err).Proto())
	if failed != nil { // a text that is not UTF-8
		data, _ = proto.Marshal(status.New(status.Code(err), "the error has no readable text").Proto())
	}
	return &relaypb.Answer{Status: data}
}

// passedBy is who has made a call that was passed on, and the context that the call has.
func (c *chain) passedBy(ctx context.Context, call *relaypb.Call) (*auth.Caller, context.Context) {
	by := call.GetCaller()
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: addressIn(by)})
	sent := metadata.MD{}
	if by.GetClient() != "" {
		sent.Set(clientHeader, by.GetClient())
	}
	ctx = metadata.NewIncomingContext(ctx, sent)
	if !by.GetIdentified() {
		return nil, ctx
	}
	grants := make([]*auth.Grant, len(by.GetGrants()))
	for i, g := range by.GetGrants() {
		grants[i] = &auth.Grant{Role: auth.Role(g.GetRole()), Sources: g.GetSources(), Collectors: g.GetCollectors(), Pools: g.GetPools()}
	}
	caller := c.guard.Vouched(call.GetMethod(), by.GetIdentity(), grants)
	return caller, withCaller(ctx, caller)
}

// passedAddress is an address as it was passed on.
type passedAddress struct{ network, address string }

// Network is as it was passed on.
func (a passedAddress) Network() string { return a.network }

// String is as it was passed on.
func (a passedAddress) String() string { return a.address }

func addressIn(by *relaypb.Caller) net.Addr {
	if parsed, err := netip.ParseAddrPort(by.GetAddress()); err == nil && by.GetNetwork() == "tcp" {
		return net.TCPAddrFromAddrPort(parsed)
	}
	return passedAddress{by.GetNetwork(), by.GetAddress()}
}

// Stream serves a stream that another dispatcher has passed on. It implements [relay.Receiver].
func (c *chain) Stream(call *relaypb.Call, stream *relay.Stream) *relaypb.Answer {
	if call.GetMethod() == relay.StandByMethod {
		return c.feed(stream)
	}
	of, t := c.methods[call.GetMethod()], c.termFor(call)
	if t == nil {
		return &relaypb.Answer{Outcome: relaypb.Outcome_OUTCOME_NOT_OWNER}
	}
	caller, ctx := c.passedBy(stream.Context(), call)
	_, moved, err := t.during(ctx, call.GetMethod(), func(ctx context.Context) (any, error) {
		return nil, c.logged(ctx, call.GetMethod(), time.Now(), func(ctx context.Context) error {
			if err := c.limits.Stream(call.GetMethod()); err != nil {
				return err
			}
			return c.recoverStream(of.service, &decodedStream{&passedStream{stream}, ctx, caller, c, peers.Beats}, of.info, of.stream)
		})
	})
	if moved || isDrainStatus(err) {
		return &relaypb.Answer{Outcome: relaypb.Outcome_OUTCOME_INTERRUPTED}
	}
	if err != nil {
		return answerOf(err)
	}
	return new(relaypb.Answer)
}

// passedStream is a stream that was passed on, as handlers have it.
type passedStream struct{ *relay.Stream }

// RecvMsg receives into an envelope.
func (s *passedStream) RecvMsg(m any) error {
	return s.Stream.RecvMsg(func(data []byte) {
		m.(*envelope).put(data, nil) //nolint:forcetypeassert // see decodedStream
	})
}

// SendMsg sends a message, but none that asks to reconnect: the caller stays with its dispatcher.
func (s *passedStream) SendMsg(m any) error {
	if beat, ok := m.(*pb.HeartbeatResponse); ok && beat.GetReconnect() {
		return nil
	}
	data, err := proto.Marshal(m.(proto.Message)) //nolint:forcetypeassert // as all messages of gRPC are
	if err != nil {
		return err
	}
	return s.Stream.SendMsg(data)
}
