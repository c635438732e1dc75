package server

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

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
	secret := s.owners.secret
	s.owners.mu.Unlock()
	link := relay.NewLink(relay.Config{Sender: s.Advertised(), Address: owner.Address, Secret: secret, TLS: s.certs != nil, Lasts: true})
	passed, err := link.Open(ctx, relay.Keep, &relaypb.Call{Method: relay.StandByMethod, Epoch: owner.Epoch})
	if err != nil {
		link.Close()
		return nil, err
	}
	f := &standbyStream{ctx: ctx, passed: passed, came: make(chan struct{}, 1)}
	go func() {
		defer link.Close()
		f.collect()
	}()
	return f, nil
}

// Refuses reports whether the port of an owner refuses a connection: its process has ended, or takes no more calls.
func (s *Server) Refuses(ctx context.Context, owner Owner) bool {
	conn, err := relay.Dial(ctx, owner.Address)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
}

// maxFed is how many bytes may wait for a dispatcher that stands by.
const maxFed = 256 << 20

// standbyStream is the end of the dispatcher that stands by.
type standbyStream struct {
	ctx    context.Context //nolint:containedctx // of the stream
	passed *relay.Passed
	came   chan struct{} // has a value if a message or the end came

	mu       sync.Mutex // guards what follows
	messages [][]byte
	bytes    int
	err      error // nothing more comes
}

// collect takes messages at once: a stream whose messages wait ends.
func (f *standbyStream) collect() {
	err := f.collectAll()
	f.passed.Close()
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
	f.wake()
}

func (f *standbyStream) collectAll() error {
	for {
		select {
		case m, ok := <-f.passed.Messages:
			if !ok {
				return errors.New("the messages were not taken in time")
			}
			if err := f.add(m.GetData()); err != nil {
				return err
			}
		case answer := <-f.passed.Answer:
			f.rest()
			return errors.Join(io.EOF, statusIn(answer))
		case <-f.passed.Broken():
			f.rest()
			return io.ErrUnexpectedEOF
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		}
	}
}

// rest takes the messages that came before the end.
func (f *standbyStream) rest() {
	for {
		select {
		case m, ok := <-f.passed.Messages:
			if !ok || f.add(m.GetData()) != nil {
				return
			}
		default:
			return
		}
	}
}

func (f *standbyStream) add(message []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes += len(message); f.bytes > maxFed {
		return status.Errorf(codes.ResourceExhausted, "more than %d bytes of groups wait", maxFed)
	}
	f.messages = append(f.messages, message)
	f.wake()
	return nil
}

func (f *standbyStream) wake() {
	select {
	case f.came <- struct{}{}:
	default:
	}
}

// Send implements [FeedStream].
func (f *standbyStream) Send(message []byte) error { return f.passed.Send(f.ctx, message, false) }

// Receive implements [FeedStream].
func (f *standbyStream) Receive() ([]byte, error) {
	for {
		f.mu.Lock()
		if len(f.messages) > 0 {
			next := f.messages[0]
			f.messages, f.bytes = f.messages[1:], f.bytes-len(next)
			f.mu.Unlock()
			return next, nil
		}
		err := f.err
		f.mu.Unlock()
		if err != nil {
			return nil, err
		}
		<-f.came
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
