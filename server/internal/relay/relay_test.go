package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/server/internal/relay"
	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = []byte("a secret")

// receiver is an owner whose methods do what their names say.
type receiver struct {
	began  chan string   // ids of calls that park, or that give something
	ended  chan error    // how they ended
	undone chan struct{} // an answer was undone
}

func (*receiver) Secret() []byte              { return secret }
func (*receiver) IsStream(method string) bool { return method == "/stream" || method == "/deaf" }

var page = bytes.Repeat([]byte("p"), 3<<20)

func (r *receiver) Unary(ctx context.Context, call *relaypb.Call) (*relaypb.Answer, func()) {
	switch call.GetMethod() {
	case "/park":
		r.began <- call.GetMethod()
		<-ctx.Done()
		r.ended <- ctx.Err()
	case "/give":
		return &relaypb.Answer{Response: call.GetRequest()}, func() { r.undone <- struct{}{} }
	case "/page":
		return &relaypb.Answer{Response: page}, nil
	}
	return &relaypb.Answer{Response: call.GetRequest()}, nil
}

func (r *receiver) Stream(call *relaypb.Call, stream *relay.Stream) *relaypb.Answer {
	if call.GetMethod() == "/deaf" {
		<-stream.Context().Done()
		r.ended <- stream.Context().Err()
		return new(relaypb.Answer)
	}
	for {
		var got []byte
		if err := stream.RecvMsg(func(data []byte) { got = data }); err != nil {
			return new(relaypb.Answer)
		}
		if err := stream.SendMsg(got); err != nil {
			return new(relaypb.Answer)
		}
	}
}

// serve serves a receiver until the test ends, and gives a link to it.
func serve(t *testing.T, options ...grpc.ServerOption) (*receiver, *relay.Link, *grpc.Server) {
	t.Helper()
	return serveTo(t, func(address string) string { return address }, options...)
}

// serveTo is serve for a link that connects by way of another address.
func serveTo(t *testing.T, way func(address string) string, options ...grpc.ServerOption) (*receiver, *relay.Link, *grpc.Server) {
	t.Helper()
	r := &receiver{began: make(chan string, 100), ended: make(chan error, 100), undone: make(chan struct{}, 100)}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	relaypb.RegisterRelayServiceServer(server, &relay.Service{
		To: r, MaxAge: time.Minute, MaxBytes: 1 << 20, Closing: make(chan struct{}), Trusted: func(context.Context) {},
	})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	link := relay.NewLink(relay.Config{Sender: "test", Address: way(listener.Addr().String()), Secret: secret})
	t.Cleanup(func() {
		link.Close()
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r, link, server
}

func call(t *testing.T, link *relay.Link, class relay.Class, method, request string) (*relaypb.Answer, func(), error) {
	t.Helper()
	return link.Call(t.Context(), class, &relaypb.Call{Method: method, Request: []byte(request)}, nil)
}

// Calls run at the same time, and each gets its answer.
func TestLink_Call(t *testing.T) {
	t.Parallel()
	_, link, _ := serve(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			request := string(rune('a' + i%26))
			answer, _, err := call(t, link, relay.Class(i%relay.Classes), "/echo", request)
			if err != nil || string(answer.GetResponse()) != request {
				t.Errorf("%s: %v, %v", request, answer, err)
			}
		})
	}
	wg.Wait()
}

// A call whose caller leaves is canceled, and what a later one of them was given is undone.
func TestLink_Call_canceled(t *testing.T) {
	t.Parallel()
	r, link, _ := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-r.began; cancel() }()
	if _, _, err := link.Call(ctx, relay.Fetch, &relaypb.Call{Method: "/park"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := <-r.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the owner's call ended by %v", err)
	}
	_, undo, err := call(t, link, relay.Fetch, "/give", "x")
	if err != nil || undo == nil {
		t.Fatal(err)
	}
	undo()
	<-r.undone
}

// A deadline is passed on.
func TestLink_Call_deadline(t *testing.T) {
	t.Parallel()
	r, link, _ := serve(t)
	go func() {
		_, _, _ = call(t, link, relay.Rest, "/echo", "") // the stream is open
	}()
	timed := &relaypb.Call{Method: "/park", Timeout: durationpb.New(50 * time.Millisecond)}
	if _, _, err := link.Call(t.Context(), relay.Rest, timed, nil); err != nil {
		t.Errorf("got %v", err)
	}
	<-r.began
	if err := <-r.ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended by %v", err)
	}
}

