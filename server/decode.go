package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/admit"
	"github.com/waggle-crawl/waggle/server/internal/peers"
)

// envelope holds the request of a call, or a message of a stream, or the error of decoding it. A transport puts in what has come; it
// is decoded once it is admitted, when the transport keeps nothing of it any more. A request that cannot be decoded (a string that is
// not UTF-8, bytes that are no message) is invalid, and its caller's fault; gRPC would return it as INTERNAL, before the chain runs.
type envelope struct {
	message any
	err     error
	came    bool
	data    []byte                            // that came and is not decoded
	other   func([]byte, proto.Message) error // decodes data; nil: it is of protobuf
	keep    bool                              // the request may be passed on: raw has its bytes, and it is decoded by unpack, if at all
	raw     []byte                            // in the encoding of protobuf
	decoded bool
	// admit lets a request of so many bytes be unpacked and decoded.
	admit func(bytes int) (leave func(), err error)
	leave func() // of what was admitted; nil: nothing was
}

// end ends what was admitted.
func (e *envelope) end() {
	if e.leave != nil {
		e.leave()
	}
}

// put puts in a message, which is the envelope's from then on.
func (e *envelope) put(data []byte, other func([]byte, proto.Message) error) {
	if e.came {
		e.err = &dispatch.FieldError{Field: "request", Limit: "has more than one message"}
	}
	e.came, e.data, e.other = true, data, other
}

// decode admits what was put in by its size, unpacked, and decodes it.
func (e *envelope) decode(maxBytes int) {
	data := e.data
	if e.data = nil; e.err != nil {
		return
	}
	size, packed := unpackedSize(data)
	if size > maxBytes {
		e.err = status.Errorf(codes.ResourceExhausted, "the message has %d bytes, unpacked; the limit is %d", size, maxBytes)
		return
	}
	if e.leave, e.err = e.admit(size); e.err != nil {
		return
	}
	if packed {
		if data, e.err = unpacked(data, size); e.err != nil {
			return
		}
	}
	if e.raw = data; e.keep && e.other == nil {
		return
	}
	if e.err = e.unmarshal(); e.err != nil || !e.keep {
		e.raw = nil
		return
	}
	e.raw, e.err = proto.Marshal(e.message.(proto.Message)) //nolint:forcetypeassert // as all requests of gRPC are
}

// unmarshal decodes raw.
func (e *envelope) unmarshal() error {
	unmarshal := proto.Unmarshal
	if e.other != nil {
		unmarshal = e.other
	}
	if err := unmarshal(e.raw, e.message.(proto.Message)); err != nil { //nolint:forcetypeassert // as all requests of gRPC are
		return undecodable(err)
	}
	e.decoded = true
	return nil
}

// unpack decodes a request that was kept.
func (e *envelope) unpack() error {
	if e.decoded {
		return nil
	}
	return e.unmarshal()
}

// undecodable is the error of a request that does not decode.
func undecodable(err error) error {
	if field, ok := errors.AsType[*dispatch.FieldError](err); ok {
		return field
	}
	_, cause, found := strings.Cut(err.Error(), "proto:")
	if !found {
		cause = err.Error()
	}
	// protobuf-go varies the space after its prefix.
	return &dispatch.FieldError{Field: "request", Limit: "does not decode: " + cut(strings.Trim(cause, " \u00a0"), maxLoggedRequest)}
}

// envelopeCodec is gRPC's codec for protobuf, for envelopes and answers: every service goes through the chain.
type envelopeCodec struct{}

// String names it.
func (envelopeCodec) String() string { return "envelopes" }

// Marshal encodes a message, or an answer.
func (c envelopeCodec) Marshal(v any) ([]byte, error) {
	switch a := v.(type) {
	case *answer:
		data, err := c.Marshal(a.message)
		if err == nil {
			a.peer.Answer(len(data))
		}
		return data, err
	case *encoded:
		return a.data, nil
	default:
		return proto.Marshal(v.(proto.Message)) //nolint:forcetypeassert // as all answers of gRPC are
	}
}

// Unmarshal puts a message into an envelope, or decodes what another dispatcher sends.
func (envelopeCodec) Unmarshal(data []byte, v any) error {
	if e, ok := v.(*envelope); ok {
		e.put(data, nil)
		return nil
	}
	return proto.Unmarshal(data, v.(proto.Message)) //nolint:forcetypeassert // as all messages of gRPC are
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
func unpackedSize(data []byte) (size int, packed bool) {
	if len(data) < len(gzipMagic)+gzipTrailer || string(data[:len(gzipMagic)]) != gzipMagic {
		return len(data), false
	}
	return int(binary.LittleEndian.Uint32(data[len(data)-gzipTrailer/2:])), true
}

// unpacked is a packed message of the size that it says it has.
func unpacked(data []byte, size int) ([]byte, error) {
	out := make([]byte, size)
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		_, err = io.ReadFull(r, out)
	}
	if err == nil {
		if _, err = r.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			return out, nil
		}
	}
	return nil, &dispatch.FieldError{Field: "request", Limit: "is no message that gzip has packed"}
}

