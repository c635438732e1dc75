package peers

import (
	"math"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// writeTimeout is how long one write to a connection may take: a peer that reads nothing at all is gone.
const writeTimeout = 20 * time.Second

// handshakeTimeout is how long the handshakes of a connection may take, before it is known whose it is.
const handshakeTimeout = 10 * time.Second

// Conn is a connection, with what its peer holds.
type Conn struct {
	net.Conn
	peers *Peers
	from  *address // nil: the connection is not bounded
	plain bool     // HTTP/2 without TLS

	preface  int // bytes of the client's preface that came
	in, out  frames
	code     uint32 // of the frame of a reset that comes
	entering uint32 // the stream whose headers came last
	rest     []byte // what was read behind them

	// unsent is how many bytes of answers its peer holds, beside held; negative: none are counted any more. Whoever takes from it
	// holds mu. Handlers that add do not: they would wait for each other at each answer.
	unsent atomic.Int64

	mu       sync.Mutex // guards the rest
	streams  map[uint32]stream
	answered []answered // the last of those calls that have a lost
	held     int
	closed   bool
	trusted  bool // it may hold what it needs
}

// answered is a call that was answered.
type answered struct {
	stream uint32
	lost   func()
}

// keptAnswers is how many answered calls of a connection can be found to be lost: more than are answered on it before
// the client's cancel of one comes.
const keptAnswers = 32

// Address is what the connections of the peer are counted by: an address, or a /64 of IPv6.
func (c *Conn) Address() string { return c.from.key }

// NetConn is the connection that it wraps.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// RemoteAddr is the address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return &remoteAddress{c.Conn.RemoteAddr(), c} }

// SetDeadline sets the deadline of the handshakes. grpc-go sets it for nothing else, and would give them two minutes.
func (c *Conn) SetDeadline(t time.Time) error {
	if !t.IsZero() {
		t = time.Now().Add(handshakeTimeout)
	}
	return c.Conn.SetDeadline(t)
}

// Read reads. It yields after a full read, so that a fast sender does not starve others.
func (c *Conn) Read(b []byte) (int, error) {
	if c.plain {
		return c.read(b, c.Conn)
	}
	n, err := c.Conn.Read(b)
	if n == len(b) {
		runtime.Gosched()
	}
	return n, err
}

// read reads HTTP/2, at most to the end of a frame of headers: gRPC enters the stream of these before it reads on. Between two
// of them it yields, so that the calls that one connection begins at once do not all come before those of others.
func (c *Conn) read(b []byte, from net.Conn) (n int, err error) {
	ahead := len(c.rest) > 0
	if ahead {
		runtime.Gosched()
		n = copy(b, c.rest)
	} else if n, err = from.Read(b); n == len(b) {
		runtime.Gosched()
	}
	end := c.received(b[:n])
	switch {
	case ahead:
		if c.rest = c.rest[end:]; len(c.rest) == 0 {
			c.rest = nil
		}
	case end < n:
		c.rest, err = slices.Clone(b[end:n]), nil // the error comes again
	}
	return end, err
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
	held, streams, closed := c.held, c.streams, c.closed
	c.held, c.streams, c.answered, c.closed = 0, nil, nil, true
	c.countsNoMore()
	c.mu.Unlock()
	if closed {
		return nil
	}
	for _, s := range streams {
		if s.lost != nil {
			go s.lost()
		}
	}
	if c.from != nil {
		c.from.held.Add(-int64(held))
		c.from.streams.Add(-int64(len(streams)))
		c.peers.remove(c)
	}
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
	if bytes != 0 && !c.closed && c.from != nil && !c.trusted {
		c.held += bytes
		c.from.held.Add(int64(bytes))
	}
}

// Answer counts a message that was answered until it is sent, as far as can be known: a stream that is reset while its answer
// waits does not show how much that was. So this is too much rather than too little, until no stream is open.
func (c *Conn) Answer(bytes int) {
	n := int64(messageHeader + bytes)
	if c.unsent.Add(n) >= 0 {
		c.from.held.Add(n)
		c.peers.overflow(c.from)
	}
}

// sentOf counts what was sent of an answer. What came for it counts no more.
func (c *Conn) sentOf(id uint32, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.streams[id]
	if whole := s.whole; known && whole > 0 {
		s.whole = 0
		c.streams[id] = s
		c.hold(-whole)
	}
	c.forget(int64(bytes))
}

// forget takes from the bytes of answers, by one who holds the lock.
func (c *Conn) forget(bytes int64) {
	if bytes = min(bytes, c.unsent.Load()); bytes > 0 {
		c.unsent.Add(-bytes)
		c.from.held.Add(-bytes)
	}
}

// countsNoMore ends the count of answers, by one who holds the lock.
func (c *Conn) countsNoMore() {
	if unsent := c.unsent.Swap(math.MinInt64 / 2); unsent > 0 {
		c.from.held.Add(-unsent)
	}
}

func (c *Conn) holds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held + max(int(c.unsent.Load()), 0)
}

// open counts a new stream.
func (c *Conn) open(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.streams[id]; !known && !c.closed {
		c.streams[id] = stream{}
		c.count(1)
	}
}

// count counts open streams, by one who holds the lock.
func (c *Conn) count(streams int64) {
	if c.from != nil {
		c.from.streams.Add(streams)
	}
}

// end forgets a stream, by its end or by a reset.
func (c *Conn) end(id uint32, reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.streams[id]
	if !known {
		return
	}
	delete(c.streams, id)
	c.count(-1)
	c.hold(-s.part - s.whole)
	if len(c.streams) == 0 {
		c.forget(math.MaxInt64)
	}
	switch {
	case s.lost == nil:
	case reset:
		go s.lost()
	default:
		if len(c.answered) == keptAnswers {
			c.answered = slices.Delete(c.answered, 0, 1)
		}
		c.answered = append(c.answered, answered{id, s.lost})
	}
}

// canceled finds a call that was answered and that the client canceled before it got the answer.
func (c *Conn) canceled(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.answered, func(a answered) bool { return a.stream == id }); i >= 0 {
		go c.answered[i].lost()
		c.answered = slices.Delete(c.answered, i, i+1)
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
	if c.from != nil {
		c.peers.overflow(c.from)
	}
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
	return i.outer.read(b, i.Conn)
}

// Write is Write of [Conn].
func (i *inner) Write(b []byte) (int, error) {
	i.outer.sent(b)
	return i.Conn.Write(b)
}
