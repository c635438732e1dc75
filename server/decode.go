package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/peers"
)

// envelope holds a message and the error of decoding it. A request that cannot be decoded (a string that is not UTF-8,
// bytes that are no message) is invalid, and its caller's fault; gRPC would return it as INTERNAL, before any interceptor
// runs. An envelope is always decoded.
type envelope struct {
	message any
	err     error
	// admit lets a request of so many bytes be unpacked and decoded.
	admit func(bytes int) (leave func(), err error)
	leave func()
}

// envelopeCodec is gRPC's codec for protobuf, but for envelopes.
type envelopeCodec struct {
	encoding.CodecV2

	maxBytes int // of a request, unpacked
}

// Marshal encodes a message, or an answer.
func (c envelopeCodec) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(*answer); ok {
		return a.marshal(c.CodecV2)
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal decodes into a message, or into the message of an envelope.
func (c envelopeCodec) Unmarshal(data mem.BufferSlice, v any) error {
	size, packed := unpackedSize(data)
	e, ok := v.(*envelope)
	if !ok { // of a health check
		if packed {
			var err error
			if data, err = unpacked(data, min(size, c.maxBytes)); err != nil {
				return err
			}
		}
		return c.CodecV2.Unmarshal(data, v)
	}
	if size > c.maxBytes {
		e.err = status.Errorf(codes.ResourceExhausted, "the message has %d bytes, unpacked; the limit is %d", size, c.maxBytes)
		return nil
	}
	if e.leave, e.err = e.admit(size); e.err != nil {
		return nil
	}
	if packed {
		if data, e.err = unpacked(data, size); e.err != nil {
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

// packedRequests leaves requests that gzip has packed as they are. grpc-go would unpack them before they are admitted, so
// that a few bytes of many streams would take all memory. Answers are not packed.
type packedRequests struct{}

// Type is the encoding.
func (packedRequests) Type() string { return "gzip" }

// Do returns what it reads.
func (packedRequests) Do(r io.Reader) ([]byte, error) { return io.ReadAll(r) }

const (
	gzipMagic   = "\x1f\x8b" // no message of protobuf begins so
	gzipTrailer = 8          // bytes: a checksum, and how many bytes were packed (RFC 1952)
)

// unpackedSize is the size of a message; of a packed one that in its trailer.
func unpackedSize(data mem.BufferSlice) (size int, packed bool) {
	if len(data) != 1 || data.Len() < len(gzipMagic)+gzipTrailer || !bytes.HasPrefix(data[0].ReadOnlyData(), []byte(gzipMagic)) {
		return data.Len(), false
	}
	return int(binary.LittleEndian.Uint32(data[0].ReadOnlyData()[data.Len()-gzipTrailer/2:])), true
}

// unpacked is a packed message of the size that it says it has.
func unpacked(data mem.BufferSlice, size int) (mem.BufferSlice, error) {
	out := make([]byte, size)
	r, err := gzip.NewReader(data.Reader())
	if err == nil {
		_, err = io.ReadFull(r, out)
	}
	if err == nil {
		if _, err = r.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			return mem.BufferSlice{mem.SliceBuffer(out)}, nil
		}
	}
	return nil, &dispatch.FieldError{Field: "request", Limit: "is no message that gzip has packed"}
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
	ctx    context.Context //nolint:containedctx // of the stream, with the notes of its call
	caller *auth.Caller
	chain  *chain
	line   peers.Line // in which its messages wait to be decoded
}

// Context is the stream's, with the notes of its call.
func (s *decodedStream) Context() context.Context { return s.ctx }

// RecvMsg receives one message.
func (s *decodedStream) RecvMsg(m any) error {
	e := envelope{message: m, admit: func(bytes int) (func(), error) { return peers.Turn(s.ctx, s.line, bytes) }}
	if err := s.ServerStream.RecvMsg(&e); err != nil {
		return err
	}
	if e.leave != nil {
		e.leave()
	}
	if e.err != nil {
		return e.err
	}
	// Handlers receive in goroutines of their own.
	return recovered(func() error {
		if err := s.caller.Check(); err != nil {
			return err
		}
		if err := s.chain.meet(s.ctx, s.caller, m); err != nil {
			return err
		}
		return s.caller.Within(s.ctx, m, s.chain.backend)
	})
}
