package server

import (
	"context"
	"errors"
	"fmt"
	"io"
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
// that: the last beat is repeated at the next owner, which answers it, and pushes from then on.
type moving struct {
	chain  *chain
	ctx    context.Context //nolint:containedctx // of the stream
	caller *auth.Caller
	client grpc.ServerStream
	method string
	beats  chan fed

	taking sync.Mutex // held while a beat is taken; guards what follows
	last   []byte     // the last beat that was taken
	held   bool       // as in the last message
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
	for {
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
		if time.Since(began) > againEach { // it was served for a while
			until = time.Now().Add(moveTimeout)
		}
		if err := c.owners.again(ctx, r, until); err != nil {
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
				if e.err != nil {
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
	ctx, cancel := context.WithCancelCause(m.ctx)
	stop := context.AfterFunc(r.local.over, func() { cancel(errInterrupted) })
	defer stop()
	defer m.taking.Unlock()
	defer m.taking.Lock() // the handler takes no more
	defer cancel(nil)
	err = serve(&localStream{m.client, m, ctx, m.lastBeat()})
	return r.local.over.Err() != nil && m.ctx.Err() == nil && err != nil && isMove(nil, err), err
}

func (m *moving) lastBeat() []byte {
	m.taking.Lock()
	defer m.taking.Unlock()
	return m.last
}

// localStream is a moving stream while it is served here.
type localStream struct {
	grpc.ServerStream

	moving *moving
	ctx    context.Context //nolint:containedctx // of the stream, while it is here
	again  []byte          // the beat that is repeated first; nil: none
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
	next := fed{data: s.again}
	if s.again == nil {
		select {
		case next = <-m.beats:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
	s.again = nil
	if next.err != nil {
		return next.err
	}
	m.last = next.data
	to.(*envelope).decodeBytes(next.data, m.chain.maxBytes, true, proto.Unmarshal) //nolint:forcetypeassert // see decodedStream
	return nil
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
	var ahead unanswered
	if last := m.lastBeat(); last != nil {
		if p.Send(m.ctx, last, false) != nil {
			return true, nil
		}
		ahead.add(last)
	}
	return m.exchange(r, p, &ahead)
}

// unanswered are the sizes of beats that were passed on and have no answer.
type unanswered struct {
	sizes []int
	bytes int
}

func (u *unanswered) add(beat []byte) {
	u.sizes, u.bytes = append(u.sizes, len(beat)), u.bytes+len(beat)
}

// remove removes the oldest, if there is one: the message may have been a push.
func (u *unanswered) remove() {
	if len(u.sizes) > 0 {
		u.sizes, u.bytes = u.sizes[1:], u.bytes-u.sizes[0]
	}
}

// full: the client's own window fills until some are answered.
func (u *unanswered) full() bool {
	return len(u.sizes) >= relay.MaxAhead || u.bytes >= streamWindow
}

// exchange passes beats on, and messages back.
func (m *moving) exchange(r *route, p *relay.Passed, ahead *unanswered) (moved bool, err error) {
	beats, closing := m.beats, m.chain.closing
	var grace <-chan time.Time
	for {
		from := beats
		if ahead.full() {
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
				m.keep(next.data)
				ahead.add(next.data)
			}
			if p.Send(m.ctx, next.data, next.err != nil) != nil {
				return beats != nil, nil
			}
		case message, ok := <-p.Messages:
			if !ok {
				return false, errUnreadBeats
			}
			ahead.remove()
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

func (m *moving) keep(beat []byte) {
	m.taking.Lock()
	defer m.taking.Unlock()
	m.last = beat
}

// sendBack sends a message of the owner to the client.
func (m *moving) sendBack(data []byte) error {
	message := new(pb.HeartbeatResponse)
	if err := proto.Unmarshal(data, message); err != nil {
		return err
	}
	m.held = message.GetStatus().GetHeld()
	return sendInTime(m.client, message, 1)
}

// errUnreadBeats is of a client that does not read its stream.
var errUnreadBeats = fmt.Errorf("the collector did not read its heartbeat stream: %w", context.DeadlineExceeded)
