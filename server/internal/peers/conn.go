package peers

import (
	"context"
	"net"
	"runtime"
	"slices"
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
	from  *address // nil: the connection is not bounded
	plain bool     // HTTP/2 without TLS

	preface  int // bytes of the client's preface that came
	in, out  frames
	code     uint32 // of the frame of a reset that comes
	entering uint32 // the stream whose headers came last
	rest     []byte // what was read behind them

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

// remoteAddress is the address of a peer; by it, a call's connection is found.
type remoteAddress struct {
	net.Addr
	conn *Conn
}

// Of is the connection of a call's context; nil if it is not bounded.
func Of(ctx context.Context) *Conn {
	if c := remoteOf(ctx); c != nil && c.from != nil {
		return c
	}
	return nil
}

// Key is what the peer of a context is counted by: an address, or a /64 of IPv6. A peer without one has an empty key.
func Key(ctx context.Context) string {
	if c := Of(ctx); c != nil {
		return c.Address()
	}
	if p, ok := peer.FromContext(ctx); ok {
		if tcp, ok := p.Addr.(*net.TCPAddr); ok {
			return addressOf(tcp)
		}
	}
	return ""
}

// Trust lets the connection of a context hold what it needs from now on: it is of another dispatcher, which bounds what the callers
// hold whose calls it passes on.
func Trust(ctx context.Context) {
	c := Of(ctx)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold(-c.held)
	c.trusted = true
}

func remoteOf(ctx context.Context) *Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if remote, ok := p.Addr.(*remoteAddress); ok {
			return remote.conn
		}
	}
	return nil
}

// Address is what the connections of the peer are counted by: an address, or a /64 of IPv6.
func (c *Conn) Address() string { return c.from.key }

// NetConn is the connection that it wraps.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// RemoteAddr is the address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return &remoteAddress{c.Conn.RemoteAddr(), c} }

// entered is a call as a stream of its connection.
type entered struct {
	conn   *Conn
	stream uint32
}

type enteredKey struct{}

// Enter gives the context of a call its stream. It is called where gRPC lets a call in, before it reads more.
func Enter(ctx context.Context) context.Context {
	if remote := remoteOf(ctx); remote != nil {
		return context.WithValue(ctx, enteredKey{}, entered{remote, remote.entering})
	}
	return ctx
}

// Undo keeps what [OnLost] was given, for a call that another dispatcher has passed on.
type Undo struct {
	// Lost is what was given; nil: nothing.
	Lost func()
}

// With is ctx of a call for which [OnLost] only keeps what it is given.
func (u *Undo) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, enteredKey{}, u)
}

// OnLost calls lost, once, if the caller of an entered unary call does not get its answer: the client cancels the call,
// over gRPC also after the answer was sent, or the connection ends before that.
func OnLost(ctx context.Context, lost func()) {
	if c, ok := ctx.Value(enteredKey{}).(*Call); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lost = lost
		return
	}
	if u, ok := ctx.Value(enteredKey{}).(*Undo); ok {
		u.Lost = lost
		return
	}
	e, ok := ctx.Value(enteredKey{}).(entered)
	if !ok {
		return
	}
	e.conn.mu.Lock()
	defer e.conn.mu.Unlock()
	s, open := e.conn.streams[e.stream]
	if !open {
		go lost()
		return
	}
	s.lost = lost
	e.conn.streams[e.stream] = s
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
