//go:build e2e

package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestFetchTask_RepeatedAndCanceled repeats fetches that were answered and cancels the repetitions while the dispatcher,
// 10 ms each way from its Redis, is at them: every lease that was delivered still stands (P7).
func TestFetchTask_RepeatedAndCanceled(t *testing.T) {
	t.Parallel()
	const rounds = 100
	server, prefix := shared.Server(t)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Delay(20 * time.Millisecond)
	d := serve(t, "dispatcher", proxy.URL(), prefix)
	c := dial(t, d.addr)
	c.setRule(t, "*", 0, 1000)
	c.createSource(t, &pb.SourceSpec{Id: "repeat", LeaseDuration: durationpb.New(10 * time.Minute)})
	backlog := make([]*pb.SubmitItem, 3*rounds)
	for n := range backlog {
		backlog[n] = page("repeat", n)
	}
	c.submit(t, backlog...)

	session := uuid.NewString()
	beat := &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "a", Session: session}}
	for n := range rounds {
		req := &pb.FetchTaskRequest{CollectorId: "a", Session: session, ClientToken: uuid.NewString(), Wait: durationpb.New(5 * time.Second)}
		reply, err := c.dispatch.FetchTask(t.Context(), req)
		if err != nil || len(reply.GetLeasedTasks()) != 1 {
			t.Fatalf("fetch %d: %v, %v; want one task", n, reply, err)
		}
		lease := reply.GetLeasedTasks()[0].GetLease()
		beat.Leases = append(beat.Leases, &pb.LeaseBeat{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken()})

		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(5+n%30)*time.Millisecond, cancel)
		again, err := c.dispatch.FetchTask(ctx, req)
		if err == nil && (len(again.GetLeasedTasks()) != 1 || again.GetLeasedTasks()[0].GetLease().GetLeaseToken() != lease.GetLeaseToken()) {
			t.Errorf("repeated fetch %d: %v, want the lease %v", n, again, lease)
		}
		timer.Stop()
		cancel()
	}
	c.fetchOne(t, "a", session, 5*time.Second) // what was to be given back has been by now
	renewed, err := c.dispatch.RenewLease(t.Context(), beat)
	if err != nil {
		t.Fatalf("renew: %v", err)
	}
	if lost := renewed.GetStatus().GetLost(); len(lost) > 0 {
		t.Errorf("%d of %d delivered leases are lost, the first one as %v", len(lost), rounds, lost[0])
	}
}
