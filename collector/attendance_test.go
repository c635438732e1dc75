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
	frozen map[string]bool // takes connections, and answers nothing
	open   map[string][]net.Conn
}

// address is a host that dispatchers are dialed by.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

type addressed struct {
	net.Conn
	remote address
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
	if n.frozen[to] {
		conn, _ = net.Pipe()
	} else if conn, err = n.listener.DialContext(ctx); err != nil {
		return nil, err
	}
	n.open[to] = append(n.open[to], conn)
	return addressed{conn, address(to)}, nil
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
