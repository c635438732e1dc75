package redis_test

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"testing"

	"github.com/waggle-crawl/waggle/store/backend/redis"
)

// network is how the dispatchers of a test reach each other, by their addresses, in memory.
type network struct {
	t     *testing.T
	feeds sync.WaitGroup

	mu      sync.Mutex // guards what follows
	hosts   map[string]*redis.Backend
	closed  map[string]bool // streams cannot be opened
	refuses map[string]bool // the port refuses connections
	lingers bool            // the owner does not notice that a standby has gone
	holds   bool            // what a standby reports does not arrive
	asked   chan struct{}   // ports are asked once it is closed; nil: at once
	wires   map[*wire]struct{}
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{
		t: t, hosts: make(map[string]*redis.Backend), closed: make(map[string]bool), refuses: make(map[string]bool),
		wires: make(map[*wire]struct{}),
	}
	t.Cleanup(func() {
		n.cut("")
		n.feeds.Wait()
	})
	return n
}

// join makes an owner that others reach under its name, and that stands by.
func (n *network) join(name, url string, change ...func(*redis.Config)) *owner {
	n.t.Helper()
	o := newOwner(n.t, url, append(change, n.config(name))...)
	n.host(name, o.Backend)
	return o
}

// config has a backend reach the others.
func (n *network) config(name string) func(*redis.Config) {
	return func(c *redis.Config) {
		c.Name, c.Address = name, name
		c.Reach = func(ctx context.Context, to redis.Other) (redis.Stream, error) { return n.reach(ctx, name, to.Address) }
		c.Refuses = func(_ context.Context, of redis.Other) bool {
			n.mu.Lock()
			asked := n.asked
			n.mu.Unlock()
			if asked != nil {
				<-asked
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.refuses[of.Address]
		}
	}
}

// host gives streams to a backend from now on.
func (n *network) host(name string, b *redis.Backend) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[name] = b
	delete(n.closed, name)
	delete(n.refuses, name)
}

func (n *network) reach(ctx context.Context, from, to string) (redis.Stream, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed[to] || n.hosts[to] == nil {
		return nil, errors.New("nobody is there")
	}
	w := &wire{from: from, to: to, changed: make(chan struct{}), holds: n.holds}
	n.wires[w] = struct{}{}
	context.AfterFunc(ctx, func() {
		n.mu.Lock()
		lingers := n.lingers
		n.mu.Unlock()
		w.set(func() {
			w.left = true
			w.cut = w.cut || !lingers
		})
	})
	n.feed(context.WithoutCancel(ctx), w, n.hosts[to])
	return wireEnd{w, 0}, nil
}

// feed has an owner serve a wire.
func (n *network) feed(ctx context.Context, w *wire, owner *redis.Backend) {
	ctx, cancel := context.WithCancel(ctx)
	n.feeds.Go(func() {
		defer cancel()
		w.await(ctx.Done(), func() bool { return w.cut })
	})
	n.feeds.Go(func() {
		defer cancel()
		_ = owner.Feed(ctx, wireEnd{w, 1}) // the standby finds the end
		w.set(func() { w.cut = true })
	})
}

// each calls something for the wires of a dispatcher; "" is all.
func (n *network) each(of string, do func(*wire)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.wires {
		if of == "" || w.from == of || w.to == of {
			do(w)
		}
	}
}

// change changes the wires of a dispatcher.
func (n *network) change(of string, how func(*wire)) {
	n.each(of, func(w *wire) { w.set(func() { how(w) }) })
}

// cut breaks the streams of a dispatcher. What was sent before arrives.
func (n *network) cut(of string) { n.change(of, func(w *wire) { w.cut = true }) }

// close has no streams be opened to a dispatcher, and its port refuse connections or not.
func (n *network) close(of string, refuses bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed[of], n.refuses[of] = true, refuses
}

// open undoes close.
func (n *network) open(of string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.closed, of)
	delete(n.refuses, of)
}

// die ends a dispatcher as the death of its process does.
func (n *network) die(b *redis.Backend, name string, refuses bool) {
	n.t.Helper()
	n.close(name, refuses)
	n.each("", func(w *wire) {
		if w.to == name {
			w.set(func() { w.lose = math.MaxInt })
		}
	})
	b.Stop()
	n.cut(name)
	if err := b.Kill(); err != nil {
		n.t.Error(err)
	}
}

// wire is a stream from a standby to an owner, in memory.
type wire struct {
	from, to string

	mu       sync.Mutex    // guards what follows
	changed  chan struct{} // closed at a change, and then another one
	messages [2][][]byte   // to the standby, to the owner
	stuck    bool          // the standby takes no more
	lose     int           // so many messages to the standby are lost
	cut      bool          // nothing more is sent
	left     bool          // the standby receives no more
	holds    bool          // of what the standby sends only the first message arrives
	met      bool          // it has sent that
}

func (w *wire) set(how func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	how()
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits for a condition, or until done is closed.
func (w *wire) await(done <-chan struct{}, is func() bool) {
	for {
		w.mu.Lock()
		is, changed := is(), w.changed
		w.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-done:
			return
		}
	}
}

// wireEnd is that of the standby, 0, or of the owner, 1.
type wireEnd struct {
	*wire
	side int
}

// Send implements [redis.Stream].
func (e wireEnd) Send(message []byte) (err error) {
	e.await(nil, func() bool { return e.cut || e.side == 0 || !e.stuck })
	e.set(func() {
		switch {
		case e.cut:
			err = io.ErrClosedPipe
		case e.side == 1 && e.lose > 0:
			e.lose--
		case e.side == 0 && e.holds && e.met:
		default:
			e.messages[1-e.side] = append(e.messages[1-e.side], append([]byte(nil), message...))
			e.met = e.met || e.side == 0
		}
	})
	return err
}

// Receive implements [redis.Stream].
func (e wireEnd) Receive() (message []byte, err error) {
	has := func() bool { return len(e.messages[e.side]) > 0 }
	ended := func() bool { return e.cut || e.side == 0 && e.left }
	e.await(nil, func() bool { return has() || ended() })
	e.set(func() {
		if err = io.EOF; has() {
			message, e.messages[e.side], err = e.messages[e.side][0], e.messages[e.side][1:], nil
		}
	})
	return message, err
}
