package server

import (
	"context"
	"errors"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectgzip"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/admit"
	"github.com/waggle-crawl/waggle/server/internal/peers"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

const (
	// bodyTimeout is how long a request may take to come, and answerTimeout how long a message may wait for its caller to
	// read it: below sendTimeout, so that it ends before its stream gives up.
	bodyTimeout   = 20 * time.Second
	answerTimeout = 8 * time.Second
	// lingerTimeout is how long the rest of a request that was answered early may come, so that its connection can go on.
	lingerTimeout = time.Second
)

// httpAPI is the API over HTTP, in the protocols of Connect and gRPC-Web: the services that gRPC has, through the same chain.
type httpAPI struct {
	chain   *chain
	served  bool // else each call is refused: other machines reach the port, and nothing proves who calls
	guarded bool
	hosts   map[string]bool // by which unguarded calls may come, beside those of isOwnHost
	maxAge  time.Duration   // of a connection
	options []connecthttp.Option
	refuse  *connecthttp.ErrorWriter
	origins *http.CrossOriginProtection
	rpcs    *connect.Server
	paths   []string // of the services

	mu      sync.Mutex // guards closed, and that no call begins once it is set
	closed  bool
	running sync.WaitGroup
}

func newHTTPAPI(cfg *Config, c *chain) *httpAPI {
	options := []connecthttp.Option{
		connecthttp.WithReadMaxBytes(cfg.MaxReceiveBytes),
		connecthttp.WithCodecs(httpCodec{connect.CodecNameProto, nil, proto.Marshal},
			httpCodec{connect.CodecNameJSON, fromJSON, toJSON}),
		// As over gRPC: what is packed is unpacked once it is admitted, and answers are not packed.
		connecthttp.WithCompressors(stillPacked{connectgzip.New()}), connecthttp.WithCompressMinBytes(math.MaxInt),
	}
	a := &httpAPI{
		chain: c, served: cfg.servesOverHTTP(), guarded: cfg.PolicyFile != "", hosts: make(map[string]bool), maxAge: cfg.MaxConnectionAge,
		options: options, refuse: connecthttp.NewErrorWriter(options...), origins: http.NewCrossOriginProtection(), rpcs: connect.NewServer(),
	}
	for _, host := range cfg.HTTPHosts {
		a.hosts[strings.ToLower(host)] = true
	}
	return a
}

// register serves a service.
func (a *httpAPI) register(desc *grpc.ServiceDesc, service any) {
	path := "/" + desc.ServiceName + "/"
	a.paths = append(a.paths, path)
	for _, method := range desc.Methods {
		a.rpcs.Register(connect.Method{Spec: connect.Spec{Procedure: path + method.MethodName}, Handler: a.unary(service, method.Handler)})
	}
	for _, stream := range desc.Streams {
		spec, info := connect.Spec{Procedure: path + stream.StreamName, StreamType: connect.StreamTypeServer}, streamInfo(desc, &stream)
		if stream.ClientStreams {
			spec.StreamType = connect.StreamTypeBidi
		}
		a.rpcs.Register(connect.Method{Spec: spec, Handler: a.stream(service, info, stream.Handler)})
	}
}

// mount serves what was registered.
func (a *httpAPI) mount(mux *http.ServeMux) {
	calls := http.NewServeMux()
	connecthttp.Mount(calls, a.rpcs, a.options...)
	for _, path := range a.paths {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, calls) }) //nolint:contextcheck // it is the request's
	}
}

