// Package peers bounds what one peer can take of a server, beside the calls that package admit bounds.
//
// A peer is an address of IPv4, or a /64 of IPv6. Connections are counted where they are accepted, of
// each address and of all; one too many is closed. Open streams and the bytes that an address holds are counted by the
// HTTP/2 frames of its connections, because grpc-go shows neither a request before it is complete nor when a stream is
// sent to its end. The bytes are those of requests without an answer, also incomplete ones, and of answers that are
// not sent. A new stream of an address that has too many is refused, last of all one that keeps or settles leases. If
// an address has too many bytes, its connection with most of them is closed. Of the requests of an address, only a part
// is worked on at once (Turn): the rest waits, so that others get the processor.
package peers

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"
)

const (
	// leastAtWork is what a small request counts for.
	leastAtWork = 4 << 10
	// MaxReflections are the streams of server reflection that one address may have open: a tool has one for a moment, and each
	// request takes a millisecond of the processor.
	MaxReflections = 64
	// aheadEach is how many messages of one address are read a second while earlier ones of their streams wait, and
	// aheadAtOnce how many at once.
	aheadEach   = 5000
	aheadAtOnce = 100
)

// Config bounds all peers.
type Config struct {
	// Connections at once, and of them those of one address.
	Connections, AddressConnections int
	// AddressStreams are how many streams the connections of one address may have open, and AddressBytes how many bytes
	// they may hold.
	AddressStreams, AddressBytes int
}

// Peers are the connections of a server.
type Peers struct {
	// Refused counts connections that were closed, and streams and calls that were refused, by the limit.
	Refused *prometheus.CounterVec

	cfg Config
	log *zap.Logger
	// logged keeps the log short while connections are closed.
	logged rate.Sometimes

	mu        sync.Mutex // guards the rest
	count     int
	addresses map[string]*address
}

// address is where connections come from.
type address struct {
	key           string
	streams, held atomic.Int64               // held: bytes
	reflections   atomic.Int64               // open streams of server reflection
	work          [lines]*semaphore.Weighted // bytes at work, by line
	ahead         *rate.Limiter              // messages that are read ahead
	conns         map[*Conn]struct{}         // guarded by Peers.mu
}

// New makes peers without a connection.
func New(cfg Config, log *zap.Logger) *Peers {
	p := &Peers{
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waggle_refused_peers_total",
			Help: "Connections that were closed and streams that were refused because of what their address, or all, have taken, by limit.",
		}, []string{"limit"}),
		cfg: cfg, log: log, logged: rate.Sometimes{Interval: time.Second}, addresses: make(map[string]*address),
	}
	for _, limit := range []string{limitAll, limitAddress, limitStreams, limitReflections, limitBytes, LimitNewcomers} {
		p.Refused.WithLabelValues(limit)
	}
	return p
}

// The limits that a refusal names.
const (
	limitAll         = "connections"
	limitAddress     = "connections_per_address"
	limitStreams     = "streams_per_address"
	limitReflections = "reflections_per_address"
	limitBytes       = "bytes_per_address"
	// LimitNewcomers is that of collectors that were granted nothing, whose calls its caller counts.
	LimitNewcomers = "new_collectors"
)

// Listen bounds the connections of a listener. plain: they carry HTTP/2 without TLS.
func (p *Peers) Listen(l net.Listener, plain bool) net.Listener { return &listener{l, p, plain} }

type listener struct {
	net.Listener
	peers *Peers
	plain bool
}

// Accept returns the next connection that is within the limits. One that has no IP address is not bounded: it comes
// from this machine.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &Conn{Conn: raw, peers: l.peers, plain: l.plain, streams: make(map[uint32]stream)}
		if _, ok := raw.RemoteAddr().(*net.TCPAddr); !ok {
			return c, nil
		}
		limit := l.peers.add(c)
		if limit == "" {
			return c, nil
		}
		l.peers.Refused.WithLabelValues(limit).Inc()
		_ = raw.Close() // it was never used
	}
}

// add lets a connection in, or returns the limit that it is over.
func (p *Peers) add(c *Conn) (limit string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := addressOf(c.Conn.RemoteAddr())
	from := p.addresses[key]
	switch {
	case p.count >= p.cfg.Connections:
		return limitAll
	case from == nil:
		from = &address{key: key, conns: make(map[*Conn]struct{}), work: newWork(), ahead: rate.NewLimiter(aheadEach, aheadAtOnce)}
		p.addresses[key] = from
	case len(from.conns) >= p.cfg.AddressConnections:
		return limitAddress
	}
	c.from = from
	from.conns[c] = struct{}{}
	p.count++
	return ""
}

