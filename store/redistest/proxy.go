package redistest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy in front of a server, of Redis or any other, that a test makes faulty. It begins by passing
// everything on. Each mode replaces the one before and holds for open connections too. Requests always reach the server
// except under Cut, Withhold and ResetAt: the other faults are those of replies, which leave a client unsure of what was done.
type Proxy struct {
	target   string
	listener net.Listener
	done     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	mode    mode
	cutFrom string        // clients of that IP address are cut; empty: none
	changed chan struct{} // closed when the mode changes, which ends a delay
	links   map[*link]struct{}
	faults  int
	closed  bool
}

// mode is what happens to replies; at most one field is set.
type mode struct {
	cut       bool
	blackhole bool
	delay     time.Duration
	reset     bool
	left      int // with reset: the bytes of reply still to pass
	withhold  bool
	at        *resetAt
}

// resetAt is at which requests connections are reset.
type resetAt struct {
	text   []byte
	every  int
	behind bool
	passed int // requests with the text since the last reset
}

// link is one client's connection and its counterpart to the server.
type link struct {
	client, server *net.TCPConn
	swallowed      bool // guarded by Proxy.mu; replies are missing, so it can never pass again
	ends           bool // guarded by Proxy.mu; the next reply is swallowed, and the link reset
}

// errReset ends a link that ran into ResetAfter or ResetAt.
var errReset = errors.New("reset by the proxy")

// NewProxy runs a proxy on a free loopback port, until the test ends, to a target HOST:PORT, such as Server.Addr. The
// target need not be up; a client whose connection finds no target is cut off.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatalf("start a proxy to %s: %v", target, err)
	}
	p := &Proxy{target: target, listener: listener, changed: make(chan struct{}), links: map[*link]struct{}{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p.done.Go(func() { p.accept(ctx, listener) })
	t.Cleanup(func() {
		cancel()
		p.close()
	})
	return p
}

// Addr is the proxy's address, 127.0.0.1:PORT.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL is the proxy's address for a Redis client: redis://127.0.0.1:PORT/0.
func (p *Proxy) URL() string { return "redis://" + p.Addr() + "/0" }

// Faults is how many replies (chunks as they came from the server) were swallowed or reset, and how many connections
// Cut ended or turned away. A test waits for it to know that its fault took place.
func (p *Proxy) Faults() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// Pass lets everything through. Connections whose replies were swallowed are reset, since their next reply would answer
// an older request.
func (p *Proxy) Pass() { p.set(mode{}, "") }

// Cut resets every connection and each new one, as when the server's host is gone.
func (p *Proxy) Cut() { p.set(mode{cut: true}, "") }

// CutFrom does what Cut does, to clients of one IP address alone: a network that is parted.
func (p *Proxy) CutFrom(ip string) { p.set(mode{}, ip) }

// Blackhole swallows replies: requests reach the server and take effect, and the client hears nothing.
func (p *Proxy) Blackhole() { p.set(mode{blackhole: true}, "") }

// Delay holds each reply back by d.
func (p *Proxy) Delay(d time.Duration) { p.set(mode{delay: d}, "") }

// ResetAfter passes n more bytes of reply, over all connections, then resets the connection that carries the next byte,
// once: afterwards everything passes again. With 0, the next request takes effect and its reply is lost.
func (p *Proxy) ResetAfter(n int) { p.set(mode{reset: true, left: n}, "") }

// Withhold holds requests back until the mode changes, as a network does that drops packets one way: they reach the server
// then, even if their client has given up. Replies pass.
func (p *Proxy) Withhold() { p.set(mode{withhold: true}, "") }

// ResetAt resets the connection of every n-th request that has a text in it: before the server gets it, or, behind, once the
// server has answered it. Such a request must come in one piece.
func (p *Proxy) ResetAt(text string, n int, behind bool) {
	p.set(mode{at: &resetAt{text: []byte(text), every: n, behind: behind}}, "")
}

func (p *Proxy) set(m mode, cutFrom string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.cutFrom = m, cutFrom
	close(p.changed)
	p.changed = make(chan struct{})
	for l := range p.links {
		cut := p.cuts(l)
		if cut || l.swallowed {
			p.drop(l)
		}
		if cut {
			p.faults++
		}
	}
}

// cuts reports whether a client is to be cut off. It is called with the mutex held.
func (p *Proxy) cuts(l *link) bool {
	from, _ := l.client.RemoteAddr().(*net.TCPAddr)
	return p.mode.cut || p.cutFrom != "" && from != nil && from.IP.String() == p.cutFrom
}

// accept serves connections until the listener closes.
func (p *Proxy) accept(ctx context.Context, listener *net.TCPListener) {
	for {
		client, err := listener.AcceptTCP()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(ctx, client) })
	}
}

