//go:build e2e

package e2e_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// requeueLimit is how long after its deadline a task may take to be fetchable again (P5).
const requeueLimit = 500 * time.Millisecond

// TestTour_Lock shows what the lock in Redis does along the life of one lease.
func TestTour_Lock(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	c := dial(t, d.addr)
	const lease = 3 * time.Second
	c.setRule(t, "*", 0, 16)
	c.createSource(t, &pb.SourceSpec{Id: "tour.pages", LeaseDuration: durationpb.New(lease)})
	id := c.submit(t, &pb.SubmitItem{SourceId: "tour.pages", Url: "https://tour.example/1"})[0]

	session := uuid.NewString()
	fetch := &pb.FetchTaskRequest{CollectorId: "tour", Session: session, ClientToken: uuid.NewString()}
	first, err := c.dispatch.FetchTask(t.Context(), fetch)
	if err != nil || len(first.GetLeasedTasks()) != 1 {
		t.Fatalf("fetch: %v, %v", first, err)
	}
	held := first.GetLeasedTasks()[0].GetLease()
	key := prefix + ":{0}:lock:" + id
	ttl := func() time.Duration { return pttl(t, func() string { return redisCLI(t, server, "PTTL", key) }) }

	if held.GetTaskId() != id {
		t.Errorf("fetched %s, submitted %s", held.GetTaskId(), id)
	}
	if value := redisCLI(t, server, "GET", key); value != held.GetLeaseToken() || !strings.HasPrefix(value, "tour/"+fetch.GetClientToken()+"/") {
		t.Errorf("the lock's value is %q, the lease token %q", value, held.GetLeaseToken())
	}
	begin := ttl()
	if begin <= 0 || begin > lease {
		t.Errorf("the lock lives for %v, want at most %v", begin, lease)
	}
	until(t, lease, "the TTL falls below 2 s", func() bool { return ttl() < 2*time.Second })

	again, err := c.dispatch.FetchTask(t.Context(), fetch)
	if err != nil || len(again.GetLeasedTasks()) != 1 || !proto.Equal(again.GetLeasedTasks()[0].GetTask(), first.GetLeasedTasks()[0].GetTask()) ||
		again.GetLeasedTasks()[0].GetLease().GetLeaseToken() != held.GetLeaseToken() {
		t.Errorf("the same client token: %v, %v; want what it answered before: %v", again, err, first)
	}
	if left := again.GetLeasedTasks()[0].GetLease().GetDuration().AsDuration(); left >= 2*time.Second+again.GetWaited().AsDuration() {
		t.Errorf("fetched again, the lease runs for %v; it had less than 2 s left", left)
	}

	before := ttl()
	if r := c.renew(t, "tour", session, held); len(r.GetLost()) > 0 || r.GetLeaseDuration().AsDuration() != lease {
		t.Errorf("renew: %v", r)
	}
	if after := ttl(); after <= before {
		t.Errorf("renewing took the TTL from %v to %v", before, after)
	}

	stale := &pb.Lease{TaskId: id, LeaseToken: "tour/" + fetch.GetClientToken() + "/" + strconv.FormatInt(held.GetFence()-1, 10)}
	if r := c.report(t, "tour", session, stale); r.GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST {
		t.Errorf("a report with a stale lease token: %v", r)
	}
	_, err = c.dispatch.SubmitDiscovered(t.Context(), &pb.SubmitDiscoveredRequest{
		TaskId: id, LeaseToken: stale.GetLeaseToken(), Items: []*pb.DiscoveredItem{{Url: "https://tour.example/2"}},
	})
	if status.Code(err) != codes.FailedPrecondition || reason(err) != "LEASE_LOST" {
		t.Errorf("a submit with a stale lease token: %v", err)
	}
	if value := redisCLI(t, server, "GET", key); value != held.GetLeaseToken() {
		t.Errorf("the stale lease token changed the lock to %q", value)
	}

	if r := c.report(t, "tour", session, held); r.GetCode() != pb.ReportCode_REPORT_CODE_OK || r.GetState() != pb.TaskState_TASK_STATE_DONE {
		t.Errorf("report: %v", r)
	}
	if n := redisCLI(t, server, "EXISTS", key); n != "0" {
		t.Errorf("the lock is there after the report")
	}
	if r := c.report(t, "tour", session, held); r.GetCode() != pb.ReportCode_REPORT_CODE_ALREADY_REPORTED || r.GetState() != pb.TaskState_TASK_STATE_DONE {
		t.Errorf("the report repeated: %v", r)
	}
	if r := c.renew(t, "tour", session, held); len(r.GetLost()) != 1 || r.GetLost()[0].GetReason() != pb.LostReason_LOST_REASON_SETTLED {
		t.Errorf("renewing what was reported: %v", r)
	}
}

// TestTour_Requeue shows that a task whose collector falls silent is fetchable again within 500 ms of its deadline, by a
// fetch that waits for it, and that the silent collector's token is worth nothing then.
func TestTour_Requeue(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	c := dial(t, d.addr)
	const lease = 2 * time.Second
	c.setRule(t, "*", 0, 16)
	c.createSource(t, &pb.SourceSpec{Id: "tour.pages", LeaseDuration: durationpb.New(lease)})
	c.submit(t, &pb.SubmitItem{SourceId: "tour.pages", Url: "https://tour.example/1"})

	silent, second := uuid.NewString(), uuid.NewString()
	lost := c.fetchOne(t, "silent", silent, 0)
	next := c.fetchOne(t, "second", second, 10*time.Second)
	deadline := lost.GetLease().GetFence() + lease.Microseconds() // by the store's clock, as is a fence
	late := time.Duration(next.GetLease().GetFence()-deadline) * time.Microsecond
	t.Logf("fetchable again %v after the deadline", late)
	if late < -time.Millisecond || late > requeueLimit {
		t.Errorf("the task was granted again %v after its deadline; want 0 to %v", late, requeueLimit)
	}
	if next.GetTask().GetId() != lost.GetTask().GetId() || next.GetTask().GetExpirations() != 1 || next.GetTask().GetAttempt() != 2 {
		t.Errorf("granted again: %v", next.GetTask())
	}
	if r := c.report(t, "silent", silent, lost.GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST {
		t.Errorf("the silent collector's report: %v", r)
	}
	if r := c.report(t, "second", second, next.GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("the second collector's report: %v", r)
	}
}

// pttl is what PTTL answers.
func pttl(t *testing.T, ask func() string) time.Duration {
	t.Helper()
	n, err := strconv.ParseInt(ask(), 10, 64)
	if err != nil {
		t.Fatalf("PTTL: %v", err)
	}
	return time.Duration(n) * time.Millisecond
}
