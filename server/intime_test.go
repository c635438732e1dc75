package server_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// A call for which the store hangs is answered a tenth of its time ahead of its caller's deadline,
// also right after others that were answered at once.
func TestServer_answersInTime(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hangs string
		call  func(ctx context.Context, b *bed, l *pb.LeasedTask) error
	}{
		"FetchTask": {"BeginPoll", func(ctx context.Context, b *bed, l *pb.LeasedTask) error {
			// A collector of its own, so that the fetch has to be noted.
			_, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: "c-" + l.GetTask().GetId(), Session: "s1", Wait: durationpb.New(0)})
			return err
		}},
		"ReportTask": {"Tasks", func(ctx context.Context, b *bed, l *pb.LeasedTask) error {
			report := succeeded(l)
			failedWith(&pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_TIMEOUT})(report)
			_, err := b.dispatch.ReportTask(ctx, &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{report}})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, server.Config{})
				b.source(t, "news")
				for n := range 5 {
					b.submit(t, "news", fmt.Sprintf("https://host-%d.example/", n))
				}
				leased := b.fetch(t, 5)
				if len(leased) != 5 {
					t.Fatalf("fetched %d tasks, want 5", len(leased))
				}
				const given, want = 2 * time.Second, 1800 * time.Millisecond
				call := func(l *pb.LeasedTask) (time.Duration, error) {
					ctx, cancel := withTimeout(t, given)
					defer cancel()
					began := time.Now()
					err := test.call(ctx, b, l)
					return time.Since(began), err
				}
				for _, l := range leased[1:] {
					if took, err := call(l); err != nil || took > 100*time.Millisecond {
						t.Fatalf("a store that answers: %v after %v", err, took)
					}
				}
				stuck := make(chan struct{})
				defer close(stuck)
				b.store.breakCall(test.hangs, func() error { <-stuck; return nil })
				took, err := call(leased[0])
				wantFault(t, err, codes.Unavailable, "STORE_UNAVAILABLE")
				if took < want-10*time.Millisecond || took > want+10*time.Millisecond {
					t.Errorf("answered after %v, want %v", took, want)
				}
			})
		})
	}
}
