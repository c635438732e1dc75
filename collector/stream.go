package collector

import (
	"context"

	"google.golang.org/grpc"
)

// stream is an open stream to a dispatcher with a goroutine that reads it.
type stream[Request, Answer any] struct {
	client grpc.BidiStreamingClient[Request, Answer]
	life
	answers chan *Answer
	broken  chan struct{} // closed when the stream is over; then err says why
	err     error
}

// readStream takes over a stream that was opened under the context of the life.
func readStream[Request, Answer any](life life, client grpc.BidiStreamingClient[Request, Answer]) *stream[Request, Answer] {
	s := &stream[Request, Answer]{client: client, life: life, answers: make(chan *Answer), broken: make(chan struct{})}
	go s.read()
	return s
}

// read hands answers over until the stream is over.
func (s *stream[Request, Answer]) read() {
	defer close(s.broken)
	for {
		answer, err := s.client.Recv()
		if err == nil {
			select {
			case s.answers <- answer:
				continue
			case <-s.ctx.Done():
			}
			err = context.Cause(s.ctx)
		}
		s.err = err
		s.end(err)
		return
	}
}

// send sends a message. Of a stream that is over it returns why.
func (s *stream[Request, Answer]) send(request *Request) error {
	if err := s.client.Send(request); err != nil {
		s.end(err)
		<-s.broken // the reader has the true error
		return s.err
	}
	return nil
}

// close ends the stream and waits for its reader.
func (s *stream[Request, Answer]) close() {
	s.end(context.Canceled)
	<-s.broken
}
