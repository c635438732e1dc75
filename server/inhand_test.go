package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func (f *faults) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	if err := f.fault(ctx, "Renew"); err != nil {
		return nil, err
	}
	return f.Store.Renew(ctx, renewals)
}

// reportOfMegabytes is a report of a page with 15 large links.
func reportOfMegabytes(l *pb.LeasedTask) *pb.TaskReport {
	var links []*pb.DiscoveredItem
	for i := range 15 {
		links = append(links, &pb.DiscoveredItem{Url: fmt.Sprintf("https://example.com/%d", i), Payload: make([]byte, bounds.MaxPayloadLength)})
	}
	return succeeded(l, links...)
}

// beatOfMegabytes names a lease n times, with cursors: 60 are as many as a request may have.
func beatOfMegabytes(l *pb.LeasedTask, n int) []*pb.LeaseBeat {
	leases := make([]*pb.LeaseBeat, n)
	for i := range leases {
		leases[i] = held(l)
		leases[i].Cursor = make([]byte, bounds.MaxCursorLength)
	}
	return leases
}

// fill makes calls while the store hangs in one of its own, until the calls in hand have so
// many bytes. It returns what ends them, and the error of one more.
func fill(t *testing.T, b *bed, hangs string, size int, call func(context.Context) error) (release func(), refused error) {
	t.Helper()
	ctx, cancel := withTimeout(t, time.Minute)
	stuck := make(chan struct{})
	b.store.breakCall(hangs, func() error { <-stuck; return nil })
	const limit = 64 << 20
	var calls sync.WaitGroup
	for range limit / size {
		calls.Go(func() {
			if err := call(ctx); err != nil {
				t.Errorf("a call within the limit: %v", err)
			}
		})
	}
	synctest.Wait()
	release = sync.OnceFunc(func() {
		b.store.breakCall(hangs, nil)
		close(stuck)
		calls.Wait()
		cancel()
	})
	t.Cleanup(release)
	return release, call(ctx)
}

// Reports in hand are bounded in bytes, and neither renewals nor fetches wait for them.
func TestServer_reportsInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		leased := b.leased(t)
		b.submit(t, "news", "https://example.org/b")
		request := &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{reportOfMegabytes(leased)}}
		report := func(ctx context.Context) error { _, err := b.dispatch.ReportTask(ctx, request); return err }
		release, err := fill(t, b, "Tasks", proto.Size(request), report)
		if f := wantFault(t, err, codes.ResourceExhausted, "RATE_LIMITED"); f.metadata["limit"] == "" || f.metadata["bytes"] == "" {
			t.Errorf("the refusal has %v, want the limit and the bytes", f.metadata)
		}
		b.wantHandled(t, pb.DispatchService_ReportTask_FullMethodName, codes.ResourceExhausted)
		ctx, cancel := withTimeout(t, 10*time.Second)
		defer cancel()
		fetch := &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", ClientToken: "t2", Reports: request.GetReports()}
		_, err = b.dispatch.FetchTask(ctx, fetch)
		wantFault(t, err, codes.ResourceExhausted, "RATE_LIMITED")
		began := time.Now()
		if _, err := b.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"}, Leases: beatOfMegabytes(leased, 60)}); err != nil {
			t.Errorf("a renewal beside them: %v", err)
		}
		fetch.Reports = nil
		if got, err := b.dispatch.FetchTask(ctx, fetch); err != nil || len(got.GetLeasedTasks()) != 1 {
			t.Errorf("a fetch beside them: %v, %v; want a task", got, err)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("a renewal and a fetch waited %v for reports", waited)
		}
		release()
		fetch.Reports, fetch.ClientToken = request.GetReports(), "t3"
		if got, err := b.dispatch.FetchTask(ctx, fetch); err != nil || got.GetReportResults()[0].GetCode() != pb.ReportCode_REPORT_CODE_ALREADY_REPORTED {
			t.Errorf("a fetch with a report once the others are answered: %v, %v", got, err)
		}
		if err := report(ctx); err != nil {
			t.Errorf("a report once the others are answered: %v", err)
		}
	})
}

// Renewals in hand are bounded in bytes, and reports do not wait for them.
func TestServer_renewalsInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		leased := b.leased(t)
		request := &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"}, Leases: beatOfMegabytes(leased, 60)}
		renew := func(ctx context.Context) error { _, err := b.dispatch.RenewLease(ctx, request); return err }
		release, err := fill(t, b, "Renew", proto.Size(request), renew)
		wantFault(t, err, codes.ResourceExhausted, "RATE_LIMITED")
		ctx, cancel := withTimeout(t, 10*time.Second)
		defer cancel()
		beat := func() error {
			stream, err := b.dispatch.Heartbeat(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(beatOf(request.GetLeases()...)); err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			return err
		}
		wantFault(t, beat(), codes.ResourceExhausted, "RATE_LIMITED")
		result, err := b.dispatch.ReportTask(ctx, &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{succeeded(leased)}})
		if err != nil || result.GetResults()[0].GetCode() != pb.ReportCode_REPORT_CODE_OK {
			t.Errorf("a report beside them: %v, %v", result, err)
		}
		release()
		if err := renew(ctx); err != nil {
			t.Errorf("a renewal once the others are answered: %v", err)
		}
		if err := beat(); err != nil {
			t.Errorf("a beat once the others are answered: %v", err)
		}
	})
}
