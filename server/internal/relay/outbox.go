package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
)

// outbox is one stream to the owner, with the calls that have no answer yet.
type outbox struct {
	ctx context.Context //nolint:containedctx // of the stream
	end context.CancelCauseFunc
	out *sender

	maxBytes int // of a call

	mu    sync.Mutex // guards what follows
	last  uint64     // id of a call
	calls map[uint64]*pending
}

// pending is a call that has no answer yet.
type pending struct {
	answer chan *relaypb.Answer  // of capacity 1
	stream chan *relaypb.Message // messages of a stream; nil: the call is unary
	// gone is closed when nobody takes messages any more, of a stream that has a connection of its own; nil: others share it.
	gone <-chan struct{}
}

// receive delivers answers until the stream ends; then its calls are broken.
func (o *outbox) receive(stream passStream) {
	for {
		item := new(relaypb.PassResponse)
		if err := stream.RecvMsg(item); err != nil {
			o.end(err)
			return
		}
		if m := item.GetMessage(); m != nil {
			o.deliver(m)
		} else if answer := item.GetAnswer(); answer != nil {
			if p := o.take(answer.GetId()); p != nil {
				p.answer <- answer
			}
		}
	}
}

// deliver gives a stream its next message. One that nobody takes messages from is ended, so that others do not wait. If there are no
// others then the owner waits, and no message is lost: also after a break those that came before it are delivered.
func (o *outbox) deliver(m *relaypb.Message) {
	o.mu.Lock()
	p := o.calls[m.GetId()]
	o.mu.Unlock()
	if p == nil || p.stream == nil {
		return
	}
	if p.gone != nil {
		select {
		case p.stream <- m:
		case <-p.gone:
		}
		return
	}
	select {
	case p.stream <- m:
	default:
		if o.take(m.GetId()) != nil {
			close(p.stream)
		}
	}
}

// take ends a call, once.
func (o *outbox) take(id uint64) *pending {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.calls[id]
	delete(o.calls, id)
	return p
}

// begin sends a call.
func (o *outbox) begin(ctx context.Context, call *relaypb.Call, p *pending) error {
	if proto.Size(call) > o.maxBytes {
		return ErrTooLarge
	}
	o.mu.Lock()
	if len(o.calls) >= MaxCalls {
		o.mu.Unlock()
		return ErrTooMany
	}
	o.last++
	call.Id = o.last
	o.calls[call.GetId()] = p
	o.mu.Unlock()
	err := o.send(ctx, &relaypb.PassRequest{Item: &relaypb.PassRequest_Call{Call: call}})
	if err != nil {
		o.take(call.GetId())
	}
	return err
}

// send sends an item.
func (o *outbox) send(ctx context.Context, item *relaypb.PassRequest) error {
	if o.ctx.Err() != nil {
		return ErrNotSent
	}
	err := o.out.send(ctx.Done(), item)
	if err != nil && !errors.Is(err, ErrNotSent) {
		o.end(err) // what is sent in part breaks the stream
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return err
}

// cancel ends a call whose caller has gone, also one that was answered.
func (o *outbox) cancel(id uint64) {
	o.take(id)
	_ = o.send(o.ctx, &relaypb.PassRequest{Item: &relaypb.PassRequest_Cancel{Cancel: &relaypb.Cancel{Id: id}}}) // a stream that broke has canceled it
}

// Call passes a unary call. undo, if it is not nil, undoes what the answer gives. The error wraps [ErrNotSent], [ErrTooMany],
// [ErrTooLarge] or [ErrBroken], or is the cause of the end of ctx. When moved is closed, the call is given up as broken.
func (l *Link) Call(ctx context.Context, class Class, call *relaypb.Call, moved <-chan struct{}) (answer *relaypb.Answer, undo func(), err error) {
	o, err := l.outbox(ctx, class)
	if err != nil {
		return nil, nil, err
	}
	p := &pending{answer: make(chan *relaypb.Answer, 1)}
	if err := o.begin(ctx, call, p); err != nil {
		return nil, nil, err
	}
	select {
	case answer = <-p.answer:
	case <-ctx.Done():
		go o.cancel(call.GetId())
		return nil, nil, context.Cause(ctx)
	case <-moved:
		go o.cancel(call.GetId())
		return nil, nil, fmt.Errorf("%w: another dispatcher owns it now", ErrBroken)
	case <-o.ctx.Done():
		select {
		case answer = <-p.answer: // it came before the end
		default:
			return nil, nil, fmt.Errorf("%w: %w", ErrBroken, context.Cause(o.ctx)) //nolint:contextcheck // why the stream ended
		}
	}
	if answer.GetUndoable() {
		undo = func() { o.cancel(answer.GetId()) }
	}
	return answer, undo, nil
}

// Passed is a stream that is passed on.
type Passed struct {
	// Messages are what the owner sends. It is closed if they were not taken in time.
	Messages <-chan *relaypb.Message
	// Answer is the end of the stream.
	Answer <-chan *relaypb.Answer

	outbox *outbox
	id     uint64
}

// Open passes a stream on, until [Passed.Close]. The errors are those of [Link.Call].
func (l *Link) Open(ctx context.Context, class Class, call *relaypb.Call) (*Passed, error) {
	o, err := l.outbox(ctx, class)
	if err != nil {
		return nil, err
	}
	p := &pending{answer: make(chan *relaypb.Answer, 1), stream: make(chan *relaypb.Message, 2*MaxAhead)}
	if l.cfg.Lasts {
		p.gone = ctx.Done()
	}
	if err := o.begin(ctx, call, p); err != nil {
		return nil, err
	}
	return &Passed{Messages: p.stream, Answer: p.answer, outbox: o, id: call.GetId()}, nil
}

// Send sends a message; last: there are no more, and no data.
func (p *Passed) Send(ctx context.Context, data []byte, last bool) error {
	message := &relaypb.Message{Id: p.id, Data: data, Last: last}
	return p.outbox.send(ctx, &relaypb.PassRequest{Item: &relaypb.PassRequest_Message{Message: message}})
}

// Broken is closed when the stream to the owner broke.
func (p *Passed) Broken() <-chan struct{} { return p.outbox.ctx.Done() }

// Close ends the stream.
func (p *Passed) Close() {
	if p.outbox.take(p.id) != nil {
		p.outbox.cancel(p.id)
	}
}
