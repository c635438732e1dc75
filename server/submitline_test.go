package server_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// Large submits wait for each other before they are decoded, and no heartbeat waits for
// them.
func TestServer_submitsInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		leased := b.leased(t)
		stuck := make(chan struct{})
		release := sync.OnceFunc(func() { close(stuck) })
		defer release()
		var atStore atomic.Int64
		b.store.breakCall("Submit", func() error { atStore.Add(1); <-stuck; return nil })
		ctx, cancel := withTimeout(t, time.Minute)
		defer cancel()
		const calls = 5
		ended := make(chan error, calls)
		for i := range calls {
			go func() {
				// As many as a call of the store carries.
				request := new(pb.SubmitTasksRequest)
				for k := range bounds.MaxSubmissions {
					url := fmt.Sprintf("http://a.com/%d/%d", i, k)
					request.Items = append(request.Items, &pb.SubmitItem{SourceId: "news", Url: url, Payload: make([]byte, 24<<10)})
				}
				_, err := b.tasks.SubmitTasks(ctx, request)
				ended <- err
			}()
		}
		synctest.Wait()
		if n := atStore.Load(); n != 1 {
			t.Errorf("%d calls of more than 2 MiB are at work; 4 MiB may be", n)
		}
		_, err := b.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"}, Leases: []*pb.LeaseBeat{held(leased)}})
		if err != nil {
			t.Errorf("a renewal beside them: %v", err)
		}
		submit := func(bytes int) error {
			short, end := withTimeout(t, time.Second)
			defer end()
			item := &pb.SubmitItem{SourceId: "news", Url: "http://a.com/", Payload: make([]byte, bytes)}
			_, err := b.tasks.SubmitTasks(short, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{item}})
			return err
		}
		wantFault(t, submit(1), codes.Unavailable, "STORE_UNAVAILABLE") // a small one is in no line: it came that far
		if f := wantFault(t, submit(256<<10), codes.ResourceExhausted, "RATE_LIMITED"); f.retry == 0 {
			t.Error("a submit that would wait beyond its deadline is not told when to come again")
		}
		b.wantHandled(t, pb.TaskService_SubmitTasks_FullMethodName, codes.ResourceExhausted)
		began := time.Now()
		done := b.server.HoldCalls(1000)
		wantFault(t, submit(256<<10), codes.ResourceExhausted, "RATE_LIMITED")
		done()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("a submit that is shed waits %v in line before", waited)
		}
		release()
		for range calls {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if n := atStore.Load(); n < calls {
			t.Errorf("%d of %d calls came to the store", n, calls)
		}
	})
}
