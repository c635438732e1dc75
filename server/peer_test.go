package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// closed waits until the server has closed a connection.
func closed(t *testing.T, conn net.Conn) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, conn)
	return err == nil
}

// dial connects to a server without TLS.
func (n *network) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // or the server has
	return conn
}

// client connects to a server that has a certificate of pool; nil: without TLS.
func (n *network) client(t *testing.T, pool *x509.CertPool) *grpc.ClientConn {
	t.Helper()
	creds := insecure.NewCredentials()
	if pool != nil {
		creds = credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	}
	conn, err := grpc.NewClient(n.Address(), grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(t, conn) })
	return conn
}

// A connection above the limit is closed; those within it stay, and one that ends makes room for another.
func TestServer_connections(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]server.Config{
		"of one address": {MaxAddressConnections: 3}, "of all": {MaxConnections: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.HTTP = server.Off
			n := onNetwork(t, cfg)
			admin := pb.NewAdminServiceClient(n.client(t, nil))
			if _, err := admin.GetStats(t.Context(), &pb.GetStatsRequest{}); err != nil { // on the first connection
				t.Fatal(err)
			}
			var conns []net.Conn
			for range 3 {
				conns = append(conns, n.dial(t))
			}
			if !closed(t, conns[2]) {
				t.Error("the fourth connection is open")
			}
			if _, err := admin.GetStats(t.Context(), &pb.GetStatsRequest{}); err != nil {
				t.Errorf("a call on the first connection: %v", err)
			}
			if err := conns[0].Close(); err != nil {
				t.Fatal(err)
			}
			other := pb.NewAdminServiceClient(n.client(t, nil))
			if _, err := other.GetStats(t.Context(), &pb.GetStatsRequest{}, grpc.WaitForReady(true)); err != nil {
				t.Errorf("a call on another connection once one has ended: %v", err)
			}
		})
	}
}

// begin begins a call of SubmitTasks with the begin of a request of 4 MB.
func begin(t *testing.T, framer *http2.Framer, stream uint32) error {
	t.Helper()
	var block bytes.Buffer
	callHeaders(t, &block, pb.TaskService_SubmitTasks_FullMethodName)
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		return err
	}
	part := make([]byte, 16<<10)
	binary.BigEndian.PutUint32(part[1:], 4<<20-1)
	for range 3 {
		if err := framer.WriteData(stream, false, part); err != nil {
			return err
		}
		clear(part)
	}
	return nil
}

// Requests that come in part are bounded by address, and the connection that holds the most is closed; over TLS too.
func TestServer_partialRequests(t *testing.T) {
	t.Parallel()
	cfg := server.Config{HTTP: server.Off, MaxAddressBytes: 16 << 20}
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		n := onNetwork(t, cfg)
		partialRequests(t, n.dial(t), n.client(t, nil))
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		cfg := cfg
		var pool *x509.CertPool
		cfg.TLSCertFile, cfg.TLSKeyFile, pool = keyPair(t)
		n := onNetwork(t, cfg)
		conn := tls.Client(n.dial(t), &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
		partialRequests(t, conn, n.client(t, pool))
	})
}

// partialRequests begins requests on a connection until it is closed.
func partialRequests(t *testing.T, conn net.Conn, other *grpc.ClientConn) {
	t.Helper()
	framer := newFramer(t, conn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := framer.ReadFrame(); err != nil {
				return
			}
		}
	}()
	for i := range uint32(1000) {
		if begin(t, framer, 2*i+1) != nil {
			break
		}
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("1,000 requests of which 48 KB have come are held")
	}
	if _, err := pb.NewAdminServiceClient(other).GetStats(t.Context(), &pb.GetStatsRequest{}); err != nil {
		t.Errorf("a call on another connection: %v", err)
	}
}

