package collector_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// network leads to one server by several addresses, as if each were a dispatcher.
type network struct {
	listener *bufconn.Listener

	mu     sync.Mutex // guards what follows
	down   map[string]bool
	frozen map[string]bool          // takes connections, and answers nothing
	halted map[string]chan struct{} // stands still until it is closed, its connections as they are
	open   map[string][]net.Conn
}

// address is a host that dispatchers are dialed by.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

type addressed struct {
	net.Conn
	remote address
	n      *network
	closed chan struct{}
	close  func()
}

// Read gives nothing while the dispatcher stands still, and Write takes nothing.
func (c addressed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.halt()
	return n, err
}

func (c addressed) Write(b []byte) (int, error) {
	c.halt()
	return c.Conn.Write(b)
}

func (c addressed) Close() error {
	c.close()
	return c.Conn.Close()
}

// halt waits for as long as the dispatcher stands still, or until the connection is given up.
func (c addressed) halt() {
	c.n.mu.Lock()
	goesOn := c.n.halted[string(c.remote)]
	c.n.mu.Unlock()
	if goesOn == nil {
		return
	}
	select {
	case <-goesOn:
	case <-c.closed:
	}
}

// RemoteAddr is the address that was dialed.
func (c addressed) RemoteAddr() net.Addr { return c.remote }

func (n *network) dial(ctx context.Context, to string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down[to] {
		return nil, fmt.Errorf("dial %s: refused", to)
	}
	var conn net.Conn
	var err error
	if n.frozen[to] || n.halted[to] != nil {
		conn, _ = net.Pipe()
	} else if conn, err = n.listener.DialContext(ctx); err != nil {
		return nil, err
	}
	n.open[to] = append(n.open[to], conn)
	closed := make(chan struct{})
	return addressed{conn, address(to), n, closed, sync.OnceFunc(func() { close(closed) })}, nil
}

// stop has a dispatcher stand still, as SIGSTOP does, until it is let go on.
func (n *network) stop(to string) (goOn func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	goesOn := make(chan struct{})
	n.halted[to] = goesOn
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.halted, to)
		close(goesOn)
	}
}

// set kills dispatchers, freezes them, or lets them begin anew.
func (n *network) set(down, frozen bool, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, to := range addresses {
		n.down[to], n.frozen[to] = down, frozen
		for _, conn := range n.open[to] {
			conn.Close()
		}
		n.open[to] = nil
	}
}

func serveNetwork(t *testing.T, d *dispatcher) *network {
	t.Helper()
	n := &network{
		listener: bufconn.Listen(1 << 20), down: make(map[string]bool), frozen: make(map[string]bool), open: make(map[string][]net.Conn),
		halted: make(map[string]chan struct{}),
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	wagglev1.RegisterDispatchServiceServer(server, d)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(n.listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return n
}

// TestCollector_DispatcherIsGone holds that a dispatcher of two that goes for long is told when it goes and when it is
// back, each once; one that begins anew soon is not told, nor is each of several that go together.
func TestCollector_DispatcherIsGone(t *testing.T) {
	t.Parallel()
	const (
		a, b = "a.test:1", "b.test:1"
		gone = "a dispatcher is gone; others serve on"
		back = "a dispatcher is back"
	)
	for name, test := range map[string]struct {
		happens func(n *network)
		want    []string
	}{
		"restarted": {func(n *network) {
			n.set(true, false, a)
			pass(5 * time.Second)
			n.set(false, false, a)
			pass(time.Minute)
		}, nil},
		"killed for long": {func(n *network) {
			n.set(true, false, a)
			pass(5 * time.Minute)
			n.set(false, false, a)
			pass(time.Minute)
		}, []string{gone, back}},
		"frozen for long": {func(n *network) {
			n.set(false, true, a)
			pass(5 * time.Minute)
			n.set(false, false, a)
			pass(time.Minute)
		}, []string{gone, back}},
		"killed both": {func(n *network) {
			n.set(true, false, a, b)
			pass(5 * time.Minute)
			n.set(false, false, a, b)
			pass(time.Minute)
		}, nil},
		"killed both, of which one is back": {func(n *network) {
			n.set(true, false, a, b)
			pass(5 * time.Minute)
			n.set(false, false, b)
			pass(time.Minute)
			n.set(false, false, a)
			pass(time.Minute)
		}, []string{gone, back}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				core, logs := observer.New(zap.InfoLevel)
				n := serveNetwork(t, d)
				r := start(t, d, newBlocked(), func(c *collector.Config) {
					c.Logger, c.Wait, c.Targets = zap.New(core), time.Second, []string{a, b}
					c.DialOptions = []grpc.DialOption{grpc.WithContextDialer(n.dial)}
				})
				pass(time.Minute)
				test.happens(n)
				got := said(logs)
				if got = slices.DeleteFunc(got, func(line string) bool { return line != gone && line != back }); !slices.Equal(got, test.want) {
					t.Errorf("said %q, want %q", got, test.want)
				}
				n.set(false, false, a, b)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_DispatcherStandsStill holds that a dispatcher that stands still is told by its address as soon as another
// one has answered the heartbeat that it did not, and again once it is back; and that no lease is lost over it.
func TestCollector_DispatcherStandsStill(t *testing.T) {
	t.Parallel()
	const a, b = "a.test:1", "b.test:1"
	for name, test := range map[string]struct{ lease, still time.Duration }{
		"for a while, its connections as they were": {3 * time.Second, 5 * time.Second},
		"for long": {30 * time.Second, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				core, logs := observer.New(zap.InfoLevel)
				n := serveNetwork(t, d)
				d.lease = test.lease
				d.put("1-a")
				handler := newBlocked()
				r := start(t, d, handler, func(c *collector.Config) {
					c.Logger, c.Wait, c.Targets = zap.New(core), time.Second, []string{a, b}
					c.DialOptions = []grpc.DialOption{grpc.WithContextDialer(n.dial)}
				})
				pass(time.Minute)
				var stopped time.Time
				var lines []observer.LoggedEntry
				for _, frozen := range []string{a, b} { // the heartbeat stream is with one of them
					stopped = time.Now()
					goOn := n.stop(frozen)
					pass(test.still)
					goOn()
					pass(time.Minute)
					if lines = logs.FilterField(zap.String("dispatcher", frozen)).All(); len(lines) > 0 {
						break
					}
				}
				if len(lines) != 2 || lines[0].Message != "a dispatcher does not answer heartbeats; others do" || lines[1].Message != "a dispatcher is back" {
					t.Fatalf("said: %v", lines)
				}
				// A third until the next beat, a third until it is given up, and what the other takes to answer it.
				if after := lines[0].Time.Sub(stopped); after > test.lease*2/3+100*time.Millisecond {
					t.Errorf("told after %s", after)
				}
				if back := lines[1].Time.Sub(stopped.Add(test.still)); back < 0 || back > 30*time.Second {
					t.Errorf("told to be back %s after it was", back)
				}
				if len(handler.causes) != 0 {
					t.Errorf("the handler was stopped: %v", <-handler.causes)
				}
				close(handler.let)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
