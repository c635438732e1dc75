package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/relay"
	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// moving is a heartbeat stream of a store that several dispatchers share. It moves with the ownership, and its client sees nothing of
// that: the beats that have no answer are repeated at the next owner. If all have one, the last beat is, so that the owner pushes from
// then on; its answer goes to the client as a push, since a client counts answers.
type moving struct {
	chain  *chain
	ctx    context.Context //nolint:containedctx // of the stream
	caller *auth.Caller
	client grpc.ServerStream
	method string
	beats  chan fed

	taking sync.Mutex // held while a beat is taken

	mu         sync.Mutex // guards what follows
	unanswered [][]byte   // beats, the oldest first
	bytes      int        // of these
	last       []byte     // the last beat
	greets     bool       // the next answer is that of a beat which had one
	held       bool       // as in the last message
}

// took notes a beat that is given to the owner.
func (m *moving) took(beat []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.unanswered, m.bytes = beat, append(m.unanswered, beat), m.bytes+len(beat)
}

// repeated are the beats that the next owner gets first.
func (m *moving) repeated() [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.greets = len(m.unanswered) == 0 && m.last != nil
	if m.greets {
		return [][]byte{m.last}
	}
	return slices.Clone(m.unanswered)
}

// full: the client's own window fills until some beats are answered.
func (m *moving) full() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.unanswered) >= relay.MaxAhead-1 || m.bytes >= streamWindow
}

// forClient is a message of the owner as the client gets it.
func (m *moving) forClient(message *pb.HeartbeatResponse) *pb.HeartbeatResponse {
	m.mu.Lock()
	defer m.mu.Unlock()
	status := message.GetStatus()
	m.held = status.GetHeld()
	switch {
	case status.GetNextHeartbeat() == nil: // it was pushed
	case m.greets:
		m.greets = false
		return &pb.HeartbeatResponse{Status: &pb.LeaseStatus{Lost: status.GetLost(), Cancel: status.GetCancel(), Held: m.held}}
	case len(m.unanswered) > 0:
		m.unanswered, m.bytes = m.unanswered[1:], m.bytes-len(m.unanswered[0])
	}
	return message
}

// fed is a beat as it came, or the end of the stream.
type fed struct {
	data []byte
	err  error
}

// ownedStream has the owner serve a heartbeat stream.
func (c *chain) ownedStream(of *decodedStream, info *grpc.StreamServerInfo, serve func(*localStream) error) error {
	ctx := of.ctx
	m := &moving{chain: c, ctx: ctx, caller: of.caller, client: of.ServerStream, method: info.FullMethod, beats: make(chan fed)}
	go m.receive()
	until := time.Now().Add(moveTimeout)
	for tries := 0; ; tries++ {
		r, err := c.owners.await(ctx, until)
		if err != nil {
			return err
		}
		began := time.Now()
		var moved bool
		if r.local != nil {
			moved, err = m.serve(r, serve)
		} else {
			moved, err = m.pass(r)
		}
		if !moved {
			return err
		}
		if time.Since(began) > firstAgain { // it was served for a while
			tries, until = 0, time.Now().Add(moveTimeout)
		}
		if err := c.owners.again(ctx, r, tries, until); err != nil {
			return err
		}
	}
}