// serve lets a call in, or refuses it, before anything of its body is read.
func (a *httpAPI) serve(w http.ResponseWriter, r *http.Request, calls http.Handler) {
	// curl -d sends this type unless it is given another one. A page in a browser may send it anywhere, and without asking
	// first, but not without naming its origin; see admitPage.
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/x-www-form-urlencoded" {
		r.Header.Set("Content-Type", "application/json")
	}
	asked := askedBy(r)
	ctx, call := peers.Begin(asked)
	h := &httpCall{Call: call, control: http.NewResponseController(w), isHTTP2: r.ProtoMajor == 2, header: w.Header(), length: r.ContentLength, unread: r.Body}
	defer func() { h.End(h.sent && r.Context().Err() == nil) }()
	defer h.end()
	done, err := a.begin()
	if err == nil {
		defer done()
		if err = a.admitPage(r); err == nil {
			err = a.chain.enter(ctx, r.URL.Path)
		} else {
			a.chain.trouble.Warn("refused a call over HTTP", zap.String("method", r.URL.Path), zap.String("host", cut(r.Host, maxNameShown)),
				zap.String("origin", cut(r.Header.Get("Origin"), maxNameShown)), zap.Error(err))
		}
	}
	if on, _ := ctx.Value(connKey{}).(time.Time); err != nil || time.Since(on) > a.maxAge {
		w.Header().Set("Connection", "close") // once all its calls are answered
	}
	if err != nil {
		h.readUntil(time.Now().Add(lingerTimeout))
		_ = a.refuse.Write(w, r, connectError(statusOf(ctx, err))) // a client that has gone misses nothing that anyone could act on
		return
	}
	r = r.WithContext(context.WithValue(ctx, httpCallKey{}, h))
	r.Body = call.Body(&bodyInTurn{call: h, ctx: ctx, method: r.URL.Path})
	calls.ServeHTTP(w, r)
}

// begin counts a call, until it is done, unless no more are taken.
func (a *httpAPI) begin() (done func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, wire.ErrDraining
	}
	a.running.Add(1)
	return a.running.Done, nil
}

// close takes no more calls. Those that run are waited for by running.
func (a *httpAPI) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

// admitPage refuses what a page in a browser may make it send: calls from another origin, and without a policy those that
// came by a name that is not this dispatcher's. The owner of a page can let a name of his lead to 127.0.0.1, and the page
// is then of the same origin (DNS rebinding); an address cannot be made to lead elsewhere. There is no CORS header, so that
// no page of another origin may send JSON or a token.
func (a *httpAPI) admitPage(r *http.Request) error {
	refused := &wire.Refusal{Code: codes.PermissionDenied, Reason: pb.ErrorReason_ERROR_REASON_PERMISSION_DENIED}
	switch {
	case !a.served:
		refused.Text = "the API is not served at this port: other machines reach it, and it has no TLS or no policy (--tls-cert, --auth)"
	case a.origins.Check(r) != nil:
		refused.Text, refused.Pairs = "a page of another origin may not call", []string{"origin", r.Header.Get("Origin")}
	case !a.guarded && !isOwnHost(r.Host) && !a.hosts[hostOf(r.Host)]:
		refused.Text, refused.Pairs = "without --auth, calls may name the host by an IP address, localhost, or a name given by --http-host", []string{"host", r.Host}
	default:
		return nil
	}
	return refused
}

// isOwnHost reports whether a host is an IP address or localhost, with or without a port.
func isOwnHost(host string) bool {
	name := hostOf(host)
	_, err := netip.ParseAddr(name)
	return err == nil || name == "localhost"
}

// hostOf is a host without its port, in lower case.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// connKey is the key of when the connection of a request began.
type connKey struct{}

// connected is the context of the calls of a connection.
func connected(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(peer.NewContext(ctx, &peer.Peer{Addr: conn.RemoteAddr()}), connKey{}, time.Now())
}

// askedBy is the context of a request with who asks, as gRPC has it; see chain.call.
func askedBy(r *http.Request) context.Context {
	sent := make(metadata.MD, len(r.Header))
	for name, values := range r.Header {
		sent[strings.ToLower(name)] = values
	}
	ctx := metadata.NewIncomingContext(r.Context(), sent)
	if p, ok := peer.FromContext(ctx); ok && r.TLS != nil {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: p.Addr, AuthInfo: auth.ProvenBy(credentials.TLSInfo{State: *r.TLS})})
	}
	return ctx
}

type httpCallKey struct{}

