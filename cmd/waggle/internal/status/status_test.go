package status_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	pb.UnimplementedSourceServiceServer
	pb.UnimplementedQueueServiceServer
	pb.UnimplementedHoldServiceServer
	pb.UnimplementedAdminServiceServer

	stats      *pb.GetStatsResponse
	statsWait  bool // GetStats does not answer
	sources    []*pb.Source
	more       bool // there is always another page of sources
	holds      []*pb.Hold
	queue      *pb.Queue
	pools      []*pb.Pool
	collectors []*pb.Collector
	leases     []*pb.HeldLease
}

func (s *staged) GetStats(ctx context.Context, _ *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	if s.statsWait {
		<-ctx.Done()
	}
	return s.stats, ctx.Err()
}

func (s *staged) ListSources(ctx context.Context, _ *pb.ListSourcesRequest) (*pb.ListSourcesResponse, error) {
	reply := &pb.ListSourcesResponse{Sources: s.sources}
	if s.more {
		reply.NextPageToken = "more"
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
	return reply, nil
}

func (s *staged) GetSource(_ context.Context, r *pb.GetSourceRequest) (*pb.GetSourceResponse, error) {
	for _, source := range s.sources {
		if source.GetId() == r.GetId() {
			return &pb.GetSourceResponse{Source: source}, nil
		}
	}
	return &pb.GetSourceResponse{Source: &pb.Source{}}, nil
}

func (s *staged) ListHolds(context.Context, *pb.ListHoldsRequest) (*pb.ListHoldsResponse, error) {
	return &pb.ListHoldsResponse{Holds: s.holds}, nil
}

func (s *staged) GetQueue(context.Context, *pb.GetQueueRequest) (*pb.GetQueueResponse, error) {
	return &pb.GetQueueResponse{Queue: s.queue}, nil
}

func (s *staged) ListPools(context.Context, *pb.ListPoolsRequest) (*pb.ListPoolsResponse, error) {
	return &pb.ListPoolsResponse{Pools: s.pools}, nil
}

func (s *staged) ListCollectors(context.Context, *pb.ListCollectorsRequest) (*pb.ListCollectorsResponse, error) {
	return &pb.ListCollectorsResponse{Collectors: s.collectors}, nil
}

func (s *staged) ListLeases(context.Context, *pb.ListLeasesRequest) (*pb.ListLeasesResponse, error) {
	return &pb.ListLeasesResponse{Leases: s.leases}, nil
}

func (s *staged) Explain(context.Context, *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	return &pb.ExplainResponse{Gates: []*pb.ExplainedGate{{Gate: &pb.Gate{Kind: pb.GateKind_GATE_KIND_NO_COLLECTOR}}}}, nil
}

// look runs the command against s, and returns what it wrote.
func look(t *testing.T, s *staged, args ...string) (string, error) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, ended := grpc.NewServer(), make(chan error, 1)
	pb.RegisterSourceServiceServer(server, s)
	pb.RegisterQueueServiceServer(server, s)
	pb.RegisterHoldServiceServer(server, s)
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
	return &pb.GetStatsResponse{Tasks: &pb.TaskCounts{}, KeeperId: "d", Dispatcher: &pb.DispatcherInfo{Id: "d"}, Store: &pb.StoreInfo{Kind: "redis"}}
}