// receive receives beats until the stream ends, and checks each as the owner cannot: whether its caller may still call.
func (m *moving) receive() {
	for {
		beat := new(pb.HeartbeatRequest)
		e := &envelope{message: beat, keep: true, admit: func(int) (func(), error) { return func() {}, nil }}
		err := m.client.RecvMsg(e)
		if err == nil {
			err = recovered(func() error {
				if e.decode(m.chain.maxBytes); e.err != nil {
					return e.err
				}
				if err := e.unpack(); err != nil {
					return err
				}
				if err := m.caller.Check(); err != nil {
					return err
				}
				return m.caller.Covers(beat)
			})
		}
		select {
		case m.beats <- fed{e.raw, err}:
		case <-m.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// anyCollector is the grant of a stream at its owner: receive checks each beat by the grants of now, which may change.
var anyCollector = []*auth.Grant{{Role: auth.Collector}}

// vouched is the caller at the owner of the stream, if that is here.
func (m *moving) vouched() *auth.Caller {
	if m.caller == nil {
		return nil
	}
	return m.chain.guard.Vouched(m.method, m.caller.Identity, anyCollector)
}

// serve serves the stream here, until it ends or has moved.
func (m *moving) serve(r *route, serve func(*localStream) error) (moved bool, err error) {
	_, moved, err = r.local.during(m.ctx, m.method, func(ctx context.Context) (any, error) {
		return nil, serve(&localStream{m.client, m, ctx, m.repeated()})
	})
	m.taking.Lock() // the handler takes no more
	defer m.taking.Unlock()
	return moved, err
}

// localStream is a moving stream while it is served here.
type localStream struct {
	grpc.ServerStream

	moving *moving
	ctx    context.Context //nolint:containedctx // of the stream, while it is here
	again  [][]byte        // beats that are repeated first
}

// Context ends when the stream moves.
func (s *localStream) Context() context.Context { return s.ctx }

// RecvMsg receives the next beat into an envelope.
func (s *localStream) RecvMsg(to any) error {
	m := s.moving
	m.taking.Lock()
	defer m.taking.Unlock()
	if err := s.ctx.Err(); err != nil {
		return context.Cause(s.ctx)
	}
	var beat []byte
	if len(s.again) > 0 {
		beat, s.again = s.again[0], s.again[1:]
	} else {
		select {
		case next := <-m.beats:
			if next.err != nil {
				return next.err
			}
			beat = next.data
			m.took(beat)
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
	to.(*envelope).put(beat, nil) //nolint:forcetypeassert // see decodedStream
	return nil
}

// SendMsg sends a message to the client.
func (s *localStream) SendMsg(message any) error {
	return s.ServerStream.SendMsg(s.moving.forClient(message.(*pb.HeartbeatResponse))) //nolint:forcetypeassert // of the method
}

// pass passes the stream on, until it ends or has moved.
func (m *moving) pass(r *route) (moved bool, err error) {
	p, err := r.link.Open(m.ctx, relay.Keep, m.chain.callOf(m.ctx, m.caller, anyCollector, m.method))
	switch {
	case m.ctx.Err() != nil:
		return false, context.Cause(m.ctx)
	case errors.Is(err, relay.ErrTooMany):
		return false, tooMany(err.Error(), relay.MaxCalls, m.method)
	case err != nil:
		return true, nil
	}
	defer p.Close()
	again := m.repeated()
	if len(again) > relay.MaxAhead {
		return false, errUnread
	}
	for _, beat := range again {
		if p.Send(m.ctx, beat, false) != nil {
			return true, nil
		}
	}
	return m.exchange(r, p)
}

// exchange passes beats on, and messages back.
func (m *moving) exchange(r *route, p *relay.Passed) (moved bool, err error) {
	beats, closing := m.beats, m.chain.closing
	var grace <-chan time.Time
	for {
		from := beats
		if m.full() {
			from = nil
		}
		select {
		case next := <-from:
			if next.err != nil && !errors.Is(next.err, io.EOF) {
				return false, next.err
			}
			if next.err != nil {
				beats = nil
			} else {
				m.took(next.data)
			}
			if p.Send(m.ctx, next.data, next.err != nil) != nil {
				return beats != nil, nil
			}
		case message, ok := <-p.Messages:
			if !ok {
				return false, errUnread
			}
			if err := m.sendBack(message.GetData()); err != nil {
				return false, err
			}
		case answer := <-p.Answer:
			for len(p.Messages) > 0 {
				if err := m.sendBack((<-p.Messages).GetData()); err != nil {
					return false, err
				}
			}
			return m.ended(answer, beats == nil)
		case <-p.Broken():
			return beats != nil, nil
		case <-r.changed:
			return beats != nil, nil
		case <-closing:
			closing, grace = nil, time.After(m.chain.grace)
			if err := sendInTime(m.client, &pb.HeartbeatResponse{Reconnect: true, Status: &pb.LeaseStatus{Held: m.held}}, 1); err != nil {
				return false, err
			}
		case <-grace:
			return false, wire.ErrDraining
		case <-m.ctx.Done():
			return false, context.Cause(m.ctx)
		}
	}
}

// ended is the end of a stream at its owner. over: its client has ended it.
func (m *moving) ended(answer *relaypb.Answer, over bool) (moved bool, err error) {
	if m.chain.became(answer.GetOutcome()) != answered {
		return !over, nil
	}
	return false, statusIn(answer)
}

// sendBack sends a message of the owner to the client.
func (m *moving) sendBack(data []byte) error {
	message := new(pb.HeartbeatResponse)
	if err := proto.Unmarshal(data, message); err != nil {
		return err
	}
	return sendInTime(m.client, m.forClient(message), 1)
}
