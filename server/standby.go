package server

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/server/internal/relay"
	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
)

// FeedStream is a stream between the owner of a store and a dispatcher that stands by for it. One goroutine may send while another
// one receives. Both fail once the stream has ended.
type FeedStream interface {
	// Send sends a message, of up to some MiB. It may wait for the other side.
	Send(message []byte) error
	// Receive waits for the next message.
	Receive() (message []byte, err error)
}

// StandBy opens a stream to the owner of the store, which gives it to its [Config.Feed]. It ends with ctx.
func (s *Server) StandBy(ctx context.Context, owner Owner) (FeedStream, error) {
	s.owners.mu.Lock()
	to := s.linkTo(owner.Address)
	s.owners.mu.Unlock()
	to.Lasts = true
	link := relay.NewLink(to)
	passed, err := link.Open(ctx, relay.Keep, &relaypb.Call{Method: relay.StandByMethod, Epoch: owner.Epoch})
	if err != nil {
		link.Close()
		return nil, err
	}
	context.AfterFunc(ctx, link.Close)
	return &standbyStream{ctx: ctx, passed: passed}, nil
}

// reachTimeout is how long an owner tries to reach a dispatcher that is to stand by.
const reachTimeout = 2 * time.Second

// reaches is an error if another dispatcher of the store is not reached at an address.
func (s *Server) reaches(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	s.owners.mu.Lock()
	link := relay.NewLink(s.linkTo(address))
	s.owners.mu.Unlock()
	defer link.Close()
	return link.Reach(ctx)
}

// Refuses reports whether the port of an owner refuses a connection: its process has ended, or takes no more calls.
func (s *Server) Refuses(ctx context.Context, owner Owner) bool {
	conn, err := relay.Dial(ctx, owner.Address)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
}

// standbyStream is the end of the dispatcher that stands by.
type standbyStream struct {
	ctx    context.Context //nolint:containedctx // of the stream
	passed *relay.Passed
	ended  error // why nothing more comes than what is there; nil: more may come
}

// Send implements [FeedStream].
func (f *standbyStream) Send(message []byte) error { return f.passed.Send(f.ctx, message, false) }

// Receive implements [FeedStream].
func (f *standbyStream) Receive() ([]byte, error) {
	if f.ended == nil {
		select {
		case m := <-f.passed.Messages:
			return m.GetData(), nil
		case answer := <-f.passed.Answer:
			f.ended = errors.Join(io.EOF, statusIn(answer))
		case <-f.passed.Broken():
			f.ended = io.ErrUnexpectedEOF
		case <-f.ctx.Done():
			return nil, context.Cause(f.ctx)
		}
	}
	select {
	case m := <-f.passed.Messages: // it came before the end
		return m.GetData(), nil
	default:
		return nil, f.ended
	}
}

// feed serves the stream of a dispatcher that stands by.
func (c *chain) feed(stream *relay.Stream) *relaypb.Answer {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-c.closing:
			cancel()
		case <-ended:
		}
	}()
	if c.feeds == nil {
		return &relaypb.Answer{Outcome: relaypb.Outcome_OUTCOME_NOT_OWNER}
	}
	if err := c.reaches(ctx, stream.Sender()); err != nil { // as an owner it would be of no use
		c.trouble.Warn("a dispatcher cannot stand by: this one does not reach its address; give it another one by --advertise",
			zap.String("address", stream.Sender()), zap.Error(err))
		return answerOf(status.Errorf(codes.FailedPrecondition, "the owner does not reach %.80q: %v", stream.Sender(), err))
	}
	if err := c.feeds(ctx, &feedStream{stream}); err != nil && ctx.Err() == nil {
		return answerOf(status.Error(codes.Unavailable, err.Error()))
	}
	return new(relaypb.Answer)
}

// feedStream is the end of the owner.
type feedStream struct{ stream *relay.Stream }

// Send implements [FeedStream].
func (f *feedStream) Send(message []byte) error { return f.stream.SendMsg(message) }

// Receive implements [FeedStream].
func (f *feedStream) Receive() (message []byte, err error) {
	err = f.stream.RecvMsg(func(data []byte) { message = data })
	return message, err
}
