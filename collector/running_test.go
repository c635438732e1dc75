package collector_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// running is a collector at work on a dispatcher, in a synctest bubble.
type running struct {
	t         *testing.T
	collector *collector.Collector
	cancel    context.CancelFunc
	done      chan struct{}
	err       error
}

// start runs a collector against d. The test calls stop, or wait when Run ends by itself.
func start(t *testing.T, d *dispatcher, handler collector.Handler, change func(*collector.Config)) *running {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	wagglev1.RegisterDispatchServiceServer(server, d)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	cfg := collector.Config{
		Targets: []string{"passthrough:///bufconn"}, ID: "c-1",
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		})},
	}
	if change != nil {
		change(&cfg)
	}
	c, err := collector.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, collector: c, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = c.Run(ctx, handler)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
		close(d.quit)
		server.Stop()
		<-served
	})
	return r
}

// stop ends the collector and returns what Run returns.
func (r *running) stop() error {
	r.cancel()
	return r.wait()
}

// wait waits for Run to end.
func (r *running) wait() error {
	<-r.done
	return r.err
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// succeed is a handler that does nothing.
func succeed(context.Context, *collector.Task) (collector.Succeeded, error) {
	return collector.Succeeded{HTTPStatus: 200}, nil
}

// blocked is a handler that goes on until its context ends or the test lets it go, and remembers why it ended.
type blocked struct {
	tasks  chan *collector.Task
	let    chan struct{}
	causes chan error
	times  chan time.Time
}

func newBlocked() *blocked {
	return &blocked{
		tasks: make(chan *collector.Task, 100), let: make(chan struct{}),
		causes: make(chan error, 100), times: make(chan time.Time, 100),
	}
}

// Handle waits.
func (b *blocked) Handle(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
	b.tasks <- t
	select {
	case <-b.let:
		return collector.Succeeded{}, nil
	case <-ctx.Done():
		b.times <- time.Now()
		b.causes <- context.Cause(ctx)
		return collector.Succeeded{}, ctx.Err()
	}
}