// What the owner would not take is refused, and breaks nothing.
func TestLink_Call_tooLarge(t *testing.T) {
	t.Parallel()
	_, link, _ := serve(t)
	if _, _, err := call(t, link, relay.Rest, "/echo", string(make([]byte, 1<<20))); !errors.Is(err, relay.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if _, _, err := call(t, link, relay.Rest, "/echo", "a"); err != nil {
		t.Errorf("another one: %v", err)
	}
}

// A call that the owner may have got is broken when the owner goes, or is owner no more; one that it has not is not sent.
func TestLink_Call_broken(t *testing.T) {
	t.Parallel()
	r, link, server := serve(t)
	moved := make(chan struct{})
	go func() { <-r.began; close(moved) }()
	if _, _, err := link.Call(t.Context(), relay.Fetch, &relaypb.Call{Method: "/park"}, moved); !errors.Is(err, relay.ErrBroken) {
		t.Errorf("moved: %v", err)
	}
	go func() { <-r.began; server.Stop() }()
	if _, _, err := call(t, link, relay.Fetch, "/park", ""); !errors.Is(err, relay.ErrBroken) {
		t.Errorf("gone: %v", err)
	}
	if _, _, err := call(t, link, relay.Fetch, "/park", ""); !errors.Is(err, relay.ErrNotSent) {
		t.Errorf("away: %v", err)
	}
}

// Answers of other classes do not keep beats waiting, however large they are.
func TestLink_classes(t *testing.T) {
	t.Parallel()
	_, link, _ := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _, _ = link.Call(ctx, relay.Rest, &relaypb.Call{Method: "/page"}, nil) // until it is canceled
			}
		})
	}
	began := time.Now()
	const beats = 50
	for range beats {
		if _, _, err := call(t, link, relay.Keep, "/echo", "a beat"); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began) / beats; took > time.Second { // a hundred pages take longer
		t.Errorf("a beat took %v", took)
	}
	cancel()
	wg.Wait()
}

// A stream has its messages in order, and ends with its client.
func TestLink_Open(t *testing.T) {
	t.Parallel()
	_, link, _ := serve(t)
	p, err := link.Open(t.Context(), relay.Keep, &relaypb.Call{Method: "/stream"})
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"a", "b", "c"} {
		if err := p.Send(t.Context(), []byte(data), false); err != nil {
			t.Fatal(err)
		}
		if m := <-p.Messages; string(m.GetData()) != data {
			t.Errorf("got %q, want %q", m.GetData(), data)
		}
	}
	if err := p.Send(t.Context(), nil, true); err != nil {
		t.Fatal(err)
	}
	if answer := <-p.Answer; len(answer.GetStatus()) > 0 {
		t.Errorf("ended with %v", answer)
	}
}

// A sender that does not stop at MaxAhead ends its stream, and only that.
func TestLink_Open_tooManyAhead(t *testing.T) {
	t.Parallel()
	r, link, _ := serve(t)
	p, err := link.Open(t.Context(), relay.Keep, &relaypb.Call{Method: "/deaf"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 2 * relay.MaxAhead {
		if err := p.Send(t.Context(), []byte("a"), false); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-r.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended by %v", err)
	}
	if _, _, err := call(t, link, relay.Keep, "/echo", "a"); err != nil {
		t.Errorf("another call: %v", err)
	}
}

// A client that takes no messages ends its stream, and keeps no others waiting.
func TestLink_Open_unread(t *testing.T) {
	t.Parallel()
	_, link, _ := serve(t)
	p, err := link.Open(t.Context(), relay.Keep, &relaypb.Call{Method: "/stream"})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 * relay.MaxAhead {
		if err := p.Send(t.Context(), []byte("a"), false); err != nil {
			t.Fatal(err)
		}
		if _, _, err := call(t, link, relay.Keep, "/echo", "a"); err != nil { // in its turn, so that the owner takes it
			t.Fatal(err)
		}
	}
	n := 0
	for range p.Messages {
		n++
	}
	if n == 0 || n > 2*relay.MaxAhead {
		t.Errorf("%d messages were kept", n)
	}
}

// deafWay forwards a connection, until deaf is set: then nothing comes back from the server.
func deafWay(t *testing.T, deaf *atomic.Bool) func(address string) string {
	t.Helper()
	return func(address string) string {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var copies sync.WaitGroup
		copies.Go(func() {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			copies.Go(func() {
				_, _ = io.Copy(far, near) // until one of them is closed
				_ = far.Close()
			})
			buf := make([]byte, 4096)
			for !deaf.Load() {
				n, err := far.Read(buf)
				if err != nil {
					break
				}
				if _, err := near.Write(buf[:n]); err != nil {
					break
				}
			}
		})
		t.Cleanup(func() {
			_ = listener.Close()
			copies.Wait()
		})
		return listener.Addr().String()
	}
}

// A stream ends whose peer does not read its answers, though an answer is being sent.
func TestService_deafPeer(t *testing.T) {
	t.Parallel()
	var deaf atomic.Bool
	ended := make(chan error, 1)
	_, link, _ := serveTo(t, deafWay(t, &deaf), grpc.StreamInterceptor(
		func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			err := handler(srv, stream)
			ended <- err
			return err
		}))
	if _, _, err := call(t, link, relay.Rest, "/echo", "a"); err != nil {
		t.Fatal(err)
	}
	deaf.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 100 {
		calls.Go(func() {
			_, _, _ = link.Call(ctx, relay.Rest, &relaypb.Call{Method: "/page"}, nil) // it has no answer
		})
	}
	select {
	case err := <-ended:
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the stream ends by %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the stream goes on")
	}
	cancel()
	calls.Wait()
}
