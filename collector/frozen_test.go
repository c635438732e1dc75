package collector_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// hosts leads to one server by several addresses, as if each were a dispatcher of a group. One can
// freeze, as by SIGSTOP: it takes connections, and what it has stays open, but no byte passes.
type hosts struct {
	listener *bufconn.Listener

	mu     sync.Mutex // guards frozen
	frozen map[string]chan struct{}
}

// serveHosts serves a dispatcher until the test ends.
func serveHosts(t *testing.T, d *dispatcher) *hosts {
	t.Helper()
	h := &hosts{listener: bufconn.Listen(1 << 20), frozen: make(map[string]chan struct{})}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	wagglev1.RegisterDispatchServiceServer(server, d)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(h.listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return h
}

// freeze freezes a host until it is thawed.
func (h *hosts) freeze(host string) (thaw func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	thawed := make(chan struct{})
	h.frozen[host] = thawed
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.frozen, host)
		close(thawed)
	}
}

// thawed is closed once the host goes on; nil if it is not frozen.
func (h *hosts) thawed(host string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.frozen[host]
}

func (h *hosts) dial(ctx context.Context, host string) (net.Conn, error) {
	c := &hostConn{hosts: h, host: host, closed: make(chan struct{})}
	if h.thawed(host) != nil {
		c.Conn, _ = net.Pipe() // to nobody, until the client gives up
		return c, nil
	}
	var err error
	c.Conn, err = h.listener.DialContext(ctx)
	return c, err
}

// hostConn is a connection to a host.
type hostConn struct {
	net.Conn
	hosts  *hosts
	host   string
	once   sync.Once
	closed chan struct{}
}

// wait waits for as long as the host is frozen, or until the client closes the connection.
func (c *hostConn) wait() {
	if thawed := c.hosts.thawed(c.host); thawed != nil {
		select {
		case <-thawed:
		case <-c.closed:
		}
	}
}

// Read gives nothing while the host is frozen.
func (c *hostConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wait()
	return n, err
}

// Write takes nothing while the host is frozen.
func (c *hostConn) Write(b []byte) (int, error) {
	c.wait()
	return c.Conn.Write(b)
}

// Close ends what waits, too.
func (c *hostConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestCollector_FrozenDispatcher freezes one of two dispatchers, and then the other one, so that one of them has the
// heartbeat stream: the collector loses no lease over it. What comes meanwhile it has from the other dispatcher, once it
// has given the frozen one up.
func TestCollector_FrozenDispatcher(t *testing.T) {
	t.Parallel()
	const slots = 6 // 2 tasks before anything is frozen, and 2 for each host that is
	for name, test := range map[string]struct {
		lease, frozen time.Duration
		// comes is when more tasks do: once the frozen dispatcher grants nothing any more. Where it goes on before it is
		// given up, only then: a collector counts a lease from when it sent the fetch that waited there.
		comes time.Duration
		waits time.Duration // at most, for these
	}{
		"for longer than a lease":          {3 * time.Second, 5 * time.Second, 6 * time.Second, 2 * time.Second},
		"for less than a lease":            {30 * time.Second, 20 * time.Second, 2 * time.Second, 16 * time.Second},
		"for long":                         {30 * time.Second, 5 * time.Minute, 2 * time.Second, 16 * time.Second},
		"for long, where leases are short": {3 * time.Second, 5 * time.Minute, 2 * time.Second, 16 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.lease = test.lease
				d.put("1-a", "1-b")
				h, handler := serveHosts(t, d), newBlocked()
				targets := []string{"a.test:1", "b.test:1"}
				r := start(t, d, handler, func(c *collector.Config) {
					c.Wait, c.Targets, c.Slots = time.Second, targets, slots
					c.DialOptions = []grpc.DialOption{grpc.WithContextDialer(h.dial)}
				})
				pass(time.Minute)
				for i, host := range targets {
					begun := len(handler.tasks)
					time.AfterFunc(test.frozen, h.freeze(host))
					pass(test.comes)
					d.put(fmt.Sprintf("1-c%d", i), fmt.Sprintf("1-d%d", i))
					pass(test.waits)
					if n := len(handler.tasks) - begun; n != 2 {
						t.Errorf("%d of 2 tasks that came when %s had frozen were begun within %v", n, host, test.waits)
					}
					pass(test.frozen + 30*time.Second)
				}
				for len(handler.causes) > 0 {
					t.Errorf("a task was stopped: %v", <-handler.causes)
				}
				d.checkRenewals(t, slots, test.lease)
				close(handler.let)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// checkRenewals holds that each lease was renewed before it ran out, until now.
func (d *dispatcher) checkRenewals(t *testing.T, leases int, duration time.Duration) {
	t.Helper()
	last := make(map[string]time.Time) // by lease token
	longest := time.Duration(0)
	for _, b := range d.beatCalls() {
		for _, l := range b.leases {
			if before, ok := last[l.GetLeaseToken()]; ok {
				longest = max(longest, b.at.Sub(before))
			}
			last[l.GetLeaseToken()] = b.at
		}
	}
	for _, at := range last {
		longest = max(longest, time.Since(at))
	}
	if len(last) != leases || longest >= duration {
		t.Errorf("%d leases were renewed, want %d; one not for %v, though it was of %v", len(last), leases, longest, duration)
	}
}
