package server

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
)

// A request that cannot be decoded (a string that is not UTF-8, bytes that are
// no message) is invalid, and its caller's fault. grpc tells it as INTERNAL,
// before any interceptor runs. So requests are received into an envelope, which
// is always decoded, and the error in it is told as what it is: of a call that is
// no stream where its handler would be called, so that all interceptors see it.
// What load or rate refuse is not decoded, and told there, too.

// envelope holds a message and the error of decoding it.
type envelope struct {
	message any
	err     error
	call    *arrival // whose request it is; nil: it is of a stream
}

// arrival is a call that is no stream, from when its request is there.
type arrival struct {
	envelope
	limits *limits
	ctx    context.Context //nolint:containedctx // of the call, as long as that lasts
	method string
	decode func(any) error
	chain  grpc.UnaryServerInterceptor
	leave  func() // what admit has it leave; nil: nothing
}

// receive decodes the request, unless the call is refused.
func (a *arrival) receive(req any) error {
	a.message = req
	return a.decode(&a.envelope)
}

// handle has the interceptors see the call.
func (a *arrival) handle(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if a.err != nil {
		handler = func(context.Context, any) (any, error) { return nil, a.err }
	}
	return a.chain(ctx, req, info, handler)
}

// envelopeCodec is grpc's codec for protobuf, but for envelopes.
type envelopeCodec struct{ encoding.CodecV2 }

func newEnvelopeCodec() envelopeCodec { return envelopeCodec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal decodes into a message, or into the message of an envelope.
func (c envelopeCodec) Unmarshal(data mem.BufferSlice, v any) error {
	e, ok := v.(*envelope)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if a := e.call; a != nil {
		if a.leave, e.err = a.limits.admit(a.ctx, a.method, data.Len()); e.err != nil {
			return nil
		}
	}
	if err := c.CodecV2.Unmarshal(data, e.message); err != nil {
		_, cause, found := strings.Cut(err.Error(), "proto:")
		if !found {
			cause = err.Error()
		}
		// protobuf-go varies the space after its prefix.
		e.err = &dispatch.FieldError{Field: "request", Limit: "does not decode: " + strings.Trim(cause, " \u00a0")}
	}
	return nil
}

// leastPooled is the size from which messages are encoded into memory that is used
// again, which spares the answer to a fetch of one task its half a KiB of garbage.
// grpc's codec does so from 1 KiB on. What its pool has for smaller ones is not given back.
const leastPooled = 257

// Marshal encodes a message.
func (c envelopeCodec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(protobuf.Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := protobuf.Size(message)
	if size < leastPooled {
		return c.CodecV2.Marshal(v)
	}
	pool := mem.DefaultBufferPool()
	data := pool.Get(size)
	if _, err := (protobuf.MarshalOptions{UseCachedSize: true}).MarshalAppend((*data)[:0], message); err != nil {
		pool.Put(data)
		return nil, fmt.Errorf("encode: %w", err)
	}
	return mem.BufferSlice{mem.NewBuffer(data, pool)}, nil
}

// decoded is desc with its unary requests admitted, and received in envelopes.
func (l *limits) decoded(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	out := *desc
	out.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, method := range desc.Methods {
		handler, name := method.Handler, "/"+desc.ServiceName+"/"+method.MethodName
		method.Handler = func(srv any, ctx context.Context, decode func(any) error, chain grpc.UnaryServerInterceptor) (any, error) {
			a := &arrival{limits: l, ctx: ctx, method: name, decode: decode, chain: chain}
			a.call = a
			defer func() {
				if a.leave != nil {
					a.leave()
				}
			}()
			return handler(srv, ctx, a.receive, a.handle)
		}
		out.Methods[i] = method
	}
	return &out
}

// decodedStream receives its messages in envelopes.
type decodedStream struct{ grpc.ServerStream }

// RecvMsg receives one message.
func (s decodedStream) RecvMsg(m any) error {
	e := envelope{message: m}
	if err := s.ServerStream.RecvMsg(&e); err != nil {
		return err
	}
	return e.err
}
