package peers

import (
	"context"
	"io"
	"sync"
)

// Call is a call over HTTP, which its handler counts: net/http follows the connection, and reads no more of a call than a
// window until its handler reads.
type Call struct {
	conn *Conn // nil: it is not bounded

	mu    sync.Mutex // guards the rest
	held  int
	lost  func() // of [OnLost]; nil: there is none
	ended bool
}

// Begin counts a call over HTTP as an open stream of its connection, until [Call.End].
func Begin(ctx context.Context) (context.Context, *Call) {
	c := &Call{conn: Of(ctx)}
	if c.conn != nil {
		c.conn.count(1)
	}
	return context.WithValue(ctx, enteredKey{}, c), c
}

// Hold counts bytes that the peer holds by the call from now on.
func (c *Call) Hold(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && !c.ended {
		c.held += bytes
		c.conn.Hold(bytes)
	}
}

// Answered ends what the peer holds: a message was sent.
func (c *Call) Answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
}

func (c *Call) release() {
	if c.conn != nil {
		c.conn.Hold(-c.held)
		c.held = 0
	}
}

// End ends the call. answered: its caller has got the answer, as far as is known.
func (c *Call) End(answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.release()
	if c.conn != nil {
		c.conn.count(-1)
	}
	if c.lost != nil && !answered {
		go c.lost()
	}
}

// Body is the body of the call's request; what is read of it is held.
func (c *Call) Body(body io.ReadCloser) io.ReadCloser { return &heldBody{body, c} }

type heldBody struct {
	io.ReadCloser
	call *Call
}

// Read reads.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.call.Hold(2 * n) // buffers that grow take twice as much
	return n, err
}
