package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// client is a connection of its own to the server.
func (b *bed) client(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{
		grpc.WithContextDialer(b.dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
	}, options...)
	conn, err := grpc.NewClient("passthrough:///bufconn", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(t, conn) })
	return conn
}

// A client that pings as often as collectors do, with calls open or without, is
// not sent away (T55).
func TestServer_keepalive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		conn := b.client(t, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true,
		}))
		time.Sleep(time.Second) // virtual
		watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		broke := make(chan error, 1)
		go func() { _, err := watch.Recv(); broke <- err }()
		time.Sleep(10 * time.Minute) // virtual
		select {
		case err := <-broke:
			t.Errorf("the connection broke: %v", err)
		default:
		}
	})
}

// frozen is a connection whose client has frozen, from when stopped is closed:
// nothing is read any more, and what is written goes nowhere.
type frozen struct {
	net.Conn

	stopped, closed chan struct{}
}

// Read blocks once the client has frozen.
func (c *frozen) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.stopped:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

// Write drops what a frozen client would send.
func (c *frozen) Write(p []byte) (int, error) {
	select {
	case <-c.stopped:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

// A client that answers no ping loses its streams and parked fetches (T49).
func TestServer_keepalive_frozenClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{KeepaliveTime: 6 * time.Second, KeepaliveTimeout: 2 * time.Second})
		stopped, closed := make(chan struct{}), make(chan struct{})
		conn := b.client(t, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := b.dial(ctx, address)
			return &frozen{Conn: c, stopped: stopped, closed: closed}, err
		}))
		t.Cleanup(func() { close(closed) })
		stream, err := pb.NewDispatchServiceClient(conn).Heartbeat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, stream, beatOf())
		open := func() int64 {
			stats, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return stats.GetDispatcher().GetHeartbeatStreams()
		}
		if n := open(); n != 1 {
			t.Fatalf("%d streams are open, want 1", n)
		}
		close(stopped)
		time.Sleep(10 * time.Second) // virtual
		if n := open(); n != 0 {
			t.Errorf("%d streams are open 10 s after their client froze, want 0: pings go unanswered since 8 s", n)
		}
	})
}

// A connection that has come of age is replaced by another one, and a fetch that
// is parked then is answered all the same (T55, T56).
func TestServer_connectionAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{MaxConnectionAge: time.Minute})
		b.source(t, "news")
		var dials atomic.Int64
		conn := b.client(t, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			dials.Add(1)
			return b.dial(ctx, address)
		}))
		collector := pb.NewDispatchServiceClient(conn)
		fetch := func(wait time.Duration) (*pb.FetchTaskResponse, error) {
			return collector.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(wait)})
		}
		if _, err := fetch(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second) // virtual; the age is a minute, give or take a tenth
		type answer struct {
			resp *pb.FetchTaskResponse
			err  error
		}
		parked := make(chan answer, 1)
		go func() {
			resp, err := fetch(30 * time.Second)
			parked <- answer{resp, err}
		}()
		time.Sleep(25 * time.Second) // virtual
		b.submit(t, "news", "https://example.com/a")
		if got := <-parked; got.err != nil || len(got.resp.GetLeasedTasks()) != 1 {
			t.Errorf("the fetch that was parked: %v, %v; want a task", got.resp, got.err)
		}
		if _, err := fetch(0); err != nil {
			t.Error(err)
		}
		if n := dials.Load(); n != 2 {
			t.Errorf("%d connections, want 2: one of age, and one after it", n)
		}
	})
}

// Parked fetches leave room on their connection for what keeps leases.
func TestServer_manyCallsOfAConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		const parked = 300
		answers := make(chan error, parked)
		for i := range parked {
			go func() {
				_, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
					CollectorId: fmt.Sprintf("c%d", i), Session: "s1", Wait: durationpb.New(30 * time.Second),
				})
				answers <- err
			}()
		}
		synctest.Wait()
		ctx, cancel := withTimeout(t, time.Second)
		defer cancel()
		_, err := b.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"}})
		for range parked {
			err = errors.Join(err, <-answers)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// A request may be as large as the config says, and no larger.
func TestServer_requestBytes(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]codes.Code{0: codes.ResourceExhausted, 8 << 20: codes.OK} {
		b := newBed(t, server.Config{MaxReceiveBytes: most})
		b.source(t, "news")
		req := &pb.SubmitTasksRequest{}
		for i := range 20 {
			req.Items = append(req.Items, &pb.SubmitItem{
				SourceId: "news", Url: fmt.Sprintf("https://example.com/%d", i), Payload: make([]byte, 250<<10),
			})
		}
		_, err := b.tasks.SubmitTasks(t.Context(), req)
		if status.Code(err) != want {
			t.Errorf("5 MB with MaxReceiveBytes %d: %v, want %v", most, err, want)
		}
		// The manual tells clients by this that to repeat the message is in vain.
		if details := status.Convert(err).Details(); len(details) > 0 {
			t.Errorf("5 MB with MaxReceiveBytes %d: %v has %v, want no RetryInfo", most, err, details)
		}
	}
}

// Answers of all sizes arrive as they were sent, many at a time: the memory in which one
// is encoded is used again, but not before.
func TestServer_answers(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	request := &pb.SubmitTasksRequest{}
	for i, size := range []int{0, 1, 100, 200, 300, 600, 900, 1100, 5000, 40_000, 200_000} {
		request.Items = append(request.Items, &pb.SubmitItem{
			SourceId: "news", Url: fmt.Sprintf("https://example.com/%d", i), Payload: bytes.Repeat([]byte{byte('a' + i)}, size),
		})
	}
	submitted, err := b.tasks.SubmitTasks(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for i, item := range request.GetItems() {
		id := submitted.GetResults()[i].GetTaskId()
		for range 4 {
			readers.Go(func() {
				for range 20 {
					got, err := b.tasks.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: id})
					if err != nil || got.GetTask().GetUrl() != item.GetUrl() || !bytes.Equal(got.GetTask().GetPayload(), item.GetPayload()) {
						t.Errorf("%.200v, %v; want the task %s with %d bytes", got, err, item.GetUrl(), len(item.GetPayload()))
						return
					}
				}
			})
		}
	}
	readers.Wait()
}