func newWork() (work [lines]*semaphore.Weighted) {
	for line := range work {
		work[line] = semaphore.NewWeighted(bytesAtWork[line])
	}
	return work
}

// remove forgets a connection.
func (p *Peers) remove(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(c.from.conns, c)
	p.count--
	if len(c.from.conns) == 0 {
		delete(p.addresses, c.from.key)
	}
}

// Full reports whether the address of a new stream has more open than are allowed, and how many are. A fifth of them is
// kept for streams that keep or settle leases.
func (p *Peers) Full(ctx context.Context, keeps bool) (most int, full bool) {
	c := Of(ctx)
	if c == nil {
		return 0, false
	}
	if most = p.cfg.AddressStreams; !keeps {
		most -= most / 5
	}
	if c.from.streams.Load() <= int64(most) {
		return most, false
	}
	p.Refused.WithLabelValues(limitStreams).Inc()
	return most, true
}

// Reflect counts a stream of server reflection until leave is called. full: its address has more than [MaxReflections].
func (p *Peers) Reflect(ctx context.Context) (leave func(), full bool) {
	c := Of(ctx)
	if c == nil {
		return func() {}, false
	}
	if full = c.from.reflections.Add(1) > MaxReflections; full {
		p.Refused.WithLabelValues(limitReflections).Inc()
	}
	return func() { c.from.reflections.Add(-1) }, full
}

// Line is what requests of an address wait in. Those of one line do not wait for those of another.
type Line int

// bytesAtWork are how many bytes of the requests of one address are at work at once in each line. The others wait, so that
// calls of other addresses wait behind no more. Beats come on streams, which are read no further meanwhile: with fewer of
// them at work, the streams that wait cost others more than those at work.
var bytesAtWork = [lines]int64{Beats: 1 << 20, Settle: 256 << 10, Other: 256 << 10, Bodies: BodiesAtWork, KeepingBodies: BodiesAtWork}

// BodiesAtWork are the bytes of large requests over HTTP that one address may have on their way at once.
const BodiesAtWork = 16 << 20

// The lines.
const (
	Beats  Line = iota // heartbeats
	Settle             // calls that keep or settle leases
	Other
	Bodies        // large requests over HTTP, until they have come
	KeepingBodies // those of calls that keep or settle leases
	lines
)

// Turn waits until the address of a call may have its request at work, which ends when leave is called.
func Turn(ctx context.Context, line Line, bytes int) (leave func(), err error) {
	c := Of(ctx)
	if c == nil {
		return func() {}, nil
	}
	weight, of := min(max(int64(bytes), leastAtWork), bytesAtWork[line]), c.from.work[line]
	if err := of.Acquire(ctx, weight); err != nil {
		return nil, fmt.Errorf("wait for other calls of the address: %w", err)
	}
	return func() { of.Release(weight) }, nil
}

// Ahead waits until another message of a stream may be read while earlier ones wait, so that an address that sends as fast as
// it can does not take the processor from others.
func Ahead(ctx context.Context) error {
	c := Of(ctx)
	if c == nil {
		return nil
	}
	if err := c.from.ahead.Wait(ctx); err != nil {
		return fmt.Errorf("wait for other messages of the address: %w", err)
	}
	return nil
}

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
	c.countsNoMore()
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

// overflow closes the connection of an address that holds the most, if the address holds too much.
func (p *Peers) overflow(from *address) {
	if from.held.Load() <= int64(p.cfg.AddressBytes) {
		return
	}
	p.mu.Lock()
	var most *Conn
	bytes := 0
	for c := range from.conns {
		if n := c.holds(); n > bytes {
			most, bytes = c, n
		}
	}
	p.mu.Unlock()
	if most == nil || from.held.Load() <= int64(p.cfg.AddressBytes) {
		return
	}
	p.Refused.WithLabelValues(limitBytes).Inc()
	p.logged.Do(func() {
		p.log.Warn("closed the connection that holds the most: its address holds too many bytes of requests and unread answers",
			zap.String("address", from.key), zap.Int("bytes", bytes), zap.Int("limit", p.cfg.AddressBytes))
	})
	_ = most.Close() // its reader gets the error
}

// addressOf is what connections are counted by.
func addressOf(a net.Addr) string {
	var ip netip.Addr
	if a, ok := a.(*net.TCPAddr); ok {
		ip = a.AddrPort().Addr().Unmap()
	}
	if ip.Is6() {
		return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
	}
	return ip.String()
}