// serve copies between a client and the server until either ends.
func (p *Proxy) serve(ctx context.Context, client *net.TCPConn) {
	l := &link{client: client}
	if !p.add(ctx, l) {
		reset(client)
		return
	}
	p.done.Go(func() {
		if p.requests(ctx, l) != nil || l.server.CloseWrite() != nil {
			p.remove(l)
		}
	})
	buf := make([]byte, 32<<10)
	for {
		n, err := l.server.Read(buf)
		if n > 0 && p.reply(ctx, l, buf[:n]) != nil {
			p.remove(l)
			return
		}
		if err != nil {
			p.end(l, err)
			return
		}
	}
}

// requests copies what the client sends, until its end.
func (p *Proxy) requests(ctx context.Context, l *link) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := l.client.Read(buf)
		if n > 0 {
			if err := p.request(ctx, l, buf[:n]); err != nil {
				return err
			}
			if _, err := l.server.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// request does to one chunk of request what the mode says, before it goes on. An error ends the link.
func (p *Proxy) request(ctx context.Context, l *link, chunk []byte) error {
	for {
		p.mu.Lock()
		withhold, changed := p.mode.withhold, p.changed
		if !withhold {
			break
		}
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer p.mu.Unlock()
	at := p.mode.at
	if at == nil || !bytes.Contains(chunk, at.text) {
		return nil
	}
	if at.passed++; at.passed < at.every {
		return nil
	}
	at.passed = 0
	p.faults++
	if at.behind {
		l.ends = true
		return nil
	}
	return errReset
}

// end passes the server's end of a link on: an orderly one as such.
func (p *Proxy) end(l *link, err error) {
	p.mu.Lock()
	whole := errors.Is(err, io.EOF) && !l.swallowed
	p.mu.Unlock()
	if whole && l.client.CloseWrite() == nil {
		_ = l.client.SetLinger(-1)
		_ = l.client.Close()
	}
	p.remove(l)
}

// add connects l to the server and notes it, unless the proxy is cut or closed or the server is away.
func (p *Proxy) add(ctx context.Context, l *link) bool {
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", p.target)
	if err != nil {
		return false
	}
	l.server = server.(*net.TCPConn)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cuts(l) || p.closed {
		p.faults++
		reset(l.server)
		return false
	}
	p.links[l] = struct{}{}
	return true
}

// reply does to one chunk of reply what the mode says. An error ends the link.
func (p *Proxy) reply(ctx context.Context, l *link, chunk []byte) error {
	p.mu.Lock()
	delay, changed := p.mode.delay, p.changed
	p.mu.Unlock()
	if delay > 0 {
		if err := hold(ctx, delay, changed); err != nil {
			return err
		}
	}
	pass, end := p.judge(l, len(chunk))
	if pass == 0 {
		return end
	}
	// Not under the lock: a client that does not read must not keep the test from changing the mode.
	_, err := l.client.Write(chunk[:pass])
	return errors.Join(err, end)
}

// judge says how many of the next n bytes of reply pass on l, and whether the link ends after them.
func (p *Proxy) judge(l *link, n int) (pass int, end error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m := &p.mode; {
	case l.ends:
		return 0, errReset
	case m.blackhole:
		l.swallowed = true
		p.faults++
		return 0, nil
	case m.reset && n > m.left:
		n = m.left
		*m = mode{}
		p.faults++
		return n, errReset
	case m.reset:
		m.left -= n
	}
	return n, nil
}

// hold waits for d, or less when the mode changes.
func hold(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(l)
}

// drop resets both ends of a link. It is called with the mutex held and may be repeated.
func (p *Proxy) drop(l *link) {
	delete(p.links, l)
	reset(l.client)
	reset(l.server)
}

// close ends the proxy and waits for its goroutines.
func (p *Proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		p.drop(l)
	}
	p.mu.Unlock()
	p.done.Wait()
}

// reset closes a connection by RST, so that the other end sees a fault and not an orderly end. A connection that is
// closed already gives an error that says nothing new.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
