package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/peers"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// RenewLease is one beat as a plain call.
func (s *dispatchService) RenewLease(ctx context.Context, req *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	beat, err := wire.ReadBeat(req)
	if err != nil {
		return nil, err
	}
	result, err := s.beat(ctx, beat)
	if err != nil {
		return nil, err
	}
	return &pb.RenewLeaseResponse{Status: beat.Status(result)}, nil
}

func (s *dispatchService) beat(ctx context.Context, beat *wire.Beat) (*engine.BeatResult, error) {
	result, err := s.d.Beat(ctx, beat.Collector, beat.Leases)
	return result, wire.About(err, "collector_id", beat.Collector.ID, "session", beat.Collector.Session)
}

// heartbeat is one open stream.
type heartbeat struct {
	service *dispatchService
	stream  pb.DispatchService_HeartbeatServer
	who     *wire.Beat     // the first beat, without leases; all others are of its collector and session
	held    bool           // as in the last message
	pushes  *engine.Stream // from the first beat on
	// silence after which the stream ends: its collector is as good as gone, and comes back with a stream of its own if it
	// is not.
	silence time.Duration
}

// received is one message of a stream, or its end.
type received struct {
	beat *pb.HeartbeatRequest
	err  error
}

// Heartbeat answers each beat with one message, in order, and sends what is pushed between them. When the dispatcher
// drains, the collector is asked to reconnect, and still answered for a while. A stream that is opened then is asked when
// no more calls are taken: its collector may know no other dispatcher, and would else come back at once.
func (s *dispatchService) Heartbeat(stream pb.DispatchService_HeartbeatServer) error {
	s.heartbeats.Add(1)
	defer s.heartbeats.Add(-1)
	h := &heartbeat{service: s, stream: stream, silence: dispatch.GoneAfter}
	return h.run(stream.Context())
}

func (h *heartbeat) run(ctx context.Context) error {
	messages, draining := h.receive(ctx), h.service.draining
	select {
	case <-draining:
		draining = h.service.closing
	default:
	}
	silent := time.NewTimer(h.silence)
	defer silent.Stop()
	var grace <-chan time.Time // nil until the dispatcher drains
	var pushed <-chan struct{} // nil until the first beat
	defer func() { h.pushes.Close() }()
	for {
		var message *pb.HeartbeatResponse
		select {
		case m := <-messages:
			if errors.Is(m.err, io.EOF) {
				return nil
			}
			if m.err != nil {
				return m.err
			}
			var err error
			if message, err = h.answer(ctx, m.beat); err != nil {
				return err
			}
			silent.Reset(h.silence)
			pushed = h.pushes.Ready()
		case <-pushed:
			push := h.pushes.Take()
			if push.Replaced { // or that is old news, of a session which this one has replaced
				if _, err := h.service.beat(ctx, h.who); errors.Is(err, dispatch.ErrCollectorReplaced) {
					return err
				}
			}
			h.held = push.Held
			message = wire.Push(push)
		case <-draining:
			message = &pb.HeartbeatResponse{Reconnect: true, Status: &pb.LeaseStatus{Held: h.held}}
			draining, grace = nil, time.After(h.service.grace)
		case <-grace:
			return wire.ErrDraining
		case <-silent.C:
			return fmt.Errorf("no beat in %v: %w", h.silence, context.DeadlineExceeded)
		case <-ctx.Done():
			return context.Cause(ctx) // the end may have been received and not passed on
		}
		if err := h.send(message); err != nil {
			return err
		}
	}
}

// sendTimeout is how long a message may wait for its collector to read those before it.
const sendTimeout = 10 * time.Second

// send sends a message. After a timeout, the end of the stream ends the send that is still pending.
func (h *heartbeat) send(message *pb.HeartbeatResponse) error {
	sent, late := make(chan error, 1), time.NewTimer(sendTimeout)
	defer late.Stop()
	go func() { sent <- h.stream.Send(message) }()
	select {
	case err := <-sent:
		return err
	case <-late.C:
		return fmt.Errorf("the collector did not read its heartbeat stream for %v: %w", sendTimeout, context.DeadlineExceeded)
	}
}

// A stream gets answers to beatsAtOnce messages at once, and to beatsEach a second: a collector whose leases last for a second
// sends three. Further messages wait in the window of the stream, so that thousands of streams cost little.
const (
	beatsEach   = 10
	beatsAtOnce = 30
)

// receive reads messages until the stream ends, which it does when the handler returns.
func (h *heartbeat) receive(ctx context.Context) <-chan received {
	messages, pace := make(chan received), rate.NewLimiter(beatsEach, beatsAtOnce)
	go func() {
		for {
			if pace.Wait(ctx) != nil {
				return
			}
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

func (h *heartbeat) answer(ctx context.Context, req *pb.HeartbeatRequest) (*pb.HeartbeatResponse, error) {
	size := proto.Size(req)
	done, err := peers.Turn(ctx, peers.Beats, size)
	if err != nil {
		return nil, err
	}
	defer done()
	leave, err := h.service.limits.Beat(size)
	if err != nil {
		return nil, err
	}
	defer leave()
	beat, err := wire.ReadBeat(req)
	if err != nil {
		return nil, err
	}
	if h.pushes == nil { // before the beat, so that nothing falls between the two
		h.who = &wire.Beat{Collector: beat.Collector}
		h.pushes = h.service.d.OpenStream(beat.Collector)
	}
	if err := beat.IsOf(h.who.Collector.ID, h.who.Collector.Session); err != nil {
		return nil, err
	}
	result, err := h.service.beat(ctx, beat)
	if err != nil {
		return nil, err
	}
	const missed = int(dispatch.GoneAfter / dispatch.IdleBeat)
	h.silence, h.held = time.Duration(missed)*max(dispatch.IdleBeat, result.Next), result.Held
	return &pb.HeartbeatResponse{Status: beat.Status(result)}, nil
}
