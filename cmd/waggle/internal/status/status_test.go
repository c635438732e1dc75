package status_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/status"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// staged is a dispatcher whose answers a test sets.
type staged struct {
	pb.UnimplementedAdminServiceServer

	stats     *pb.GetStatsResponse
	statsWait bool // GetStats does not answer
	found     *pb.ListFindingsResponse
}

func (s *staged) GetStats(ctx context.Context, _ *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	if s.statsWait {
		<-ctx.Done()
	}
	return s.stats, ctx.Err()
}

func (s *staged) ListFindings(context.Context, *pb.ListFindingsRequest) (*pb.ListFindingsResponse, error) {
	return s.found, nil
}

// look runs the command against s, and returns what it wrote.
func look(t *testing.T, s *staged, args ...string) (string, error) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, ended := grpc.NewServer(), make(chan error, 1)
	pb.RegisterAdminServiceServer(server, s)
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	root := &cobra.Command{Use: "waggle", SilenceErrors: true, SilenceUsage: true}
	root.AddGroup(&cobra.Group{ID: "operate"})
	o := client.NewOptions(root, cli.Console{Env: os.LookupEnv})
	root.AddCommand(status.New(o))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"status", "--server", listener.Addr().String()}, args...))
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-d)) }

func healthy() *pb.GetStatsResponse {
	return &pb.GetStatsResponse{Tasks: &pb.TaskCounts{}, Dispatcher: &pb.DispatcherInfo{Id: "d"}, Store: &pb.StoreInfo{Kind: "redis"}}
}

