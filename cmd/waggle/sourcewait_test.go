package main_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func TestSourceWait(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "10")
	command(t, env, "source", "create", "idle") // it has no seed
	wantOutput(t, command(t, env, "source", "wait", "idle"), "idle: finished; 0 done, 0 dead, 0 canceled\n")
	wantOutput(t, command(t, env, "source", "wait", "idle", "-o", "json"), `{"id":"idle","outstanding":0,"begun":true,"held":"NO_COLLECTOR","finished":true}`+"\n")
	command(t, env, "source", "create", "busy", "--seed", "https://b.example/", "--every", "1h", "--follow")
	late := command(t, env, "source", "wait", "busy", "--for", "300ms")
	wantFailure(t, late, waggle.ExitFailed, "not finished within --for: busy: 1 outstanding")
	wantFailure(t, command(t, env, "source", "wait"), waggle.ExitUsage, "which sources?")
	wantFailure(t, command(t, env, "source", "wait", "none"), waggle.ExitFailed, "source not found")

	waiting := start(t, env, "source", "wait", "busy", "idle")
	waiting.out.line(t, "busy: 1 outstanding")
	dispatch := pb.NewDispatchServiceClient(connect(t, env))
	work := func(token string, outcome *pb.Outcome) {
		t.Helper()
		got, err := dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: token, Wait: durationpb.New(5 * time.Second)})
		if err != nil || len(got.GetLeasedTasks()) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		lease := got.GetLeasedTasks()[0].GetLease()
		if _, err := dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
			TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: outcome,
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	work("t1", &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{Discovered: []*pb.DiscoveredItem{
		{Url: "https://b.example/1"}, {Url: "https://b.example/2"},
	}}}})
	waiting.out.line(t, "busy: 2 outstanding")
	work("t2", &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{}}})
	work("t3", &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_GONE, Permanent: true}}})
	if code := waiting.wait(); code != waggle.ExitOK {
		t.Errorf("exit code %d: %s", code, waiting.err.text())
	}
	waiting.out.line(t, "busy: finished; 1 done, 1 dead, 0 canceled")
}

// A source that nobody crawls is not waited for in silence.
func TestSourceWait_noCollector(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	command(t, env, "source", "create", "b", "--seed", "https://b.example/", "--pool", "eu")
	wait := command(t, env, "source", "wait", "b", "--for", "1ms")
	if want := "b: 1 outstanding; 1 ready, 0 leased, waits for NO_COLLECTOR\n"; !strings.Contains(wait.out, want) {
		t.Errorf("lacks %q:\n%s", want, wait.out)
	}
}

// A source that was never crawled is not finished: its first crawl is waited for, and
// what holds it is told.
func TestSourceWait_notBegun(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	taken(t, env, "default")
	command(t, env, "source", "create", "later", "--seed", "https://l.example/", "--every", "30d", "--first-crawl", "spread")
	wait := command(t, env, "source", "wait", "later", "--for", "1ms")
	wantFailure(t, wait, waggle.ExitFailed, "not finished within --for: later: not begun")
	told := start(t, env, "source", "wait", "later")
	told.out.line(t, `^later: not begun; first crawl in \S+( \S+)?$`)
	command(t, env, "hold", "set", "--source", "later")
	paused := start(t, env, "source", "wait", "later")
	paused.out.line(t, `^later: not begun; first crawl in \S+( \S+)?, waits for SOURCE_HELD\(source later\)$`)
	command(t, env, "source", "create", "none")
	wantOutput(t, command(t, env, "source", "wait", "none"), "none: finished; 0 done, 0 dead, 0 canceled\n")
}
