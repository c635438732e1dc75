package status_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// wantStatus watches until a line has all of the parts in their order, and one has the next command.
func wantStatus(t *testing.T, env map[string]string, next string, parts ...string) {
	t.Helper()
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	watch := clitest.Start(t, env, "status", "--watch=50ms")
	watch.Out.Line(t, strings.Join(parts, ".*"))
	watch.Out.Line(t, regexp.QuoteMeta(next)+"$")
	if code := watch.End(); code != cli.ExitOK || watch.Err.Text() != "" {
		t.Errorf("exit code %d: %s", code, watch.Err.Text())
	}
}

func TestStatus_heldSource(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "default")
	clitest.Command(t, env, "source", "create", "news.a", "--seed", "https://a.example/", "--every", "1h")
	clitest.Command(t, env, "hold", "set", "--source", "news.a", "--for", "2h", "--reason", "they move")
	wantStatus(t, env, "waggle hold lift --source news.a", "HELD", "source news.a: by ada, ", "opens in 2h: they move")
}

func TestStatus_blocked(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "news.a", "--seed", "https://a.example/", "--every", "1h")
	clitest.FailTask(t, env, &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_THROTTLED, HttpStatus: 429, RetryAfter: durationpb.New(30 * time.Minute)})
	wantStatus(t, env, "waggle queue get a.example", "BLOCKED", "THROTTLED (HTTP 429), opens in 30m")
}

func TestStatus_poolWithoutCollectors(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "default")
	clitest.Command(t, env, "source", "create", "news.a", "--seed", "https://a.example/", "--every", "1h", "--pool", "browser")
	wantStatus(t, env, "waggle explain pool browser", "NO_COLLECTOR", "pool browser: no active collector, tasks in 1 queue")
	wantStatus(t, env, "waggle explain source news.a", "STUCK", "source news.a: ", "NO_COLLECTOR")
}

func TestStatus_heldDomain(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Taken(t, env, "default")
	clitest.Command(t, env, "source", "create", "news.a", "--seed", "https://a.shops.example/", "--every", "1h")
	clitest.Command(t, env, "hold", "set", "--queue", "*.shops.example", "--reason", "they asked")
	wantStatus(t, env, "waggle hold lift --queue '*.shops.example'", "HELD", "queue *.shops.example by ada, ", ": they asked")
}

func TestStatus_dueTomorrow(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "news.a", "--seed", "https://a.example/", "--every", "1d")
	conn := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	fetched, err := conn.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: "t"})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatalf("%v, %v", fetched, err)
	}
	lease := fetched.GetLeasedTasks()[0].GetLease()
	if _, err := conn.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
		TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{HttpStatus: 200}}},
	}}}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, env, "waggle source trigger news.a", "IDLE", "nothing is due before tomorrow at ")
	if got := clitest.Command(t, env, "status"); !strings.HasPrefix(got.Out, "all is well: 1 of 1 source OK") {
		t.Errorf("status:\n%s", got.Out)
	}
}

func TestStatus_heldCollector(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.HoldOne(t, env)
	clitest.Command(t, env, "hold", "set", "--collector-label", "region=eu", "--reason", "new image")
	wantStatus(t, env, "waggle hold lift --collector-label region=eu", "HELD", "collectors region=eu (1 active, 1 lease) by ada, ")
}

// A collector whose beats come, and whose handler does not end, is named with the age of its last beat.
func TestStatus_stuckHandler(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "news.a", "--seed", "https://a.example/", "--every", "1h")
	conn := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	if _, err := pb.NewSourceServiceClient(clitest.Connect(t, env)).CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
		Id: "slow", Seeds: []*pb.Seed{{Url: "https://slow.example/"}}, LeaseDuration: durationpb.New(2 * time.Second), MaxHold: durationpb.New(8 * time.Second),
	}}); err != nil {
		t.Fatal(err)
	}
	fetched, err := conn.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "paris-1", Session: "s", ClientToken: "t", Sources: []string{"slow"}})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatalf("%v, %v", fetched, err)
	}
	lease := fetched.GetLeasedTasks()[0].GetLease()
	ctx, stop := context.WithCancel(t.Context())
	beats, ended := time.NewTicker(300*time.Millisecond), make(chan struct{})
	defer func() { stop(); beats.Stop(); <-ended }()
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = conn.RenewLease(ctx, &pb.RenewLeaseRequest{
				Collector: &pb.CollectorInfo{Id: "paris-1", Session: "s"}, Leases: []*pb.LeaseBeat{{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken()}},
			}) // a lease that is lost is not shown
			select {
			case <-beats.C:
			case <-ctx.Done():
			}
		}
	}()
	wantStatus(t, env, "waggle lease list --collector paris-1", "HANDLER", "paris-1, last beat ", " ago, works ", " of at most 8s on ")
}

// A collector with handlers that go on after their leases is named, one without a slot left is STUCK, and then nothing is well.
func TestStatus_stuckCollector(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	conn := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	beat := func(stuck int32) {
		t.Helper()
		info := &pb.CollectorInfo{Id: "paris-1", Session: "s", Slots: 2, StuckSlots: stuck}
		if _, err := conn.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: info}); err != nil {
			t.Fatal(err)
		}
	}
	clitest.Command(t, env, "source", "create", "news.a", "--seed", "https://a.example/", "--every", "1h")
	beat(1)
	wantStatus(t, env, "waggle collector list --collector paris-1", "HANDLER", "collector paris-1: 1 stuck slot of 2: handlers go on after their leases")
	if got := clitest.Command(t, env, "collector", "list"); !strings.Contains(clitest.Settle(got.Out), "paris-1  ACTIVE  0  2  1  ") {
		t.Errorf("collector list:\n%s", got.Out)
	}
	beat(2)
	wantStatus(t, env, "waggle collector list --collector paris-1", "HANDLER", "collector paris-1: 2 stuck slots of 2, so it takes no task: handlers go on after their leases")
	wantStatus(t, env, "waggle explain source news.a", "STUCK", "source news.a: ", "NO_COLLECTOR", "\"paris-1\" has 2 stuck slots of 2")
	if got := clitest.Command(t, env, "collector", "list", "--state", "stuck"); !strings.Contains(clitest.Settle(got.Out), "paris-1  STUCK  0  2  2  ") {
		t.Errorf("collector list:\n%s", got.Out)
	}
	if got := clitest.Command(t, env, "status"); strings.HasPrefix(got.Out, "all is well") || !strings.Contains(got.Out, "of 1 source OK; 1 collector") {
		t.Errorf("status:\n%s", got.Out)
	}
}

// A collector that reports a problem is named with it.
func TestStatus_collectorProblem(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	conn := pb.NewDispatchServiceClient(clitest.Connect(t, env))
	info := &pb.CollectorInfo{Id: "paris-1", Session: "s", Slots: 2, Problem: "no page is taken: exit status 3", ProblemDuration: durationpb.New(8 * time.Minute)}
	if _, err := conn.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: info}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, env, "waggle collector list --collector paris-1", "COLLECTOR", "no page is taken: exit status 3 (collector paris-1)")
	if got := clitest.Command(t, env, "collector", "list"); !strings.Contains(got.Out, "for 8m: no page is taken: exit status 3") {
		t.Errorf("collector list:\n%s", got.Out)
	}
}
