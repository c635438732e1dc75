package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// TestRefusals_short holds that a refusal, whatever the request is, has less than 8 KiB of headers as it is sent, each with its
// name and the 32 bytes that HTTP/2 counts for it: grpcio loses longer ones at random. The reason and the first field stay.
func TestRefusals_short(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	accented := func(n int) string { return strings.Repeat("é", n/2) }
	hold := func(reason string) *pb.SetHoldsRequest {
		return &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{SourceId: "news"}}, Name: strings.Repeat("n", 64), By: accented(128), Reason: reason}
	}
	if _, err := b.holds.SetHolds(t.Context(), hold(accented(500))); err != nil {
		t.Fatal(err)
	}
	bad, labels := make([]string, 16), make(map[string]string)
	for i := range bad {
		bad[i] = fmt.Sprint(i) + accented(2000)
		labels[fmt.Sprint(i)+accented(2000)] = "\x01" + accented(2000)
	}
	patterns := make([]string, 256)
	for i := range patterns {
		patterns[i] = "(" + accented(1000)
	}
	follow := &pb.Follow{Include: patterns, Exclude: patterns}
	client := strings.Repeat("A", 4000)
	shortened := 0
	for what, call := range map[string]struct {
		method string
		req    proto.Message
		client string
		code   codes.Code
	}{
		"a fetch": {pb.DispatchService_FetchTask_FullMethodName, &pb.FetchTaskRequest{
			CollectorId: bad[0], Session: bad[0], ClientToken: bad[0], Pools: bad, Sources: bad, Queues: bad, Labels: labels,
		}, "", codes.InvalidArgument},
		"a beat": {pb.DispatchService_RenewLease_FullMethodName, &pb.RenewLeaseRequest{
			Collector: &pb.CollectorInfo{Id: bad[0], Session: bad[0], Pools: bad, Labels: labels},
		}, "", codes.InvalidArgument},
		"a source": {pb.SourceService_CreateSource_FullMethodName, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
			Id: "x", Seeds: []*pb.Seed{{Url: "https://a.example/"}}, Follow: follow,
		}}, "", codes.InvalidArgument},
		"a hold":        {pb.HoldService_SetHolds_FullMethodName, hold(accented(498)), "", codes.FailedPrecondition},
		"a client":      {pb.AdminService_GetStats_FullMethodName, &pb.GetStatsRequest{}, client, codes.InvalidArgument},
		"an old client": {pb.AdminService_GetStats_FullMethodName, &pb.GetStatsRequest{}, "waggle-go/0.0.1-" + strings.Repeat("a", 50), codes.FailedPrecondition},
		"no page":       {pb.AdminService_ListCollectors_FullMethodName, &pb.ListCollectorsRequest{PageToken: client}, "", codes.InvalidArgument},
	} {
		headers := sentHeaders(t, b, call.method, call.req, call.client)
		size := 0
		for name, values := range headers {
			for _, value := range values {
				size += len(name) + len(value) + 32
			}
		}
		t.Logf("%s: %d bytes", what, size)
		if size >= 8<<10 {
			t.Errorf("%s: a refusal of %d bytes", what, size)
		}
		encoded, err := base64.RawStdEncoding.DecodeString(headers.Get("grpc-status-details-bin"))
		var st spb.Status
		if err == nil {
			err = proto.Unmarshal(encoded, &st)
		}
		if err != nil || headers.Get("grpc-status") != fmt.Sprint(int(call.code)) || len(st.GetDetails()) == 0 {
			t.Fatalf("%s: %v, %v", what, err, headers)
		}
		var info errdetails.ErrorInfo
		if err := st.GetDetails()[0].UnmarshalTo(&info); err != nil || info.GetReason() == "" || len(info.GetMetadata()) == 0 && what != "no page" {
			t.Errorf("%s: %v, %v", what, &info, err)
		}
		var wrong errdetails.BadRequest
		if len(st.GetDetails()) > 1 && st.GetDetails()[1].UnmarshalTo(&wrong) == nil {
			last := wrong.GetFieldViolations()[len(wrong.GetFieldViolations())-1].GetDescription()
			if strings.HasSuffix(last, "more fields are invalid") {
				shortened++
			}
		}
	}
	if shortened == 0 {
		t.Error("no request was wrong in more fields than there is room for")
	}
}

// sentHeaders makes a call that is refused and returns what ends it, as it is sent.
func sentHeaders(t *testing.T, b *bed, method string, req proto.Message, client string) http.Header {
	t.Helper()
	body, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	call, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://dispatcher"+method, bytes.NewReader(frame))
	if err != nil {
		t.Fatal(err)
	}
	call.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	if client != "" {
		call.Header.Set("waggle-client", client)
	}
	transport := &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, _, _ string, _ *tls.Config) (net.Conn, error) { return b.dial(ctx, "") }}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(call)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it has ended
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.Trailer.Get("grpc-status") == "" {
		return resp.Header // of an answer that is nothing but its end
	}
	return resp.Trailer
}
