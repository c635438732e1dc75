package server

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// drains ends streams when the server drains that would else wait for as long as their
// clients like: those that only watch (health, reflection) at once, those of fetches
// between two fetches. Streams of heartbeats see to it themselves.
func (s *Server) drains(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if f, ok := stream.Context().Value(fetchStreamKey{}).(*fetchStream); ok {
		f.ServerStream = stream
		if most := s.cfg.MaxFetches; !s.fetches.add(f, most) {
			return s.limits.tooManyWaiters("too many open streams of fetches", most)
		}
		defer s.fetches.remove(f)
		return handler(srv, f)
	}
	if s.limits.policies[info.FullMethod] != classProbe {
		return handler(srv, stream)
	}
	ended := make(chan error, 1)
	go func() { ended <- handler(srv, stream) }()
	select {
	case err := <-ended:
		return err
	case <-s.draining:
		// The handler's stream ends with this return, and with it the handler.
		return errStopping()
	}
}

// fetchStreams are the streams of fetches that are open.
type fetchStreams struct {
	mu       sync.Mutex // guards what follows
	open     map[*fetchStream]struct{}
	stopping bool
}

// add notes a stream; false: there are as many as may be. One that waits for its client
// takes as much as a parked fetch, for as long as its connection lasts.
func (s *fetchStreams) add(f *fetchStream, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= most {
		return false
	}
	if s.open == nil {
		s.open = make(map[*fetchStream]struct{})
	}
	s.open[f] = struct{}{}
	if s.stopping {
		f.stop()
	}
	return true
}

func (s *fetchStreams) remove(f *fetchStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, f)
}

// stop ends those that wait for a fetch, and each other once it has answered its own.
func (s *fetchStreams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for f := range s.open {
		f.stop()
	}
}

// fetchStream is a stream of fetches that can be ended where it waits for the next. Only
// the end of its context interrupts that, which gRPC tells as CANCELED. A goroutine that
// waits in the handler's place could tell DRAINING, but would take as much memory as a
// parked fetch; one for each message, a quarter of what a fetch costs.
type fetchStream struct {
	grpc.ServerStream
	interrupt context.CancelFunc

	mu       sync.Mutex // guards what follows
	waiting  bool       // for a fetch
	stopping bool
}

type fetchStreamKey struct{}

// tapFetches gives each stream of fetches a context that can be ended. It ends by itself
// with the context that it was made of; not sooner, since by then the stream's status tells
// of its own end.
func tapFetches(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName != pb.DispatchService_StreamingFetchTask_FullMethodName {
		return ctx, nil
	}
	f := &fetchStream{}
	ctx, f.interrupt = context.WithCancel(context.WithValue(ctx, fetchStreamKey{}, f))
	return ctx, nil
}

func (f *fetchStream) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopping = true
	if f.waiting {
		f.interrupt()
	}
}

// waits notes whether the stream waits for a fetch; false: it is to end.
func (f *fetchStream) waits(now bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = now
	return !f.stopping
}

// RecvMsg receives a fetch.
func (f *fetchStream) RecvMsg(m any) error {
	if !f.waits(true) {
		return errStopping()
	}
	err := f.ServerStream.RecvMsg(m)
	if !f.waits(false) {
		return errStopping()
	}
	return err
}
