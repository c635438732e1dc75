// Package relay carries whole public calls from a dispatcher that does not own the store to the one that does. A [Link] sends
// them, a [Service] receives them. Between two dispatchers there is one gRPC stream for each [Class], so that beats never wait behind
// pages. Both sides prove that they know the secret that the store keeps (trust.go), since the owner believes who makes a
// call, and what its grants are.
package relay

import (
	"errors"
	"time"
)

// Version of the protocol. A dispatcher refuses a peer of another one.
const Version = 1

// Class is what shares a stream.
type Class int

// The classes.
const (
	Keep    Class = iota // beats and renewals
	Settle               // reports
	Fetch                // fetches: their answers may be pages
	Rest                 // all else
	Classes = int(Rest) + 1
)

// String is the name in metrics and logs.
func (c Class) String() string { return [Classes]string{"keep", "settle", "fetch", "rest"}[c] }

// Bounds.
const (
	// MaxCalls may be on their way on one stream; those that are parked are most of them.
	MaxCalls = 100_000
	// maxUnsent is how many bytes of answers may wait for a peer to read; a peer that lets more wait is not reading.
	maxUnsent = 256 << 20
	// MaxAhead is how many messages of a stream of a caller may be on their way without an answer.
	MaxAhead = 64
	// maxUndoable is how many answers of a stream can still be undone.
	maxUndoable = 1024
	// handshakeTimeout is how long a peer may take to prove itself.
	handshakeTimeout = 5 * time.Second
	// MaxOverhead is how much larger a call is than its request: it has the grants of its caller.
	MaxOverhead = 64 << 10
)

// Errors of a call that got no answer.
var (
	// ErrNotSent is of a call that the owner has not got.
	ErrNotSent = errors.New("the call was not passed on")
	// ErrBroken is of a call that was passed on: the owner may have done it.
	ErrBroken = errors.New("the stream to the owner of the store broke")
	// ErrTooMany is of a call that is one too many on its way.
	ErrTooMany = errors.New("too many calls are passed on at once")
	// ErrTooLarge is of a call that the owner would not take.
	ErrTooLarge = errors.New("the request is larger than the owner of the store takes")
)

// passStream is either end of a stream between dispatchers.
type passStream interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// sender sends items on a stream, one at a time.
type sender struct {
	stream passStream
	turn   chan struct{} // of capacity 1
}

func newSender(stream passStream) *sender { return &sender{stream, make(chan struct{}, 1)} }

// send sends one item, unless gone is closed before its turn.
func (s *sender) send(gone <-chan struct{}, item any) error {
	select {
	case s.turn <- struct{}{}:
	case <-gone:
		return ErrNotSent
	}
	defer func() { <-s.turn }()
	select {
	case <-gone:
		return ErrNotSent
	default:
	}
	return s.stream.SendMsg(item)
}

// StandByMethod is the stream of a dispatcher that stands by for the owner. It is no method of the API.
const StandByMethod = "/" + ServiceName + "/StandBy"

// ServiceName is the name of the service that peers call.
const ServiceName = "waggle.relay.v1.RelayService"
