package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/server"
)

// httpConn makes the calls of the clients of gRPC over HTTP.
type httpConn struct{ client *connect.Client }

// overHTTP calls a base URL, in JSON unless the options say otherwise, by HTTP/2 without TLS.
func overHTTP(t testing.TB, base string, options ...connecthttp.Option) *httpConn {
	t.Helper()
	h2 := new(http.Protocols)
	h2.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: h2}
	t.Cleanup(transport.CloseIdleConnections)
	return &httpConn{connect.NewClient(connecthttp.NewTransport(&http.Client{Transport: transport}, base, append([]connecthttp.Option{connecthttp.WithProtoJSON()}, options...)...))}
}

// newHTTPBed is newBed whose clients call over HTTP.
func newHTTPBed(t testing.TB, cfg server.Config, options ...connecthttp.Option) *bed {
	t.Helper()
	cfg.HTTP = "127.0.0.1:0"
	b := newBed(t, cfg)
	b.use(overHTTP(t, "http://"+b.http.Addr().String(), options...))
	return b
}

// sends is ctx with the metadata of a call as headers.
func (c *httpConn) sends(ctx context.Context) context.Context {
	sent, _ := metadata.FromOutgoingContext(ctx)
	ctx, call := connect.NewClientContext(ctx)
	for name, values := range sent {
		call.RequestHeader().SetValues(name, values)
	}
	return ctx
}

// Invoke makes a unary call.
func (c *httpConn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	return statusError(c.client.CallUnary(c.sends(ctx), connect.Spec{Procedure: method}, args, reply))
}

// NewStream opens a stream.
func (c *httpConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	spec := connect.Spec{Procedure: method, StreamType: connect.StreamTypeServer}
	if desc.ClientStreams {
		spec.StreamType = connect.StreamTypeBidi
	}
	ctx = c.sends(ctx)
	if spec.StreamType == connect.StreamTypeServer {
		return &httpClientStream{ctx: ctx, open: func(req any) (connect.ClientStream, error) { return c.client.CallServerStream(ctx, spec, req) }}, nil
	}
	stream, err := c.client.CallClientStream(ctx, spec)
	return &httpClientStream{ctx: ctx, stream: stream}, statusError(err)
}

// httpClientStream is a stream over HTTP, as the clients of gRPC have it.
type httpClientStream struct {
	grpc.ClientStream
	ctx    context.Context //nolint:containedctx // of the stream
	open   func(req any) (connect.ClientStream, error)
	stream connect.ClientStream
}

func (s *httpClientStream) Context() context.Context { return s.ctx }

func (s *httpClientStream) SendMsg(m any) (err error) {
	if s.open != nil {
		s.stream, err = s.open(m)
		return statusError(err)
	}
	if err := s.stream.Send(m); errors.Is(err, io.EOF) {
		return io.EOF
	} else if err != nil {
		return statusError(err)
	}
	return nil
}

func (s *httpClientStream) RecvMsg(m any) error { return statusError(s.stream.Receive(m)) }

func (s *httpClientStream) CloseSend() error {
	if s.open != nil {
		return nil
	}
	return statusError(s.stream.CloseSend())
}

// statusError is an error of a call as gRPC has it.
func statusError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var of *connect.Error
	if !errors.As(err, &of) {
		return err
	}
	st := &spb.Status{Code: int32(of.Code()), Message: of.Message()} //nolint:gosec // of the same numbers
	for _, detail := range of.Details() {
		st.Details = append(st.Details, connectproto.ErrorDetailToAny(detail))
	}
	return status.ErrorProto(st)
}

// reply is the answer to a request, without its body.
type reply struct {
	StatusCode int
	Header     http.Header
}

// raw sends one request of HTTP/1.1, and returns the answer and its body.
func (b *bed) raw(t testing.TB, path, contentType, body string, header ...string) (reply, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.http.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header}, string(text)
}
