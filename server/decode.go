package server

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/server/auth"
)

// envelope holds a message and the error of decoding it. A request that cannot be decoded (a string that is not UTF-8,
// bytes that are no message) is invalid, and its caller's fault; gRPC would return it as INTERNAL, before any interceptor
// runs. An envelope is always decoded.
type envelope struct {
	message any
	err     error
	// admit lets a request of so many bytes be decoded; nil for messages of streams.
	admit func(bytes int) (leave func(), err error)
	leave func()
}

// envelopeCodec is gRPC's codec for protobuf, but for envelopes.
type envelopeCodec struct{ encoding.CodecV2 }

// Marshal encodes a message, or an answer.
func (c envelopeCodec) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(*answer); ok {
		return a.marshal(c.CodecV2)
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal decodes into a message, or into the message of an envelope.
func (c envelopeCodec) Unmarshal(data mem.BufferSlice, v any) error {
	e, ok := v.(*envelope)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if e.admit != nil {
		if e.leave, e.err = e.admit(data.Len()); e.err != nil {
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

// decoded is desc with its unary requests admitted before they are decoded, and received in envelopes.
func (c *chain) decoded(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	out := *desc
	out.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, method := range desc.Methods {
		handler, name := method.Handler, "/"+desc.ServiceName+"/"+method.MethodName
		method.Handler = func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			caller, refused := c.admit(ctx, name)
			ctx = withCaller(ctx, caller)
			e := &envelope{admit: func(bytes int) (func(), error) {
				if refused != nil {
					return nil, refused
				}
				return c.decode(ctx, name, bytes)
			}}
			defer func() {
				if e.leave != nil {
					e.leave()
				}
			}()
			receive := func(req any) error {
				e.message = req
				return decode(e)
			}
			intercept := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				if e.err != nil {
					handler = func(context.Context, any) (any, error) { return nil, e.err }
				} else {
					if change, ok := changing(req); ok { // others keep no stack for it while they are parked
						handler = c.audited(name, change, handler)
					}
					handler = c.within(caller, name, handler)
				}
				return interceptor(ctx, req, info, handler)
			}
			return handler(srv, ctx, receive, intercept)
		}
		out.Methods[i] = method
	}
	return &out
}

// decodedStream receives its messages in envelopes.
type decodedStream struct {
	grpc.ServerStream
	ctx     context.Context //nolint:containedctx // of the stream, with the notes of its call
	caller  *auth.Caller
	backend *backend
}

// Context is the stream's, with the notes of its call.
func (s *decodedStream) Context() context.Context { return s.ctx }

// RecvMsg receives one message.
func (s *decodedStream) RecvMsg(m any) error {
	e := envelope{message: m}
	if err := s.ServerStream.RecvMsg(&e); err != nil {
		return err
	}
	if e.err != nil || s.caller == nil {
		return e.err
	}
	// Handlers receive in goroutines of their own.
	return recovered(func() error {
		if err := s.caller.Check(); err != nil {
			return err
		}
		return s.caller.Within(s.ctx, m, s.backend)
	})
}
