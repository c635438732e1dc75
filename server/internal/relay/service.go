package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
)

// Receiver serves the calls that other dispatchers pass.
type Receiver interface {
	// Secret of the store that both sides must know; nil: there is none.
	Secret() []byte
	// IsStream reports whether a method is one of streams.
	IsStream(method string) bool
	// Unary serves a call. lost, if it is not nil, undoes what the answer gives: its caller did not get it.
	Unary(ctx context.Context, call *relaypb.Call) (answer *relaypb.Answer, lost func())
	// Stream serves a call that is a stream.
	Stream(call *relaypb.Call, stream *Stream) *relaypb.Answer
}

// Service receives calls.
type Service struct {
	relaypb.UnsafeRelayServiceServer

	// To is where calls go.
	To Receiver
	// MaxAge is how long a connection takes new calls.
	MaxAge time.Duration
	// MaxBytes of a call, as the gRPC server has it.
	MaxBytes int
	// Closing is closed when no more calls are taken.
	Closing <-chan struct{}
	// Trusted is called when a peer has proved itself.
	Trusted func(context.Context)

	streams atomic.Int64 // of peers that have proved themselves
}

// HasPeers reports whether another dispatcher passes calls to this one.
func (s *Service) HasPeers() bool { return s.streams.Load() > 0 }

// inbox is one stream of a peer.
type inbox struct {
	service *Service
	sender  string          // the address that the peer is to be reached at
	ctx     context.Context //nolint:containedctx // of the stream
	out     *sender
	unsent  atomic.Int64   // bytes of answers
	jobs    chan job       // for workers that wait
	waiting atomic.Int64   // workers
	running sync.WaitGroup // calls
	end     context.CancelCauseFunc

	mu       sync.Mutex // guards what follows
	calls    map[uint64]*running
	undoable []undoable // the last answers that can be undone
}

// running is a call that has no answer yet.
type running struct {
	cancel context.CancelFunc
	stream *Stream // nil: it is unary
}

// job is a call to make.
type job struct {
	ctx  context.Context //nolint:containedctx // of the call
	call *relaypb.Call
	of   *running
}

// maxWaiting are the workers of a stream that wait for another call: their stacks have grown to what a call takes, which costs more
// than a small call.
const maxWaiting = 16

type undoable struct {
	id   uint64
	lost func()
}

