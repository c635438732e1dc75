package relay

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	relaypb "github.com/waggle-crawl/waggle/server/internal/relay/proto/waggle/relay/v1"
)

// broken is a stream that brings so many messages, and then breaks.
type broken int

func (*broken) SendMsg(any) error { return nil }

func (b *broken) RecvMsg(m any) error {
	if *b--; *b < 0 {
		return errors.New("it broke")
	}
	item := &relaypb.PassResponse{Item: &relaypb.PassResponse_Message{Message: &relaypb.Message{Id: 1}}}
	proto.Merge(m.(proto.Message), item) //nolint:forcetypeassert // as the outbox receives
	return nil
}

// What came before a break is delivered, also to one who takes it later: a standby that lacks it must load the store.
func TestOutbox_brokenLater(t *testing.T) {
	t.Parallel()
	const messages = 10 * MaxAhead
	ctx, end := context.WithCancelCause(context.WithoutCancel(t.Context()))
	o := &outbox{ctx: ctx, end: end, calls: make(map[uint64]*pending)}
	p := &pending{stream: make(chan *relaypb.Message, 1), gone: t.Context().Done()}
	o.calls[1] = p
	stream := broken(messages)
	go o.receive(&stream)
	for n := range messages {
		select {
		case <-p.stream:
			continue
		case <-ctx.Done():
		}
		select {
		case <-p.stream:
		default:
			t.Fatalf("the stream ended after %d of %d messages: %v", n, messages, context.Cause(ctx))
		}
	}
	<-ctx.Done()
}
