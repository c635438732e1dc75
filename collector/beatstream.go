package collector

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// beatStream is an open heartbeat stream with a goroutine that reads it.
type beatStream struct {
	client grpc.BidiStreamingClient[wagglev1.HeartbeatRequest, wagglev1.HeartbeatResponse]
	life
	opened   time.Time
	messages chan *wagglev1.HeartbeatResponse // answers to beats, and what is pushed between them
	broken   chan struct{}                    // closed when the stream is over; then err says why
	err      error

	// leaving is true if the dispatcher wants the stream replaced. It belongs to the loop that beats.
	leaving bool
}

// openBeatStream opens a stream that lasts no longer than the life does.
func openBeatStream(life life, service wagglev1.DispatchServiceClient) (*beatStream, error) {
	client, err := service.Heartbeat(life.ctx)
	if err != nil {
		life.end(err)
		return nil, err
	}
	s := &beatStream{
		client: client, life: life, opened: time.Now(),
		messages: make(chan *wagglev1.HeartbeatResponse), broken: make(chan struct{}),
	}
	go s.read()
	return s, nil
}

// read passes messages on until the stream is over.
func (s *beatStream) read() {
	defer close(s.broken)
	for {
		message, err := s.client.Recv()
		if err == nil {
			select {
			case s.messages <- message:
				continue
			case <-s.ctx.Done():
			}
		}
		if cause := context.Cause(s.ctx); errors.Is(cause, errSilent) || err == nil {
			err = cause // not the cancellation that it caused
		}
		s.err = err
		s.end(err)
		return
	}
}

// send sends a beat. If the stream is over, it returns the stream's error.
func (s *beatStream) send(beat *wagglev1.HeartbeatRequest) error {
	if err := s.client.Send(beat); err != nil {
		s.end(err)
		<-s.broken // the reader has the true error
		return s.err
	}
	return nil
}

// close ends the stream and waits for its reader.
func (s *beatStream) close() {
	s.end(context.Canceled)
	<-s.broken
}
