package main_test

import (
	"regexp"
	"testing"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Who unblocks a queue that its host's failures block hears how that is opened.
func TestQueueUnblock_hostBlocked(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "s", "--seed", "https://a.example/")
	dispatch := pb.NewDispatchServiceClient(connect(t, env))
	fetched, err := dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: "t"})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatalf("%v, %v", fetched, err)
	}
	lease := fetched.GetLeasedTasks()[0].GetLease()
	if _, err := dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
		TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(),
		Outcome: &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_SERVER_ERROR, HttpStatus: 503}}},
	}}}); err != nil {
		t.Fatal(err)
	}
	const note = "waggle: failures of the host block it; `waggle queue unblock a.example --automatic` opens that, too\n"
	command(t, env, "queue", "block", "a.example")
	for range 2 { // an operator's block beside it, and none
		if got := command(t, env, "queue", "unblock", "a.example"); got.code != waggle.ExitOK || got.err != note {
			t.Errorf("%d: %s%s", got.code, got.out, got.err)
		}
	}
	if got := command(t, env, "queue", "unblock", "a.example", "--automatic"); got.code != waggle.ExitOK || got.err != "" {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
}

// What the clock holds is told as what opens by itself.
func TestQueue_heldByTheClock(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "*", "--min-delay", "50s", "--max-in-flight", "2")
	command(t, env, "source", "create", "s", "--seed", "https://a.example/")
	fetched, err := pb.NewDispatchServiceClient(connect(t, env)).FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: "t"})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatalf("%v, %v", fetched, err)
	}
	got := command(t, env, "queue", "unblock", "a.example")
	if want := regexp.MustCompile(`nothing changed\nit is held by MIN_DELAY, opens in \d+s\n`); got.code != waggle.ExitOK || !want.MatchString(got.out) {
		t.Errorf("%d: %s%s", got.code, got.out, got.err)
	}
}
