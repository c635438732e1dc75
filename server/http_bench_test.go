package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// BenchmarkHTTP is what a small call costs as JSON beside gRPC, with the client's share, each on one connection that is kept:
// in turns of 200 calls, so that the speed of the machine cancels out.
func BenchmarkHTTP(b *testing.B) {
	n := onNetwork(b, server.Config{HTTP: "127.0.0.1:0"})
	byGRPC, base := pb.NewDispatchServiceClient(n.connectBy(b, n.Address(), insecure.NewCredentials())), "http://"+n.HTTPAddress()
	byHTTP2 := pb.NewDispatchServiceClient(overHTTP(b, base))
	plain := &http.Client{Transport: new(http.Transport)}
	b.Cleanup(plain.CloseIdleConnections)
	request := &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "bench", Session: "s"}}
	renew := func(client pb.DispatchServiceClient) func() error {
		return func() error {
			_, err := client.RenewLease(b.Context(), request)
			return err
		}
	}
	ways := []struct {
		name string
		call func() error
		took time.Duration
	}{
		{"gRPC", renew(byGRPC), 0},
		{"HTTP1-JSON", func() error {
			resp, err := plain.Post(base+"/waggle.v1.DispatchService/RenewLease", jsonType, strings.NewReader(`{"collector":{"id":"bench","session":"s"}}`))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		}, 0},
		{"HTTP2-JSON", renew(byHTTP2), 0},
	}
	const turn = 200
	calls := 0
	for b.Loop() {
		for i := range ways {
			began := time.Now()
			for range turn {
				if err := ways[i].call(); err != nil {
					b.Fatal(err)
				}
			}
			ways[i].took += time.Since(began)
		}
		calls += turn
	}
	for i := range ways {
		b.ReportMetric(float64(ways[i].took.Microseconds())/float64(calls), ways[i].name+"-µs")
		if i > 0 {
			b.ReportMetric(float64(ways[i].took)/float64(ways[0].took), ways[i].name+"-ratio")
		}
	}
}
