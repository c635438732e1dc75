package server

import (
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/tap"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/admit"
	"github.com/waggle-crawl/waggle/server/internal/peers"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// tapped lets a stream of gRPC in, or refuses it, before anything of it is kept.
func (c *chain) tapped(ctx context.Context, info *tap.Info) (context.Context, error) {
	if err := c.enter(ctx, info.FullMethodName); err != nil {
		return ctx, err
	}
	if info.FullMethodName == pb.DispatchService_FetchTask_FullMethodName {
		ctx = peers.Enter(ctx)
	}
	return ctx, nil
}

// enter lets a call in, or refuses it, by what its address has open.
func (c *chain) enter(ctx context.Context, method string) error {
	if most, full := c.peers.Full(ctx, admit.Keeps(method)); full {
		return tooMany("the connections of this address have more calls and streams open than are allowed", most, method)
	}
	return nil
}

// tooMany refuses a stream because of what its address has open.
func tooMany(text string, limit int, method string) error {
	st, _ := wire.Status(nil, &wire.Refusal{
		Code: codes.ResourceExhausted, Reason: pb.ErrorReason_ERROR_REASON_RATE_LIMITED, Retry: time.Second,
		Text: text, Pairs: []string{"limit", strconv.Itoa(limit), "method", method},
	}, "")
	return st.Err()
}

// decode lets the request of a call be decoded once it is the turn of its address, or refuses it for load or rate.
func (c *chain) decode(ctx context.Context, method string, bytes int) (leave func(), err error) {
	if !admit.TakesTurn(method) {
		return c.limits.Decode(ctx, method, bytes)
	}
	line := peers.Other
	if admit.Keeps(method) {
		line = peers.Settle
	}
	done, err := peers.Turn(ctx, line, bytes)
	if err != nil {
		return nil, err
	}
	end, err := c.limits.Decode(ctx, method, bytes)
	if err != nil {
		done()
		return nil, err
	}
	return func() { end(); done() }, nil
}

// answer is a message that its peer holds from its encoding until it is sent.
type answer struct {
	message any
	peer    *peers.Conn
}

// answerTo makes an answer of a message to the peer of a call.
func answerTo(ctx context.Context, message any) any {
	if conn := peers.Of(ctx); conn != nil {
		return &answer{message, conn}
	}
	return message
}

// marshal encodes the message. An answer so small that grpc-go does not report when it is sent is part of what a stream costs.
func (a *answer) marshal(codec encoding.CodecV2) (mem.BufferSlice, error) {
	data, err := codec.Marshal(a.message)
	if err != nil || len(data) != 1 || mem.IsBelowBufferPoolingThreshold(data.Len()) {
		return data, err // the codec makes one buffer
	}
	bytes := data[0].ReadOnlyData()
	if cap(bytes)-len(bytes) > mostUnused {
		bytes = slices.Clone(bytes)
		data[0].Free()
		data[0] = mem.SliceBuffer(bytes)
	}
	a.peer.Hold(cap(bytes))
	return mem.BufferSlice{mem.NewBuffer(&bytes, sent{data[0], a.peer, cap(bytes)})}, nil
}

// mostUnused is how much of a buffer an answer may leave unused while it waits for its peer to read: grpc-go takes 1 MB for
// all that is longer than 32 KB.
const mostUnused = 64 << 10

// sent is the pool of the one buffer of an answer, which comes back once it is sent.
type sent struct {
	data mem.Buffer
	peer *peers.Conn
	held int
}

// Get is not called: the buffer was made.
func (sent) Get(length int) *[]byte { b := make([]byte, length); return &b }

// Put frees the answer.
func (s sent) Put(*[]byte) {
	s.peer.Hold(-s.held)
	s.data.Free()
}

// answering is a stream of gRPC that sends answers.
type answering struct{ grpc.ServerStream }

// SendMsg sends an answer.
func (s answering) SendMsg(m any) error { return s.ServerStream.SendMsg(answerTo(s.Context(), m)) }