// A dozen things that are wrong are shown, each with the command to go on with, in their order. In a pipe nothing is cut.
func TestStatus_dozen(t *testing.T) {
	t.Parallel()
	source := func(kind pb.FindingKind, id string) *pb.Finding {
		return &pb.Finding{Kind: kind, Count: 1, Names: []string{id}, NextStep: "waggle explain source " + id, Worst: &pb.Finding_Source{Source: &pb.Source{
			Id: id, Status: &pb.SourceStatus{ConsecutiveFailures: 3, LastError: &pb.TaskError{
				Reason: pb.FailureReason_FAILURE_REASON_SERVER_ERROR, HttpStatus: 503, Message: "the server says that it is overloaded, and that it will be so for a while",
			}},
		}}}
	}
	never := source(pb.FindingKind_FINDING_KIND_NEVER, "news.never")
	never.SinceTime = ago(3 * time.Hour)
	s := &staged{stats: healthy(), found: &pb.ListFindingsResponse{Sources: 6, SourcesOk: 1, AllLookedAt: true, Findings: []*pb.Finding{
		{Kind: pb.FindingKind_FINDING_KIND_DISPATCHER, Count: 1, Message: "it is about to stop: ask another one", NextStep: "waggle stats"},
		{Kind: pb.FindingKind_FINDING_KIND_HELD, Count: 1, NextStep: "waggle hold list", Worst: &pb.Finding_Hold{Hold: &pb.Hold{
			Target: &pb.HoldTarget{Everything: true}, Name: "default", By: "ada", Reason: "emergency: the proxies burn", CreateTime: ago(time.Hour),
		}}},
		{Kind: pb.FindingKind_FINDING_KIND_HELD, Count: 1, Message: "2 active, 3 leases", NextStep: "waggle hold list", Worst: &pb.Finding_Hold{Hold: &pb.Hold{
			Target: &pb.HoldTarget{CollectorId: "paris-9"}, Name: "deploy", By: "eve", CreateTime: ago(time.Hour),
		}}},
		{Kind: pb.FindingKind_FINDING_KIND_COLLECTOR, Count: 2, Names: []string{"paris-5", "paris-6"}, NextStep: "waggle collector list --collector paris-5", Worst: &pb.Finding_Collector{Collector: &pb.Collector{
			Info: &pb.CollectorInfo{Id: "paris-5"}, Outcomes: &pb.Outcomes{
				Unable: true, SinceTime: ago(2 * time.Minute), Released: 4, Failed: []*pb.FailureCount{{Reason: pb.FailureReason_FAILURE_REASON_DISK, Count: 24}},
				LastError: &pb.TaskError{Reason: pb.FailureReason_FAILURE_REASON_DISK, Message: "no space left on device"},
			},
		}}},
		{Kind: pb.FindingKind_FINDING_KIND_NO_COLLECTOR, Count: 1, NextStep: "waggle explain pool browser", Worst: &pb.Finding_Pool{Pool: &pb.Pool{Name: "browser", ReadyQueues: 12}}},
		{Kind: pb.FindingKind_FINDING_KIND_HUNG, Count: 1, NextStep: "waggle lease list --collector paris-1", Worst: &pb.Finding_Collector{Collector: &pb.Collector{
			Info: &pb.CollectorInfo{Id: "paris-1"}, Leases: 3, HeartbeatAge: durationpb.New(90 * time.Second),
		}}},
		{Kind: pb.FindingKind_FINDING_KIND_DEAF, Count: 1, Message: "it beats", NextStep: "waggle collector list --collector paris-4", Worst: &pb.Finding_Collector{Collector: &pb.Collector{
			Info: &pb.CollectorInfo{Id: "paris-4"},
		}}},
		{
			Kind: pb.FindingKind_FINDING_KIND_FETCHES_FAIL, Count: 1, Message: "25 failures in a row", NextStep: "waggle collector list --collector paris-7",
			Worst: &pb.Finding_Collector{Collector: &pb.Collector{
				Info:     &pb.CollectorInfo{Id: "paris-7"},
				Outcomes: &pb.Outcomes{Failed: []*pb.FailureCount{{Reason: pb.FailureReason_FAILURE_REASON_FORBIDDEN, Count: 25}}},
			}},
		},
		{
			Kind: pb.FindingKind_FINDING_KIND_HANDLER, Count: 1, Message: "last beat 2s ago", MaxHold: durationpb.New(30 * time.Minute), NextStep: "waggle lease list --collector paris-3",
			Worst: &pb.Finding_Lease{Lease: &pb.HeldLease{Url: "https://slow.example/page", Holder: &pb.LeaseHolder{
				CollectorId: "paris-3", Age: durationpb.New(25 * time.Minute), Remaining: durationpb.New(time.Minute),
			}}},
		},
		{Kind: pb.FindingKind_FINDING_KIND_RELEASED, Count: 2, NextStep: "waggle task get 17-cccccccccccccccccccccccccc", Worst: &pb.Finding_Task{Task: &pb.ReleasedTask{
			TaskId: "17-cccccccccccccccccccccccccc", Url: "https://slow.example/worst", Releases: 31, CollectorId: "paris-2", ReleaseTime: ago(2 * time.Minute),
		}}},
		{Kind: pb.FindingKind_FINDING_KIND_BLOCKED, Count: 1, NextStep: "waggle queue get shop.example", Worst: &pb.Finding_Queue{Queue: &pb.Queue{
			Name: "shop.example", Gates: []*pb.Gate{{Kind: pb.GateKind_GATE_KIND_HOST_BLOCKED, Until: ago(-time.Hour), Cause: &pb.TaskError{
				Reason: pb.FailureReason_FAILURE_REASON_THROTTLED, HttpStatus: 429,
			}}},
		}}},
		never, source(pb.FindingKind_FINDING_KIND_FAILING, "news.a-long-name.failing-source"),
		{Kind: pb.FindingKind_FINDING_KIND_DEAD, Count: 1, NextStep: "waggle task list --state dead --source shop", Worst: &pb.Finding_Source{Source: &pb.Source{
			Id: "shop", Status: &pb.SourceStatus{Tasks: &pb.TaskCounts{Dead: 12, Done: 30}},
		}}},
		{Kind: 99, Count: 1, Message: "the moon is full", NextStep: "waggle stats"},
	}}}
	got, err := look(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got, "…") || !strings.Contains(got, ": the server says that it is overloaded, and that it will be so for a while") {
		t.Errorf("it is cut:\n%s", got)
	}
	at := 0
	for _, want := range []string{
		"15 findings; 1 of 6 sources OK", "DISPATCHER ", "it is about to stop", "HELD ", "everything by ada, 1h ago: emergency", "waggle hold lift --everything",
		"collector paris-9 deploy (2 active, 3 leases) by eve", "waggle hold lift --collector paris-9 --name deploy",
		"COLLECTOR ", "DISK: no space left on device, 24 DISK, 4 given back, nothing done for 2m (2 collectors, paris-5 first, then paris-6)", "NO_COLLECTOR ",
		"pool browser: no active collector, tasks in 12 queues", "HUNG ", "collector paris-1: last beat 1m30s ago, holds 3 leases",
		"DEAF ", "collector paris-4: it beats", "FETCHES_FAIL ", "collector paris-7: 25 failures in a row, 25 FORBIDDEN",
		"HANDLER ", "paris-3, last beat 2s ago, works 25m of at most 30m on https://slow.example/page", "waggle lease list --collector paris-3",
		"RELEASED ", "2 tasks: https://slow.example/worst was released 31 times in a row, last by paris-2 2m ago", "waggle task get 17-cccccccccccccccccccccccccc",
		"BLOCKED ", "THROTTLED (HTTP 429), opens in 1h: shop.example", "waggle queue get shop.example",
		"NEVER ", "source news.never: no success in 3h, ", "FAILING ", "DEAD ", "source shop: 12 of 42 settled tasks dead", "99 ", "the moon is full",
	} {
		next := strings.Index(got[at:], want)
		if next < 0 {
			t.Errorf("%q is not shown in its turn:\n%s", want, got)
			continue
		}
		at += next
	}
	programs, err := look(t, s, "-o", "json")
	var report struct {
		OK       bool
		Findings []struct{ Kind, Text, Next string }
	}
	if json.Unmarshal([]byte(programs), &report) != nil || err != nil || report.OK || len(report.Findings) != 15 {
		t.Errorf("%v: %s", err, programs)
	}
	for _, f := range report.Findings {
		if f.Kind == "" || f.Text == "" || !strings.HasPrefix(f.Next, "waggle ") {
			t.Errorf("finding %+v", f)
		}
	}
}

// Where nothing is wrong, one line says so; where there was no time to look at all, it says that.
func TestStatus_well(t *testing.T) {
	t.Parallel()
	s := &staged{stats: healthy(), found: &pb.ListFindingsResponse{Sources: 1, SourcesOk: 1, AllLookedAt: true, NextDueTime: ago(-10 * time.Minute)}}
	got, err := look(t, s)
	if err != nil || got != "all is well: 1 of 1 source OK; 0 collectors, 0 leases; next due in 10m\n" {
		t.Errorf("%v: %s", err, got)
	}
	s.found.AllLookedAt = false
	if got, err = look(t, s); err != nil || !strings.Contains(got, "1 of the first 1 source OK") {
		t.Errorf("%v: %s", err, got)
	}
}

// A store that does not answer is named within 3 s, and told apart from a dispatcher that does not.
func TestStatus_silentStore(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	got, err := look(t, &staged{statsWait: true})
	if took := time.Since(begun); err == nil || took > 3*time.Second || !strings.Contains(got, "STORE ") || !strings.Contains(got, "the store does not answer") {
		t.Errorf("%v after %s: %s", err, took, got)
	}
}
