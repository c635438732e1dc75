package source_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func TestSourceWait(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "10")
	clitest.Command(t, env, "source", "create", "idle") // it has no seed
	clitest.WantOutput(t, clitest.Command(t, env, "source", "wait", "idle"), "idle: finished; 0 done, 0 dead, 0 canceled\n")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "wait", "idle", "-o", "json"), `{"id":"idle","outstanding":0,"begun":true,"held":"NO_COLLECTOR","finished":true}`+"\n")
	clitest.Command(t, env, "source", "create", "busy", "--seed", "https://b.example/", "--every", "1h", "--follow")
	late := clitest.Command(t, env, "source", "wait", "busy", "--for", "300ms")
	clitest.WantFailure(t, late, cli.ExitFailed, "not finished within --for: busy: 1 outstanding")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "wait"), cli.ExitUsage, "which sources?")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "wait", "none"), cli.ExitFailed, "source not found")

	waiting := clitest.Start(t, env, "source", "wait", "busy", "idle")
	waiting.Out.Line(t, "busy: 1 outstanding")
	dispatch := pb.NewDispatchServiceClient(clitest.Connect(t, env))
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
	waiting.Out.Line(t, "busy: 2 outstanding")
	work("t2", &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{}}})
	work("t3", &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_GONE, Permanent: true}}})
	if code := waiting.Wait(); code != cli.ExitOK {
		t.Errorf("exit code %d: %s", code, waiting.Err.Text())
	}
	waiting.Out.Line(t, "busy: finished; 1 done, 1 dead, 0 canceled")
}

// A source that nobody crawls is not waited for in silence.
func TestSourceWait_noCollector(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "b", "--seed", "https://b.example/", "--pool", "eu")
	wait := clitest.Command(t, env, "source", "wait", "b", "--for", "1ms")
	if want := "b: 1 outstanding; 1 ready, 0 leased, waits for NO_COLLECTOR\n"; !strings.Contains(wait.Out, want) {
		t.Errorf("lacks %q:\n%s", want, wait.Out)
	}
}

// A source that was never crawled is not finished: its first crawl is waited for, and
// what holds it is told.
func TestSourceWait_notBegun(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "default")
	clitest.Command(t, env, "source", "create", "later", "--seed", "https://l.example/", "--every", "30d", "--first-crawl", "spread")
	wait := clitest.Command(t, env, "source", "wait", "later", "--for", "1ms")
	clitest.WantFailure(t, wait, cli.ExitFailed, "not finished within --for: later: not begun")
	told := clitest.Start(t, env, "source", "wait", "later")
	told.Out.Line(t, `^later: not begun; first crawl in \S+( \S+)?$`)
	clitest.Command(t, env, "hold", "set", "--source", "later")
	paused := clitest.Start(t, env, "source", "wait", "later")
	paused.Out.Line(t, `^later: not begun; first crawl in \S+( \S+)?, waits for SOURCE_HELD\(source later\)$`)
	clitest.Command(t, env, "source", "create", "none")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "wait", "none"), "none: finished; 0 done, 0 dead, 0 canceled\n")
}