// Pass serves one stream of a peer, until it ends. Calls that have not ended then are canceled.
func (s *Service) Pass(stream grpc.BidiStreamingServer[relaypb.PassRequest, relaypb.PassResponse]) error {
	sender, err := s.meet(stream)
	if err != nil {
		return err
	}
	s.Trusted(stream.Context())
	s.streams.Add(1)
	defer s.streams.Add(-1)
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	in := &inbox{service: s, sender: sender, ctx: ctx, out: newSender(stream), end: end, jobs: make(chan job), calls: make(map[uint64]*running)}
	ended := make(chan error, 1)
	go func() { ended <- in.receive(stream) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.Closing:
		err = in.close(ended)
	}
	in.mu.Lock()
	end(nil) // no call begins after this
	in.mu.Unlock()
	in.await()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// endTimeout is how long the calls of a stream that ends may take. An answer that its peer does not read ends with the stream.
const endTimeout = time.Second

// await waits until no call runs.
func (in *inbox) await() {
	none := make(chan struct{})
	go func() {
		in.running.Wait()
		close(none)
	}()
	select {
	case <-none:
	case <-time.After(endTimeout):
	}
}

// meet lets a peer prove that it knows the secret.
func (s *Service) meet(stream grpc.BidiStreamingServer[relaypb.PassRequest, relaypb.PassResponse]) (sender string, err error) {
	type peer struct {
		sender string
		err    error
	}
	met := make(chan peer, 1)
	go func() {
		sender, err := s.shakeHands(stream)
		met <- peer{sender, err}
	}()
	late := time.NewTimer(handshakeTimeout)
	defer late.Stop()
	select {
	case p := <-met:
		return p.sender, p.err
	case <-late.C: // with this return the stream ends, and with it the goroutine
		return "", status.Errorf(codes.DeadlineExceeded, "the peer did not prove itself within %v", handshakeTimeout)
	}
}

func (s *Service) shakeHands(stream grpc.BidiStreamingServer[relaypb.PassRequest, relaypb.PassResponse]) (sender string, err error) {
	secret := s.To.Secret()
	first, err := stream.Recv()
	if err != nil {
		return "", err
	}
	hello := first.GetHello()
	switch {
	case hello == nil:
		return "", status.Error(codes.InvalidArgument, "the stream does not begin with hello")
	case hello.GetVersion() != Version:
		return "", status.Errorf(codes.FailedPrecondition, "the peer %.80q passes calls by version %d of the protocol; this dispatcher has version %d",
			hello.GetSender(), hello.GetVersion(), Version)
	case len(secret) == 0:
		return "", status.Error(codes.FailedPrecondition, "this dispatcher has no store that others share")
	}
	binding, err := bindingOf(stream.Context())
	if err != nil {
		return "", err
	}
	nonce := newNonce()
	challenge := &relaypb.Challenge{Nonce: nonce, Proof: prove(secret, asOwner, hello.GetNonce(), nonce, binding)}
	if err := stream.Send(&relaypb.PassResponse{Item: &relaypb.PassResponse_Challenge{Challenge: challenge}}); err != nil {
		return "", err
	}
	second, err := stream.Recv()
	if err != nil {
		return "", err
	}
	if !proves(second.GetProof().GetProof(), secret, asSender, hello.GetNonce(), nonce, binding) {
		return "", status.Error(codes.PermissionDenied, "the peer does not know the secret of the store: it has another store")
	}
	welcome := &relaypb.Welcome{MaxAge: durationpb.New(s.MaxAge), MaxBytes: int64(s.MaxBytes)}
	return hello.GetSender(), stream.Send(&relaypb.PassResponse{Item: &relaypb.PassResponse_Welcome{Welcome: welcome}})
}

// receive takes items until the stream ends.
func (in *inbox) receive(stream passStream) error {
	for {
		item := new(relaypb.PassRequest)
		if err := stream.RecvMsg(item); err != nil {
			return err
		}
		switch {
		case item.GetCall() != nil:
			if err := in.begin(item.GetCall()); err != nil {
				return err
			}
		case item.GetMessage() != nil:
			in.deliver(item.GetMessage())
		case item.GetCancel() != nil:
			in.cancel(item.GetCancel().GetId())
		}
	}
}

// begin begins a call.
func (in *inbox) begin(call *relaypb.Call) error {
	ctx, cancel := context.WithCancel(in.ctx)
	if d := call.GetTimeout(); d != nil {
		timed, stop := context.WithTimeout(ctx, d.AsDuration())
		whole := cancel
		ctx, cancel = timed, func() { stop(); whole() }
	}
	r := &running{cancel: cancel}
	if in.service.To.IsStream(call.GetMethod()) {
		r.stream = &Stream{inbox: in, id: call.GetId(), ctx: ctx, in: make(chan *relaypb.Message, MaxAhead+1)}
	}
	in.mu.Lock()
	full, gone := len(in.calls) >= MaxCalls, in.ctx.Err() != nil
	if !full && !gone {
		in.calls[call.GetId()] = r
		in.running.Add(1)
	}
	in.mu.Unlock()
	switch {
	case gone:
		cancel()
		return context.Cause(in.ctx)
	case full:
		cancel()
		return status.Errorf(codes.ResourceExhausted, "the peer has more calls on a stream than are allowed; the limit is %d", MaxCalls)
	}
	j := job{ctx, call, r}
	select {
	case in.jobs <- j:
	default:
		go in.work(j)
	}
	return nil
}

// work makes a call, and others after it.
func (in *inbox) work(j job) {
	for {
		in.run(j.ctx, j.call, j.of)
		in.running.Done()
		if in.waiting.Add(1) > maxWaiting {
			in.waiting.Add(-1)
			return
		}
		select {
		case j = <-in.jobs:
			in.waiting.Add(-1)
		case <-in.ctx.Done():
			return
		}
	}
}

// run makes a call, and answers it.
func (in *inbox) run(ctx context.Context, call *relaypb.Call, r *running) {
	defer r.cancel()
	var answer *relaypb.Answer
	var lost func()
	if r.stream != nil {
		answer = in.service.To.Stream(call, r.stream)
	} else {
		answer, lost = in.service.To.Unary(ctx, call)
	}
	answer.Id, answer.Undoable = call.GetId(), lost != nil
	in.mu.Lock()
	delete(in.calls, call.GetId())
	gone := ctx.Err() != nil && lost != nil
	if lost != nil && !gone {
		if len(in.undoable) == maxUndoable {
			in.undoable = append(in.undoable[:0], in.undoable[1:]...)
		}
		in.undoable = append(in.undoable, undoable{call.GetId(), lost})
	}
	in.mu.Unlock()
	if gone {
		lost()
	}
	in.answer(len(answer.GetResponse()), &relaypb.PassResponse{Item: &relaypb.PassResponse_Answer{Answer: answer}})
}

// answer sends an item of so many bytes.
func (in *inbox) answer(bytes int, item *relaypb.PassResponse) {
	if in.unsent.Add(int64(bytes)) > maxUnsent {
		in.end(status.Errorf(codes.ResourceExhausted, "the peer does not read its answers; %d bytes may wait", maxUnsent))
	}
	if err := in.out.send(in.ctx.Done(), item); err != nil {
		in.end(err)
	}
	in.unsent.Add(-int64(bytes))
}

// deliver gives a stream its next message.
func (in *inbox) deliver(m *relaypb.Message) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r := in.calls[m.GetId()]
	if r == nil || r.stream == nil {
		return // it has ended
	}
	select {
	case r.stream.in <- m:
	default: // the peer sends no more than MaxAhead
		r.cancel()
	}
}

