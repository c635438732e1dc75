package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
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
	beat.Collector.Client = clientOf(ctx)
	result, err := s.d().Beat(ctx, beat.Collector, beat.Leases)
	return result, wire.About(err, "collector_id", beat.Collector.ID, "session", beat.Collector.Session)
}

// heartbeat is one open stream.
type heartbeat struct {
	service  *dispatchService
	stream   pb.DispatchService_HeartbeatServer
	who      *wire.Beat     // the first beat, without leases; all others are of its collector and session
	held     bool           // as in the last message
	pushes   *engine.Stream // from the first beat on
	stopping bool           // the collector stops
	// silence after which the stream ends: its collector is as good as gone, and comes back with a stream of its own if it
	// is not.
	silence time.Duration
}

// received is a beat that waits for its turn, with those that came after it, or the end of a stream.
type received struct {
	beat  *pb.HeartbeatRequest
	beats int // that its answer is for
	bytes int // of all of them
	err   error
	named map[leaseKey]int // leases of the beat, by place; nil until another one comes
}

// leaseKey is how a beat names a lease.
type leaseKey struct{ task, token string }

func keyOf(l *pb.LeaseBeat) leaseKey { return leaseKey{l.GetTaskId(), l.GetLeaseToken()} }

// takes gives a beat the effect of a later one too, and reports whether it could. What it says of its collector is what the
// later one says. Leases that only one of them names stay, since one beat need not name all, and so do cursors.
func (r *received) takes(later *received) bool {
	was, is := r.beat.GetCollector(), later.beat.GetCollector()
	if later.err != nil || r.bytes >= streamWindow || was.GetEnded() || is.GetEnded() || was.GetId() != is.GetId() || was.GetSession() != is.GetSession() {
		return false
	}
	if r.named == nil {
		r.named = make(map[leaseKey]int)
		for i, l := range r.beat.GetLeases() {
			r.named[keyOf(l)] = i
		}
	}
	more := 0
	for _, l := range later.beat.GetLeases() {
		if _, known := r.named[keyOf(l)]; !known {
			more++
		}
	}
	if len(r.beat.GetLeases())+more > wire.MaxBatch {
		return false
	}
	for _, l := range later.beat.GetLeases() {
		i, known := r.named[keyOf(l)]
		if !known {
			r.named[keyOf(l)] = len(r.beat.GetLeases())
			r.beat.Leases = append(r.beat.Leases, l)
			continue
		}
		if l.Cursor == nil {
			l.Cursor = r.beat.GetLeases()[i].Cursor
		}
		r.beat.Leases[i] = l
	}
	r.beat.Collector = is
	r.beats, r.bytes = r.beats+later.beats, r.bytes+later.bytes
	return true
}

// Heartbeat answers each beat with one message, in order, and sends what is pushed between them. Beats that wait are acted on
// together, and get the same answer. When no more calls are taken, each collector is asked to reconnect, and still answered
// for a while.
func (s *dispatchService) Heartbeat(stream pb.DispatchService_HeartbeatServer) error {
	s.heartbeats.Add(1)
	defer s.heartbeats.Add(-1)
	h := &heartbeat{service: s, stream: stream, silence: dispatch.GoneAfter}
	return h.run(stream.Context())
}

