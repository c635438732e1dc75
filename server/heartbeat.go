package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// streams is what all heartbeat streams share.
type streams struct {
	open     *atomic.Int64
	draining <-chan struct{}
	// grace is how long a stream is answered once it was told to reconnect.
	grace time.Duration
}

// received is one message of a stream, or its end.
type received struct {
	beat *pb.HeartbeatRequest
	err  error
}

// silentBeats in a row make a collector gone ([dispatch.GoneAfter]).
const silentBeats = 3

// heartbeatStream is one open stream.
type heartbeatStream struct {
	service *dispatchService
	stream  pb.DispatchService_HeartbeatServer
	// id and session of the first message; the others must have the same.
	id, session string
	// silence after which the stream is ended: its collector is as good as
	// gone, and comes back with a stream of its own if it is not.
	silence time.Duration
}

// Heartbeat answers each beat with one message, in order. When the dispatcher
// drains, the collector is told to reconnect, and still answered for a while.
func (s *dispatchService) Heartbeat(stream pb.DispatchService_HeartbeatServer) error {
	s.streams.open.Add(1)
	defer s.streams.open.Add(-1)
	h := &heartbeatStream{service: s, stream: stream, silence: silentBeats * dispatch.IdleBeat}
	return h.run(stream.Context())
}

func (h *heartbeatStream) run(ctx context.Context) error {
	messages := h.receive(ctx)
	draining := h.service.streams.draining
	silent := time.NewTimer(h.silence)
	defer silent.Stop()
	grace := time.NewTimer(0)
	grace.Stop() // until the dispatcher drains
	defer grace.Stop()
	for {
		select {
		case m := <-messages:
			if errors.Is(m.err, io.EOF) {
				return nil
			}
			if m.err != nil {
				return m.err
			}
			if err := h.answer(ctx, m.beat); err != nil {
				return err
			}
			silent.Reset(h.silence)
		case <-ctx.Done():
			// The end may have been received and not passed on.
			return context.Cause(ctx)
		case <-draining:
			if err := h.stream.Send(&pb.HeartbeatResponse{Reconnect: true}); err != nil {
				return err
			}
			draining = nil // told once
			grace.Reset(h.service.streams.grace)
		case <-grace.C:
			return errStopping()
		case <-silent.C:
			return fmt.Errorf("no beat in %v: %w", h.silence, context.DeadlineExceeded)
		}
	}
}

// receive reads messages until the stream ends, which it does when the handler
// returns.
func (h *heartbeatStream) receive(ctx context.Context) <-chan received {
	messages := make(chan received)
	go func() {
		for {
			beat, err := h.stream.Recv()
			select {
			case messages <- received{beat, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return messages
}

func (h *heartbeatStream) answer(ctx context.Context, beat *pb.HeartbeatRequest) error {
	leave, err := h.service.limits.renewals.enter(pb.DispatchService_Heartbeat_FullMethodName, proto.Size(beat))
	if err != nil {
		return err
	}
	defer leave()
	done := h.service.limits.hold()
	defer done()
	if err := h.same(beat.GetCollector()); err != nil {
		return err
	}
	result, err := h.service.beat(ctx, beat)
	if err != nil {
		return err
	}
	h.silence = silentBeats * max(dispatch.IdleBeat, result.GetNextHeartbeat().AsDuration())
	return h.stream.Send(toStreamBeat(result))
}

// same keeps a stream to the collector that opened it.
func (h *heartbeatStream) same(info *pb.CollectorInfo) error {
	if h.id == "" {
		h.id, h.session = info.GetId(), info.GetSession()
		return nil
	}
	var c checks
	if info.GetId() != h.id {
		c.fail("collector.id", info.GetId(), "must be %q, with which the stream began", h.id)
	}
	if info.GetSession() != h.session {
		c.fail("collector.session", info.GetSession(), "must be %q, with which the stream began", h.session)
	}
	return c.err()
}
