package collector

import (
	"context"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// beatStream is an open heartbeat stream with a goroutine that reads it.
type beatStream struct {
	client grpc.BidiStreamingClient[wagglev1.HeartbeatRequest, wagglev1.HeartbeatResponse]
	life
	answers chan *wagglev1.HeartbeatResponse
	broken  chan struct{} // closed when the stream is over; then err says why
	err     error
}

// openStream opens a stream on any dispatcher. When that fails it is tried again later; beats go as calls meanwhile.
func (h *heartbeat) openStream() {
	stream := newLife(h.run.calling.ctx)
	stop := h.impatient(stream.end)
	client, err := h.run.control.Heartbeat(stream.ctx)
	stop()
	if err != nil {
		stream.end(err)
		h.dropStream(err)
		return
	}
	h.stream = &beatStream{
		client: client, life: stream,
		answers: make(chan *wagglev1.HeartbeatResponse), broken: make(chan struct{}),
	}
	go h.stream.read()
	h.run.stats.setStreaming(true)
}

// read hands answers over until the stream is over.
func (s *beatStream) read() {
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

// send sends a beat. Of a stream that is over it returns why.
func (s *beatStream) send(request *wagglev1.HeartbeatRequest) error {
	if err := s.client.Send(request); err != nil {
		s.end(err)
		<-s.broken // the reader has the true error
		return s.err
	}
	return nil
}

// dropStream gives a stream up that failed, or could not be had, and puts the next one off. Beats go as single calls
// meanwhile: whether those are answered is what matters.
func (h *heartbeat) dropStream(err error) {
	h.closeStream()
	wait := h.retry.next(err)
	h.reopen = time.Now().Add(wait)
	switch {
	case h.run.calling.ctx.Err() != nil:
	case isOutage(err):
		h.run.log.Debug("no heartbeat stream, beats go as single calls", zap.Duration("retry_in", wait), zap.Error(err))
	default:
		h.run.failed(streamCall, err, wait, h.retry.repeated())
	}
}

// closeStream ends the stream, if there is one, and waits for its reader.
func (h *heartbeat) closeStream() {
	if h.stream == nil {
		return
	}
	h.stream.end(context.Canceled)
	<-h.stream.broken
	h.stream = nil
	h.run.stats.setStreaming(false)
}