// A dozen things that are wrong are shown, each with the command to go on with, and the worst come first. In a pipe nothing is cut.
func TestStatus_dozen(t *testing.T) {
	t.Parallel()
	source := func(id string, is pb.SourceHealth) *pb.Source {
		return &pb.Source{Id: id, Status: &pb.SourceStatus{Health: is, ConsecutiveFailures: 3, LastError: &pb.TaskError{
			Reason: pb.FailureReason_FAILURE_REASON_SERVER_ERROR, HttpStatus: 503, Message: "the server says that it is overloaded, and that it will be so for a while",
		}}}
	}
	s := &staged{
		stats: healthy(),
		sources: []*pb.Source{
			source("news.fine", pb.SourceHealth_SOURCE_HEALTH_OK), source("news.a-long-name.failing-source", pb.SourceHealth_SOURCE_HEALTH_FAILING),
			source("news.a-long-name.backed-off-source", pb.SourceHealth_SOURCE_HEALTH_BACKED_OFF), source("news.a-long-name.late-source", pb.SourceHealth_SOURCE_HEALTH_LATE),
			source("news.a-long-name.stuck-source", pb.SourceHealth_SOURCE_HEALTH_STUCK),
			{Id: "news.released", Status: &pb.SourceStatus{Health: pb.SourceHealth_SOURCE_HEALTH_OK, ReleasedTasks: []*pb.ReleasedTask{
				{TaskId: "17-bbbbbbbbbbbbbbbbbbbbbbbbbb", Url: "https://slow.example/first", Releases: 20, CollectorId: "paris-1", ReleaseTime: ago(time.Minute)},
				{TaskId: "17-cccccccccccccccccccccccccc", Url: "https://slow.example/worst", Releases: 31, CollectorId: "paris-2", ReleaseTime: ago(2 * time.Minute)},
			}}},
		},
		holds: []*pb.Hold{
			{Target: &pb.HoldTarget{Everything: true}, Name: "default", By: "ada", Reason: "emergency: the proxies burn", CreateTime: ago(time.Hour)},
			{Target: &pb.HoldTarget{Pool: "browser"}, Name: "deploy", By: "eve", CreateTime: ago(time.Hour)},
			{Target: &pb.HoldTarget{Queue: "shop.example"}, Name: "waggle", By: "waggle", CreateTime: ago(time.Minute), Until: ago(-time.Hour)},
		},
		queue: &pb.Queue{Gates: []*pb.Gate{{Kind: pb.GateKind_GATE_KIND_HOST_BLOCKED, Cause: &pb.TaskError{
			Reason: pb.FailureReason_FAILURE_REASON_THROTTLED, HttpStatus: 429,
		}}}},
		pools: []*pb.Pool{{Name: "browser", ReadyQueues: 12}},
		collectors: []*pb.Collector{
			{Info: &pb.CollectorInfo{Id: "paris-1"}, State: pb.CollectorState_COLLECTOR_STATE_GONE, Leases: 3, HeartbeatAge: durationpb.New(90 * time.Second)},
			{Info: &pb.CollectorInfo{Id: "paris-2"}, State: pb.CollectorState_COLLECTOR_STATE_GONE, HeartbeatAge: durationpb.New(2 * time.Minute)},
			{Info: &pb.CollectorInfo{Id: "paris-3"}, State: pb.CollectorState_COLLECTOR_STATE_ACTIVE, Leases: 1, HeartbeatAge: durationpb.New(2 * time.Second)},
		},
		leases: []*pb.HeldLease{{
			TaskId: "17-aaaaaaaaaaaaaaaaaaaaaaaaaa", SourceId: "news.fine", Url: "https://slow.example/page",
			Holder: &pb.LeaseHolder{CollectorId: "paris-3", Age: durationpb.New(25 * time.Minute), Remaining: durationpb.New(time.Minute)},
		}},
	}
	s.stats.KeeperId, s.stats.Store.Full, s.stats.Grace = "", true, durationpb.New(20*time.Second)
	got, err := look(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got, "…") || !strings.Contains(got, ": the server says that it is overloaded, and that it will be so for a while") {
		t.Errorf("it is cut:\n%s", got)
	}
	at := 0
	for _, want := range []string{
		"DISPATCHER ", "no keeper", "STORE ", "full: submits are refused", "HELD ", "everything by ada, 1h ago: emergency", "waggle hold lift --everything",
		"waggle hold lift --pool browser --name deploy", "STUCK ", "NO_COLLECTOR ", "pool browser", "HUNG ", "collector paris-1: last beat 1m30s ago",
		"HANDLER ", "paris-3, last beat 2s ago, works 25m of at most 30m on ", "waggle lease list --collector paris-3",
		"RELEASED ", "2 tasks: https://slow.example/worst was released 31 times in a row, last by paris-2 2m ago", "waggle task get 17-cccccccccccccccccccccccccc", "BLOCKED ", "THROTTLED (HTTP 429), opens in 1h",
		"waggle queue get shop.example", "FAILING ", "BACKED_OFF ", "LATE ", "GONE ", "paris-2",
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
	if json.Unmarshal([]byte(programs), &report) != nil || err != nil || report.OK || len(report.Findings) < 12 {
		t.Errorf("%v: %s", err, programs)
	}
	for _, f := range report.Findings {
		if f.Kind == "" || f.Text == "" || !strings.HasPrefix(f.Next, "waggle ") {
			t.Errorf("finding %+v", f)
		}
	}
}

// Where nothing is wrong, one line says so.
func TestStatus_well(t *testing.T) {
	t.Parallel()
	got, err := look(t, &staged{stats: healthy(), sources: []*pb.Source{
		{Id: "a", Status: &pb.SourceStatus{Health: pb.SourceHealth_SOURCE_HEALTH_OK, NextDueTime: ago(-10 * time.Minute)}},
	}})
	if err != nil || got != "all is well: 1 of 1 source OK; 0 collectors, 0 leases; next due in 10m\n" {
		t.Errorf("%v: %s", err, got)
	}
}

// Of a million sources it looks at some, and says so.
func TestStatus_many(t *testing.T) {
	t.Parallel()
	s := &staged{stats: healthy(), more: true}
	for i := range 500 {
		s.sources = append(s.sources, &pb.Source{Id: fmt.Sprint("s", i), Status: &pb.SourceStatus{Health: pb.SourceHealth_SOURCE_HEALTH_OK}})
	}
	begun := time.Now()
	got, err := look(t, s)
	if took := time.Since(begun); err != nil || took > 3*time.Second || !strings.Contains(got, " of the first ") {
		t.Errorf("%v after %s: %s", err, took, got)
	}
}

// A store that does not answer is named within 3 s, and told apart from a dispatcher that does not.
func TestStatus_silentStore(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	got, err := look(t, &staged{statsWait: true})
	if took := time.Since(begun); err == nil || took > 3*time.Second || !strings.Contains(got, "STORE ") || !strings.Contains(got, "Redis does not answer") {
		t.Errorf("%v after %s: %s", err, took, got)
	}
}