// httpCall is a call over HTTP.
type httpCall struct {
	*peers.Call
	control *http.ResponseController
	isHTTP2 bool
	header  http.Header   // of the answer
	length  int64         // of the request's body, in bytes; negative: it is not known
	unread  io.ReadCloser // the request's body
	read    int           // bytes of its message that comes
	leave   func()        // ends the turn of a large body; nil: it has none
	refused error         // there was no turn for it
	whole   atomic.Bool   // a whole message has come
	sent    bool          // the answer was written

	mu   sync.Mutex // guards over, and that no deadline is set once it is
	over bool       // its handler returns: the next call may have what net/http had for this one
}

func httpCallOf(ctx context.Context) *httpCall {
	return ctx.Value(httpCallKey{}).(*httpCall) //nolint:forcetypeassert // serve has set it
}

// readUntil and writeUntil set the deadlines of the call, instead of those of the server; a zero time is none. A connection
// that has none has ended.
func (h *httpCall) readUntil(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		_ = h.control.SetReadDeadline(t)
	}
}
func (h *httpCall) writeUntil(t time.Time) { _ = h.control.SetWriteDeadline(t) }

// end is called as the handler returns. A goroutine of a stream may still wait for a message.
func (h *httpCall) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

// Requests of at most smallBody bytes, as most are, are read at once, and of those whose length is not known the first firstBytes.
// For more, those of an address take turns, so that those that come slowly take neither much memory nor the processor; one whose
// length is not known counts as unknownBody.
const (
	smallBody   = 64 << 10
	firstBytes  = 4 << 10
	unknownBody = 1 << 20
)

// atOnce is how much of a request is read without a turn.
func (h *httpCall) atOnce() int {
	switch {
	case h.length < 0:
		return firstBytes
	case h.length > smallBody:
		return 0
	}
	return smallBody
}

// bodyInTurn is the body of a request, which waits for its turn once it is large.
type bodyInTurn struct {
	call   *httpCall
	ctx    context.Context //nolint:containedctx // of the call
	method string
}

// Read reads.
func (b *bodyInTurn) Read(p []byte) (int, error) {
	h := b.call
	free := h.atOnce() - h.read
	if free <= 0 && h.leave == nil {
		weight := h.length
		if weight < 0 {
			weight = unknownBody
		}
		line := peers.Bodies
		if admit.Keeps(b.method) {
			line = peers.KeepingBodies
		}
		waiting, stop := context.WithTimeout(b.ctx, bodyTimeout)
		leave, err := peers.Turn(waiting, line, int(min(weight, math.MaxInt32)))
		stop()
		if err != nil {
			h.refused = tooMany("other large requests of this address have not come yet", peers.BodiesAtWork, b.method)
			return 0, h.refused
		}
		h.leave = leave
		h.readUntil(time.Now().Add(bodyTimeout))
	}
	if h.leave == nil {
		p = p[:min(len(p), free)]
	}
	n, err := h.unread.Read(p)
	h.read += n
	return n, err
}

// Close closes the body.
func (b *bodyInTurn) Close() error { return b.call.unread.Close() }

// leaveTurn is for a message that has come, or that never will.
func (h *httpCall) leaveTurn() {
	h.read = 0
	if h.leave != nil {
		h.leave()
		h.leave = nil
		h.readUntil(time.Time{})
	}
}

// receiveFirst receives the request of a unary call, or the first message of a stream.
func (h *httpCall) receiveFirst(ctx context.Context, stream connect.ServerStream, e *envelope) error {
	h.readUntil(time.Now().Add(bodyTimeout))
	defer h.readUntil(time.Time{}) // its end would end the call
	err := h.receive(ctx, stream, e)
	h.whole.Store(err == nil)
	return err
}

// leaveUnread lets an answer go out although its request has not come to its end: net/http would first wait for the rest.
func (h *httpCall) leaveUnread() {
	if h.whole.Load() {
		return
	}
	if !h.isHTTP2 {
		h.header.Set("Connection", "close")
	}
	h.readUntil(time.Now().Add(lingerTimeout))
}

