package peers

import (
	"context"
	"net"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// writeTimeout is how long one write to a connection may take: a peer that reads nothing at all is gone.
const writeTimeout = 20 * time.Second

// Conn is a connection, with what its peer holds.
type Conn struct {
	net.Conn
	peers *Peers
	from  *address
	plain bool // HTTP/2 without TLS

	preface int // bytes of the client's preface that came
	in, out frames

	mu      sync.Mutex // guards the rest
	streams map[uint32]stream
	held    int
	closed  bool
}

// remoteAddress is the address of a peer; by it, a call's connection is found.
type remoteAddress struct {
	net.Addr
	conn *Conn
}

// Of is the connection of a call's context; nil if it came through no listener of [Peers].
func Of(ctx context.Context) *Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if remote, ok := p.Addr.(*remoteAddress); ok {
			return remote.conn
		}
	}
	return nil
}

// RemoteAddr is the address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return &remoteAddress{c.Conn.RemoteAddr(), c} }

// Read reads. It yields after a full read, so that a fast sender does not starve others.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == len(b) {
		runtime.Gosched()
	}
	if c.plain {
		c.received(b[:n])
	}
	return n, err
}

// Write writes, and fails if the peer reads nothing for a while.
func (c *Conn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	if c.plain {
		c.sent(b)
	}
	return c.Conn.Write(b)
}

// Close closes the connection, once; what it held is free then.
func (c *Conn) Close() error {
	c.mu.Lock()
	held, streams, closed := c.held, len(c.streams), c.closed
	c.held, c.streams, c.closed = 0, nil, true
	c.mu.Unlock()
	if closed {
		return nil
	}
	c.from.held.Add(-int64(held))
	c.from.streams.Add(-int64(streams))
	c.peers.remove(c)
	return c.Conn.Close()
}

// Hold counts bytes that the peer holds from now on, or fewer if it is negative.
func (c *Conn) Hold(bytes int) {
	c.mu.Lock()
	c.hold(bytes)
	c.mu.Unlock()
	c.peers.overflow(c.from)
}

// hold is Hold by one who holds the lock.
func (c *Conn) hold(bytes int) {
	if bytes != 0 && !c.closed {
		c.held += bytes
		c.from.held.Add(int64(bytes))
	}
}

func (c *Conn) holds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// open counts a new stream.
func (c *Conn) open(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.streams[id]; !known && !c.closed {
		c.streams[id] = stream{}
		c.from.streams.Add(1)
	}
}

// end forgets a stream.
func (c *Conn) end(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, known := c.streams[id]; known {
		delete(c.streams, id)
		c.from.streams.Add(-1)
		c.hold(-s.part - s.whole)
	}
}

// change changes a stream that is open, and counts what its peer holds by that.
func (c *Conn) change(id uint32, by func(*stream)) {
	c.mu.Lock()
	if s, known := c.streams[id]; known {
		before := s.part + s.whole
		by(&s)
		c.streams[id] = s
		c.hold(s.part + s.whole - before)
	}
	c.mu.Unlock()
	c.peers.overflow(c.from)
}

// Credentials are those of a server with TLS, with the HTTP/2 inside of its connections followed.
func Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	return &following{c}
}

type following struct {
	credentials.TransportCredentials
}

// ServerHandshake makes the handshake.
func (f *following) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := f.TransportCredentials.ServerHandshake(raw)
	if c, ok := raw.(*Conn); ok && err == nil {
		conn = &inner{conn, c}
	}
	return conn, info, err
}

// Clone copies the credentials.
func (f *following) Clone() credentials.TransportCredentials {
	return &following{f.TransportCredentials.Clone()}
}

// inner is the HTTP/2 inside of a TLS connection.
type inner struct {
	net.Conn
	outer *Conn
}

// Read is Read of [Conn].
func (i *inner) Read(b []byte) (int, error) {
	n, err := i.Conn.Read(b)
	i.outer.received(b[:n])
	return n, err
}

// Write is Write of [Conn].
func (i *inner) Write(b []byte) (int, error) {
	i.outer.sent(b)
	return i.Conn.Write(b)
}
