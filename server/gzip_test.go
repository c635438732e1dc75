package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// packing is a client that packs what it sends. What it registers is of no other client or server in this process.
func (b *bed) packing(t *testing.T) *grpc.ClientConn {
	t.Helper()
	return b.client(t, grpc.WithCompressor(grpc.NewGZIPCompressor())) //nolint:staticcheck // see above
}

// Requests and beats may be packed by gzip. The limit of a request is for what is unpacked.
func TestServer_gzip(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	conn, leased := b.packing(t), b.leased(t)
	client := pb.NewDispatchServiceClient(conn)
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "waggle.v1.DispatchService"}); err != nil {
		t.Errorf("a health check, packed: %v", err)
	}
	renew := func(leases int) error {
		_, err := client.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: beatOf().GetCollector(), Leases: beatOfMegabytes(leased, leases)})
		return err
	}
	if err := renew(60); err != nil {
		t.Errorf("4 MB, packed: %v", err)
	}
	wantMessageTooLarge(t, renew(70))
	stream, err := client.Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, stream, beatOf(beatOfMegabytes(leased, 60)...))
	if err := stream.Send(beatOf(beatOfMegabytes(leased, 70)...)); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantMessageTooLarge(t, err)
}

// wantMessageTooLarge wants what the manual says of a message that is too large: no repetition helps.
func wantMessageTooLarge(t *testing.T, err error) {
	t.Helper()
	if f := faultOf(t, err); f.code != codes.ResourceExhausted || f.reason != "" || f.retry != 0 {
		t.Errorf("more than 4 MiB, packed: %v", err)
	}
}

// A request that says another size than it has is invalid, and one that is cut too.
func TestServer_gzip_damaged(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	request, err := proto.Marshal(&pb.GetSourceRequest{Id: "news"})
	if err != nil {
		t.Fatal(err)
	}
	packed := func(content []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	whole := packed(request)
	sized := func(size byte) []byte { return append(bytes.Clone(whole[:len(whole)-4]), size, 0, 0, 0) }
	for name, c := range map[string]struct {
		bytes []byte
		code  codes.Code
	}{
		"whole": {whole, codes.OK}, "cut": {append(bytes.Clone(whole[:12]), whole[14:]...), codes.InvalidArgument},
		"more than it says": {sized(byte(len(request) - 1)), codes.InvalidArgument}, "less than it says": {sized(100), codes.InvalidArgument},
		"twice": {append(bytes.Clone(whole), packed([]byte("x"))...), codes.InvalidArgument},
		"none":  {[]byte("\x1f\x8bnothing of gzip"), codes.ResourceExhausted},
	} {
		var reply []byte
		err := b.conn.Invoke(t.Context(), pb.SourceService_GetSource_FullMethodName, &c.bytes, &reply, grpc.ForceCodecV2(rawCodec{}))
		if f := faultOf(t, err); f.code != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
		}
	}
}

// The bytes of reports in hand are counted as they are unpacked: else a few packed bytes would take all memory.
func TestServer_gzip_inHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		client := pb.NewDispatchServiceClient(b.packing(t))
		request := &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{reportOfMegabytes(b.leased(t))}}
		release, err := fill(t, b, "Tasks", proto.Size(request), func(ctx context.Context) error {
			_, err := client.ReportTask(ctx, request)
			return err
		})
		release()
		wantFault(t, err, codes.ResourceExhausted, "RATE_LIMITED")
	})
}