func (h *heartbeat) run(ctx context.Context) error {
	waiting, closing := h.receive(ctx), h.service.closing
	beats, pace := waiting, rate.NewLimiter(beatsEach, beatsAtOnce)
	var resume <-chan time.Time // nil while beats are taken
	silent := time.NewTimer(h.silence)
	defer silent.Stop()
	var grace <-chan time.Time // nil until the dispatcher closes
	var pushed <-chan struct{} // nil until the first beat
	defer func() {
		h.pushes.Close()
		if h.stopping {
			h.service.stopping.Add(-1)
		}
	}()
	for {
		var message *pb.HeartbeatResponse
		times := 1
		select {
		case m := <-beats:
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
			times = m.beats
			silent.Reset(h.silence)
			pushed = h.pushes.Ready()
			if wait := pace.Reserve().Delay(); wait > 0 {
				beats, resume = nil, time.After(wait)
			}
		case <-resume:
			beats, resume = waiting, nil
			continue
		case <-pushed:
			push := h.pushes.Take()
			if push.Replaced { // or that is old news, of a session which this one has replaced
				if _, err := h.service.beat(ctx, h.who); errors.Is(err, dispatch.ErrCollectorReplaced) {
					return err
				}
			}
			h.held = push.Held
			message = wire.Push(push)
		case <-closing:
			message = &pb.HeartbeatResponse{Reconnect: true, Status: &pb.LeaseStatus{Held: h.held}}
			closing, grace = nil, time.After(h.service.grace)
		case <-grace:
			return wire.ErrDraining
		case <-silent.C:
			return fmt.Errorf("no beat in %v: %w", h.silence, context.DeadlineExceeded)
		case <-ctx.Done():
			return context.Cause(ctx) // the end may have been received and not passed on
		}
		if err := h.send(message, times); err != nil {
			return err
		}
	}
}

// sendTimeout is how long a message may wait for its collector to read those before it.
const sendTimeout = 10 * time.Second

// errUnread is of a client that does not read its stream.
var errUnread = fmt.Errorf("the collector did not read its stream for %v: %w", sendTimeout, context.DeadlineExceeded)

// send sends a message so many times. After a timeout, the end of the stream ends the send that is still pending.
func (h *heartbeat) send(message *pb.HeartbeatResponse, times int) error {
	return sendInTime(h.stream, message, times)
}

func sendInTime(stream grpc.ServerStream, message *pb.HeartbeatResponse, times int) error {
	sent, late := make(chan error, 1), time.NewTimer(sendTimeout)
	defer late.Stop()
	go func() {
		err := stream.SendMsg(message)
		for i := 1; i < times && err == nil; i++ {
			err = stream.SendMsg(message)
		}
		sent <- err
	}()
	select {
	case err := <-sent:
		return err
	case <-late.C:
		return errUnread
	}
}

// The beats of a stream are acted on beatsAtOnce times at once, and beatsEach times a second: a collector whose leases last for
// a second sends three. Those that come meanwhile are taken together, as many bytes as fit into the window of a stream, and as
// many as an address may send ahead. The rest stays in the window, so that thousands of streams cost little.
const (
	beatsEach   = 10
	beatsAtOnce = 30
)

// receive reads beats until the stream ends, which it does when the handler returns. The channel holds those that wait, as one.
func (h *heartbeat) receive(ctx context.Context) <-chan received {
	waiting := make(chan received, 1)
	go func() {
		for {
			beat, err := h.stream.Recv()
			next := received{beat: beat, beats: 1, bytes: proto.Size(beat), err: err}
			ahead := false
			select {
			case earlier := <-waiting:
				if ahead = true; earlier.takes(&next) {
					next = earlier
				} else {
					waiting <- earlier // its turn comes first
				}
			default:
			}
			select {
			case waiting <- next:
			case <-ctx.Done():
				return
			}
			if err != nil || ahead && peers.Ahead(ctx) != nil {
				return
			}
		}
	}()
	return waiting
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
		h.pushes = h.service.d().OpenStream(beat.Collector)
	}
	if err := beat.IsOf(h.who.Collector.ID, h.who.Collector.Session); err != nil {
		return nil, err
	}
	if beat.Collector.Stopping && !h.stopping {
		h.stopping = true
		h.service.stopping.Add(1)
	}
	result, err := h.service.beat(ctx, beat)
	if err != nil {
		return nil, err
	}
	const missed = int(dispatch.GoneAfter / dispatch.IdleBeat)
	h.silence, h.held = time.Duration(missed)*max(dispatch.IdleBeat, result.Next), result.Held
	return &pb.HeartbeatResponse{Status: beat.Status(result)}, nil
}
