package clitest

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// WantMode wants the mode of a file.
func WantMode(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != mode {
		t.Errorf("%s: %v, %v; want mode %o", path, info, err, mode)
	}
}

// WriteFile writes a file for the test.
func WriteFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ReadFile reads a file of the test.
func ReadFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// SourceSpec is what a source is kept as.
func SourceSpec(t *testing.T, env map[string]string, id string) *pb.SourceSpec {
	t.Helper()
	reply, err := pb.NewSourceServiceClient(Connect(t, env)).GetSource(t.Context(), &pb.GetSourceRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetSource().GetSpec()
}

// HoldOne lets a collector hold a task of source tour, and fail another one. What is
// left of the lease is shown by the minute, however long the test takes.
func HoldOne(t *testing.T, env map[string]string) {
	t.Helper()
	conn := Connect(t, env)
	Command(t, env, "source", "create", "tour", "--scope", "tour", "--seed", "https://news.example/")
	Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "9")
	Command(t, env, "task", "submit", "--source", "tour", "https://news.example/today")
	collectors := pb.NewDispatchServiceClient(conn)
	fetch := func() *pb.LeasedTask {
		t.Helper()
		reply, err := collectors.FetchTask(t.Context(), &pb.FetchTaskRequest{
			CollectorId: "paris-1", Session: "s1", LeaseDuration: durationpb.New(20 * time.Minute),
		})
		if err != nil || len(reply.GetLeasedTasks()) != 1 {
			t.Fatalf("fetched %v: %v", reply, err)
		}
		return reply.GetLeasedTasks()[0]
	}
	first := fetch()
	if _, err := collectors.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "paris-1", Session: "s1", Reports: []*pb.TaskReport{{
		TaskId: first.GetTask().GetId(), LeaseToken: first.GetLease().GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{
			Reason: pb.FailureReason_FAILURE_REASON_NOT_FOUND, HttpStatus: 404, Message: "nothing here",
		}}},
	}}}); err != nil {
		t.Fatal(err)
	}
	held := fetch()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "waggle-client", "waggle-go/0.1.0")
	if _, err := collectors.RenewLease(ctx, &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{
			Id: "paris-1", Session: "s1", Hostname: "paris", Version: "v1", Pools: []string{"default"}, Slots: 4,
			Labels: map[string]string{"region": "eu", "tier": "1"},
		},
		Leases: []*pb.LeaseBeat{{TaskId: held.GetTask().GetId(), LeaseToken: held.GetLease().GetLeaseToken()}},
	}); err != nil {
		t.Fatal(err)
	}
}

// FailTask reports a failure of the next task of a pool.
func FailTask(t *testing.T, env map[string]string, failed *pb.Failed) {
	t.Helper()
	dispatch := pb.NewDispatchServiceClient(Connect(t, env))
	fetched, err := dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c", Session: "s", ClientToken: "t"})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatalf("%v, %v", fetched, err)
	}
	lease := fetched.GetLeasedTasks()[0].GetLease()
	if _, err := dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c", Session: "s", Reports: []*pb.TaskReport{{
		TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Failed{Failed: failed}},
	}}}); err != nil {
		t.Fatal(err)
	}
}

// Ids of tasks.
const (
	HeldTask = "2239-4bltnyzhotfdv53si3p3mp2jza" // HoldOne's https://news.example/today
	NoTask   = "17-aaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// UnknownA is what is said of a queue that was never seen.
const UnknownA = "nothing is known of a queue a.example: no task is in it, and no rule or hold is for it"

// Silent accepts connections and says nothing.
func Silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}