// Streams are bounded by address, those of heartbeats last.
func TestServer_streamsOfAddress(t *testing.T) {
	t.Parallel()
	conn := onNetwork(t, server.Config{HTTP: server.Off, MaxAddressStreams: 50}).client(t, nil)
	dispatch := pb.NewDispatchServiceClient(conn)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heartbeats := func(n int) (err error) {
		for range n {
			stream, err := dispatch.Heartbeat(ctx)
			if err == nil {
				err = stream.Send(beatOf())
			}
			if err == nil {
				_, err = stream.Recv()
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := heartbeats(40); err != nil {
		t.Fatal(err)
	}
	_, err := pb.NewAdminServiceClient(conn).GetStats(ctx, &pb.GetStatsRequest{})
	if f := wantFault(t, err, codes.ResourceExhausted, "RATE_LIMITED"); f.metadata["limit"] != "40" {
		t.Errorf("the refusal has %v, want the limit 40", f.metadata)
	}
	if err := heartbeats(9); err != nil {
		t.Errorf("heartbeats beside 40: %v", err)
	}
	if f := wantFault(t, heartbeats(2), codes.ResourceExhausted, "RATE_LIMITED"); f.metadata["limit"] != "50" {
		t.Errorf("the refusal has %v, want the limit 50", f.metadata)
	}
}

// Of server reflection an address may have 64 streams open, beside its other calls; one that ends makes room.
func TestServer_reflections(t *testing.T) {
	t.Parallel()
	conn := onNetwork(t, server.Config{HTTP: server.Off, Reflection: true}).client(t, nil)
	reflect := func(ctx context.Context) error {
		stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
		if err == nil {
			err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	one, end := context.WithCancel(t.Context())
	for i, ctx := range append(slices.Repeat([]context.Context{t.Context()}, 63), one) {
		if err := reflect(ctx); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if f := wantFault(t, reflect(t.Context()), codes.ResourceExhausted, "RATE_LIMITED"); f.metadata["limit"] != "64" {
		t.Errorf("the refusal has %v, want the limit 64", f.metadata)
	}
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	end()
	eventually(t, "one has ended", func() bool { return reflect(t.Context()) == nil })
}

// Beats that an address sends ahead are read at a bounded rate, over all its streams.
func TestServer_beatsAhead(t *testing.T) {
	t.Parallel()
	client := pb.NewDispatchServiceClient(onNetwork(t, server.Config{HTTP: server.Off}).client(t, nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var streams []pb.DispatchService_HeartbeatClient
	for range 4 {
		stream, err := client.Heartbeat(ctx)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, stream, beatOf())
		streams = append(streams, stream)
	}
	answers, began := make(chan error), time.Now()
	for _, stream := range streams {
		go func() {
			for stream.Send(beatOf()) == nil {
			}
		}()
		go func() {
			for {
				_, err := stream.Recv()
				select {
				case answers <- err:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	const answered, atOnce = 2000, 100 + 4*40
	for range answered {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took.Seconds() < (answered-atOnce)/5000. {
		t.Errorf("%d beats were answered in %v", answered, took)
	}
}

// A heartbeat stream that its collector does not read is ended.
func TestServer_heartbeatUnread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		ctx, cancel := withTimeout(t, time.Minute)
		defer cancel()
		stream, err := b.dispatch.Heartbeat(ctx)
		if err != nil {
			t.Fatal(err)
		}
		beat := beatOf()
		for i := range 1000 {
			beat.Leases = append(beat.Leases, &pb.LeaseBeat{TaskId: fmt.Sprintf("task-%d", i), LeaseToken: "none"})
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for stream.Send(beat) == nil {
			}
		}()
		time.Sleep(11 * time.Second)
		for err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the stream ended with %v, want DEADLINE_EXCEEDED", err)
		}
		<-sent
	})
}

// What answers hold is bounded by address too, until they are sent: a client that reads may get any number, also beside a stream that
// stays open, and one that does not read loses its connection.
func TestServer_unreadAnswers(t *testing.T) {
	t.Parallel()
	n := onNetwork(t, server.Config{HTTP: server.Off, MaxAddressBytes: 16 << 20})
	conn := n.client(t, nil)
	beats, err := pb.NewDispatchServiceClient(conn).Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, beats, beatOf())
	if _, err := pb.NewSourceServiceClient(conn).CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news"}}); err != nil {
		t.Fatal(err)
	}
	tasks := pb.NewTaskServiceClient(conn)
	submitted, err := tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{
		{SourceId: "news", Url: "https://a.example/", Payload: make([]byte, 200<<10)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ask := &pb.GetTaskRequest{TaskId: submitted.GetResults()[0].GetTaskId()}
	for range 100 {
		if _, err := tasks.GetTask(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
	}
	exchange(t, beats, beatOf())

	raw := n.dial(t)
	framer := http2.NewFramer(raw, raw)
	if _, err := io.WriteString(raw, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	request, err := proto.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)
	for i := range uint32(100) {
		var block bytes.Buffer
		callHeaders(t, &block, pb.TaskService_GetTask_FullMethodName)
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block.Bytes(), EndHeaders: true})
		if err == nil {
			err = framer.WriteData(2*i+1, true, message)
		}
		if err != nil {
			break // it is closed
		}
	}
	if !closed(t, raw) {
		t.Error("20 MB of answers that nobody reads are held")
	}
	exchange(t, beats, beatOf())
}