// receive receives a request, or the next message of a stream, into an envelope. The error is io.EOF at the end of a stream.
func (h *httpCall) receive(ctx context.Context, stream connect.ServerStream, e *envelope) error {
	defer h.leaveTurn()
	err := stream.Receive(e)
	var refused *connect.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return io.EOF
	case h.refused != nil:
		return h.refused
	case errors.Is(err, os.ErrDeadlineExceeded): // of HTTP/1.1 the call is canceled by it, too
		return status.Errorf(codes.DeadlineExceeded, "the request did not come within %v", bodyTimeout)
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.As(err, &refused) && refused.Code() == connect.CodeResourceExhausted:
		return status.Error(codes.ResourceExhausted, refused.Message())
	}
	return status.Errorf(codes.InvalidArgument, "the request was not received: %v", err)
}

// unary serves a method.
func (a *httpAPI) unary(service any, handler grpc.MethodHandler) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		h := httpCallOf(ctx)
		h.readUntil(time.Time{})
		h.writeUntil(time.Time{})
		resp, err := a.chain.call(ctx, spec.Procedure, service, handler, func(e *envelope) error {
			if err := h.receiveFirst(ctx, stream, e); err != nil {
				e.err = err
			}
			return nil
		})
		h.writeUntil(time.Now().Add(answerTimeout))
		h.leaveUnread()
		if err != nil {
			return connectError(err)
		}
		if err := stream.Send(&httpAnswer{resp, h}); err != nil {
			return err
		}
		h.sent = true
		return nil
	}
}

// stream serves a stream.
func (a *httpAPI) stream(service any, info *grpc.StreamServerInfo, handler grpc.StreamHandler) connect.ServerFunc {
	return func(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
		s := &httpStream{ctx: ctx, call: httpCallOf(ctx), stream: stream}
		s.call.readUntil(time.Time{})
		s.call.writeUntil(time.Time{})
		err := a.chain.countedStream(service, s, info, handler) //nolint:contextcheck // it is the stream's
		s.end()
		s.call.leaveUnread()
		if err != nil {
			return connectError(err)
		}
		return nil
	}
}

// httpStream is a stream over HTTP, as the handlers of gRPC have it.
type httpStream struct {
	ctx    context.Context //nolint:containedctx // of the stream
	call   *httpCall
	stream connect.ServerStream

	sending sync.Mutex // guards ended, and sends are one at a time
	ended   bool
}

// Context is that of the call.
func (s *httpStream) Context() context.Context { return s.ctx }

// SetHeader does nothing: no service sends headers.
func (s *httpStream) SetHeader(metadata.MD) error { return nil }

// SendHeader does nothing, likewise.
func (s *httpStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer does nothing, likewise.
func (s *httpStream) SetTrailer(metadata.MD) {}

// RecvMsg receives into an envelope.
func (s *httpStream) RecvMsg(m any) error {
	if !s.call.whole.Load() {
		return s.call.receiveFirst(s.ctx, s.stream, m.(*envelope)) //nolint:forcetypeassert // see decodedStream
	}
	return s.call.receive(s.ctx, s.stream, m.(*envelope)) //nolint:forcetypeassert // see decodedStream
}

// SendMsg sends a message. What was read until then is answered.
func (s *httpStream) SendMsg(m any) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	if s.ended {
		return io.ErrClosedPipe
	}
	s.call.writeUntil(time.Now().Add(answerTimeout))
	if err := s.stream.Send(&httpAnswer{m, s.call}); err != nil {
		return err
	}
	s.call.writeUntil(time.Time{})
	s.call.Answered()
	return nil
}

// end ends the sends, also one that waits for its peer to read: net/http lets nobody write when a handler has returned.
func (s *httpStream) end() {
	if !s.sending.TryLock() {
		s.call.writeUntil(time.Now())
		s.sending.Lock()
	}
	defer s.sending.Unlock()
	s.ended = true
	s.call.writeUntil(time.Now().Add(answerTimeout))
}

// connectError is a status of gRPC as Connect has it, with all details.
func connectError(err error) error {
	st := status.Convert(err)
	out := connect.NewError(connect.Code(st.Code()), st.Message()) // of the same numbers
	for _, detail := range st.Proto().GetDetails() {
		if d, err := connectproto.NewErrorDetail(detail); err == nil { // it was made of a message
			out = out.WithDetail(d)
		}
	}
	return out
}