// decoded is desc with its calls in the chain, as gRPC serves them.
func (c *chain) decoded(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	c.metrics.calls.add(desc)
	out := *desc
	out.Methods, out.Streams = slices.Clone(desc.Methods), slices.Clone(desc.Streams)
	for i, method := range desc.Methods {
		name := "/" + desc.ServiceName + "/" + method.MethodName
		out.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			resp, err := c.call(ctx, name, srv, method.Handler, func(e *envelope) error { return decode(e) })
			if err != nil {
				return nil, err
			}
			return answerTo(ctx, resp), nil
		}
	}
	for i, stream := range desc.Streams {
		info := streamInfo(desc, &stream)
		out.Streams[i].Handler = func(srv any, with grpc.ServerStream) error {
			return c.countedStream(srv, answering{with}, info, stream.Handler)
		}
	}
	return &out
}

func streamInfo(desc *grpc.ServiceDesc, stream *grpc.StreamDesc) *grpc.StreamServerInfo {
	return &grpc.StreamServerInfo{
		FullMethod: "/" + desc.ServiceName + "/" + stream.StreamName, IsClientStream: stream.ClientStreams, IsServerStream: stream.ServerStreams,
	}
}

// call makes a call of a unary method of srv, of either transport. ctx has who asks, as gRPC has it: metadata, and the peer
// with its address and what its connection proves. receive puts the request into the envelope; of a caller who is
// refused nothing is read.
func (c *chain) call(ctx context.Context, method string, srv any, handler grpc.MethodHandler, receive func(*envelope) error) (any, error) {
	caller, refused := c.admit(ctx, method)
	ctx = withCaller(ctx, caller)
	whole := ctx
	e := c.newEnvelope(ctx, method)
	e.err, e.keep = refused, c.owners.shared.Load() && c.methods[method] != nil
	defer e.end()
	decode := func(req any) error {
		if refused != nil {
			return nil
		}
		e.message = req
		if err := receive(e); err != nil {
			return err
		}
		e.decode(c.maxBytes)
		return nil
	}
	return handler(srv, ctx, decode, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		here := func() grpc.UnaryHandler { return c.here(caller, e, method, handler) }
		if e.err != nil || !e.keep {
			return c.counted(ctx, req, info, here())
		}
		return c.counted(ctx, req, info, c.owned(whole, caller, method, e, here))
	})
}

// callOn makes a call that came on a Work stream, as call makes one that came alone, but without 1 and 3: the stream has been through them.
func (c *chain) callOn(ctx context.Context, caller *auth.Caller, method string, req proto.Message) (any, error) {
	e := c.newEnvelope(ctx, method)
	e.message, e.decoded, e.keep = req, true, c.owners.shared.Load()
	e.leave, e.err = c.decode(ctx, method, proto.Size(req))
	defer e.end()
	of := c.methods[method]
	decode := func(any) error { return nil }
	return of.unary(of.service, ctx, decode, func(ctx context.Context, _ any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		here := func() grpc.UnaryHandler { return c.here(caller, e, method, handler) }
		if e.err != nil || !e.keep {
			return c.unary(ctx, req, info, here())
		}
		return c.unary(ctx, req, info, c.owned(ctx, caller, method, e, here))
	})
}

// here is a handler with 9 and 10, of a request that this dispatcher serves.
func (c *chain) here(caller *auth.Caller, e *envelope, method string, handler grpc.UnaryHandler) grpc.UnaryHandler {
	if e.err != nil {
		return func(context.Context, any) (any, error) { return nil, e.err }
	}
	if change, ok := changing(e.message); ok { // others keep no stack for it while they are parked
		handler = c.audited(method, change, handler)
	}
	return c.within(caller, method, handler)
}

// newEnvelope is an empty envelope for the request of a call.
func (c *chain) newEnvelope(ctx context.Context, method string) *envelope {
	return &envelope{admit: func(bytes int) (func(), error) { return c.decode(ctx, method, bytes) }}
}

// decode lets the request of a call be decoded once it is the turn of its address, or refuses it for load or rate.
func (c *chain) decode(ctx context.Context, method string, bytes int) (leave func(), err error) {
	if !admit.TakesTurn(method) {
		return c.limits.Decode(ctx, method, bytes)
	}
	line := peers.Other
	if admit.Keeps(method) {
		line = peers.Settle
	}
	done, err := peers.Turn(ctx, line, bytes)
	if err != nil {
		return nil, err
	}
	end, err := c.limits.Decode(ctx, method, bytes)
	if err != nil {
		done()
		return nil, err
	}
	return func() { end(); done() }, nil
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
	e.decode(s.chain.maxBytes)
	e.end()
	if e.err != nil {
		return e.err
	}
	if _, isCall := m.(*pb.WorkRequest); isCall { // it is checked as the call that it is
		return nil
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

// answer is a message that its peer holds from its encoding until it is sent.
type answer struct {
	message any
	peer    *peers.Conn
}

// answerTo makes an answer of a message to the peer of a call.
func answerTo(ctx context.Context, message any) any {
	if conn := peers.Of(ctx); conn != nil {
		return &answer{message, conn}
	}
	return message
}

// answering is a stream of gRPC that sends answers.
type answering struct{ grpc.ServerStream }

// SendMsg sends an answer.
func (s answering) SendMsg(m any) error { return s.ServerStream.SendMsg(answerTo(s.Context(), m)) }
