package server

import (
	"container/list"
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/tap"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// fetchStreams are the streams of fetches that are open: no more than fetches may be
// parked, since one that waits for its client takes as much as a parked fetch. Where there
// are as many, a new one takes the place of the one that has waited longest for its client.
// So nobody is shut out by who opens streams and leaves them, under whatever ids; and a
// client that worked all the while opens another for its next fetch.
type fetchStreams struct {
	mu       sync.Mutex // guards what follows, and the state of each stream
	open     int
	idle     list.List // of *fetchStream: those that wait for their clients, the longest first
	stopping bool
}

// add notes a stream, or refuses it: there are as many as may be, and each has a fetch under
// way.
func (s *fetchStreams) add(f *fetchStream, l *limits) error {
	most := l.most[classFetch]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= most {
		longest := s.idle.Front()
		if longest == nil {
			return l.tooManyWaiters("too many open streams of fetches", most)
		}
		ended := longest.Value.(*fetchStream) //nolint:forcetypeassert // the list holds nothing else
		ended.state, ended.replaced = streamWorks, true
		s.idle.Remove(longest)
		ended.interrupt()
		s.open--
		l.shed.WithLabelValues(classFetch.String()).Inc()
	}
	s.open++
	f.streams = s
	return nil
}

func (s *fetchStreams) remove(f *fetchStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.replaced {
		f.turn(streamWorks)
		s.open--
	}
}

// stop ends those that wait for a fetch, and each other once it has answered its own.
func (s *fetchStreams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for e := s.idle.Front(); e != nil; e = e.Next() {
		if f := e.Value.(*fetchStream); f.state == streamReceives { //nolint:forcetypeassert // as above
			f.interrupt()
		}
	}
}

// streamState is what a stream of fetches does.
type streamState int

const (
	streamWorks    streamState = iota // its fetch is under way
	streamSends                       // its client is sent the answer
	streamReceives                    // its client is to send the next fetch
)

// fetchStream is a stream of fetches that can be ended where it waits for its client. Only
// the end of its context interrupts that, which gRPC tells as CANCELED. A goroutine that
// waits in the handler's place could tell why, but would take as much memory as a parked
// fetch; one for each message, a quarter of what a fetch costs.
type fetchStream struct {
	grpc.ServerStream
	interrupt context.CancelFunc
	streams   *fetchStreams

	// Guarded by streams.mu.
	state    streamState
	idle     *list.Element // its place in streams.idle, unless it works
	replaced bool          // by another one; it ends
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

// turn notes what the stream does now. The caller holds streams.mu.
func (f *fetchStream) turn(to streamState) {
	switch {
	case f.state == streamWorks && to != streamWorks:
		f.idle = f.streams.idle.PushBack(f)
	case f.state != streamWorks && to == streamWorks:
		f.streams.idle.Remove(f.idle)
	}
	f.state = to
}

// begins notes what the stream does from now on; an error: it is to end.
func (f *fetchStream) begins(to streamState) error {
	f.streams.mu.Lock()
	defer f.streams.mu.Unlock()
	switch {
	case f.replaced:
		return &refusal{code: codes.Canceled, text: "another stream of fetches took the place of this one, which waited for its client longest"}
	case f.streams.stopping && to != streamSends:
		return errStopping()
	}
	f.turn(to)
	return nil
}

// SendMsg sends the answer to a fetch.
func (f *fetchStream) SendMsg(m any) error {
	if err := f.begins(streamSends); err != nil {
		return err
	}
	return f.ServerStream.SendMsg(m)
}

// RecvMsg receives a fetch.
func (f *fetchStream) RecvMsg(m any) error {
	if err := f.begins(streamReceives); err != nil {
		return err
	}
	err := f.ServerStream.RecvMsg(m)
	if stop := f.begins(streamWorks); stop != nil {
		return stop
	}
	return err
}