// cancel ends a call, or undoes its answer.
func (in *inbox) cancel(id uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if r := in.calls[id]; r != nil {
		r.cancel()
		return
	}
	for i, u := range in.undoable {
		if u.id == id {
			in.undoable = append(in.undoable[:i], in.undoable[i+1:]...)
			go u.lost()
			return
		}
	}
}

// closeTick is the time between two looks at whether calls have ended.
const closeTick = 20 * time.Millisecond

// close waits until the calls have ended. Their receiver ends them, since it closes too.
func (in *inbox) close(ended <-chan error) error {
	tick := time.NewTicker(closeTick)
	defer tick.Stop()
	for {
		in.mu.Lock()
		n := len(in.calls)
		in.mu.Unlock()
		if n == 0 {
			return status.Error(codes.Unavailable, "the dispatcher stops")
		}
		select {
		case err := <-ended:
			return err
		case <-in.ctx.Done():
			return context.Cause(in.ctx)
		case <-tick.C:
		}
	}
}

// Stream is a stream of a caller, as its owner's handlers have it. Its messages are bytes: RecvMsg takes a func([]byte), and
// SendMsg bytes.
type Stream struct {
	grpc.ServerStream // nil: no service sends headers

	inbox *inbox
	id    uint64
	ctx   context.Context //nolint:containedctx // of the stream
	in    chan *relaypb.Message
}

// Sender is the address at which the dispatcher that passes the stream is to be reached.
func (s *Stream) Sender() string { return s.inbox.sender }

// Context ends when the caller has gone.
func (s *Stream) Context() context.Context { return s.ctx }

// RecvMsg receives the next message; io.EOF after the last one.
func (s *Stream) RecvMsg(take any) error {
	select {
	case m := <-s.in:
		if m.GetLast() {
			return io.EOF
		}
		take.(func([]byte))(m.GetData()) //nolint:forcetypeassert // see above
		return nil
	case <-s.ctx.Done():
		return fmt.Errorf("receive a message that was passed on: %w", context.Cause(s.ctx))
	}
}

// SendMsg sends a message.
func (s *Stream) SendMsg(data any) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	bytes := data.([]byte) //nolint:forcetypeassert // see above
	message := &relaypb.Message{Id: s.id, Data: bytes}
	s.inbox.answer(len(bytes), &relaypb.PassResponse{Item: &relaypb.PassResponse_Message{Message: message}})
	return nil
}
