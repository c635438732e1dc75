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
// is always decoded, and the error in it is told as what it is.

// envelope holds a message and the error of decoding it.
type envelope struct {
	message any
	err     error
	// admit is asked before a message of so many bytes is decoded; nil: it is at once.
	admit func(bytes int) error
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
	if e.admit != nil {
		if e.err = e.admit(data.Len()); e.err != nil {
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

// decoded is desc with its unary requests received in envelopes.
func decoded(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	out := *desc
	out.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, method := range desc.Methods {
		handler := method.Handler
		method.Handler = func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return handler(srv, ctx, func(req any) error {
				e := envelope{message: req}
				if err := decode(&e); err != nil || e.err == nil {
					return err
				}
				st, _ := statusOf(ctx, e.err, "")
				return st.Err()
			}, interceptor)
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
