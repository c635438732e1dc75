//go:build e2e

package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// startLimit is how long a process may take until it serves.
const startLimit = 20 * time.Second

// dispatcher is a `waggle serve`.
type dispatcher struct {
	*process
	addr string // of gRPC
	http string
}

// serve starts a dispatcher on a store, on ports of its own choosing, and waits until it is ready.
func serve(t *testing.T, name, store, prefix string, args ...string) *dispatcher {
	t.Helper()
	return serveBy(t, []string{programs.path("waggle")}, name, store, prefix, args...)
}

// serveBy is serve by a command, which may be a build of another commit, or run it in another way.
func serveBy(t *testing.T, command []string, name, store, prefix string, args ...string) *dispatcher {
	t.Helper()
	args = append(slices.Concat(command[1:], []string{
		"serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", store, "--prefix", prefix, "--log-format", "json",
	}), args...)
	return awaitServing(t, launch(t, name, command[0], args...))
}

// awaitServing waits until a dispatcher that logs JSON is ready, and reads its addresses from the log.
func awaitServing(t *testing.T, p *process) *dispatcher {
	t.Helper()
	d := &dispatcher{process: p}
	var listening struct {
		GRPC string `json:"grpc"`
		HTTP string `json:"http"`
	}
	line := d.line(`"listening"`, startLimit)
	if err := json.Unmarshal([]byte(line), &listening); err != nil || listening.GRPC == "" || listening.HTTP == "" {
		t.Fatalf("%s says it listens, and not where: %s", p.name, line)
	}
	d.addr, d.http = listening.GRPC, listening.HTTP
	d.line(`"serving"`, startLimit)
	return d
}

// logCollector starts a logcollector on the given dispatchers. Its history goes to the file that is returned.
func logCollector(t *testing.T, id, dir string, slots int, servers []string, args ...string) (p *process, log string) {
	t.Helper()
	log = filepath.Join(dir, id+".jsonl")
	args = append([]string{
		"-id", id, "-log", log, "-slots", strconv.Itoa(slots), "-server", strings.Join(servers, ","),
	}, args...)
	return launch(t, id, programs.path("logcollector"), args...), log
}

// started waits until a collector's log says that it works on a task, and returns the event.
func started(t *testing.T, log string) history.Event {
	t.Helper()
	var found history.Event
	until(t, startLimit, "a task is begun in "+filepath.Base(log), func() bool {
		text, err := os.ReadFile(log)
		if err != nil {
			return false
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &found) == nil && found.Kind == history.Started {
				return true
			}
		}
		return false
	})
	return found
}

// command runs the waggle command against a dispatcher, and fails the test unless it succeeds.
func command(t *testing.T, server string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs.path("waggle"), append(args, "--server", server)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("waggle %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// client calls one dispatcher.
type client struct {
	dispatch pb.DispatchServiceClient
	tasks    pb.TaskServiceClient
	sources  pb.SourceServiceClient
	queues   pb.QueueServiceClient
	holds    pb.HoldServiceClient
	admin    pb.AdminServiceClient
}

// dial connects to a dispatcher until the test ends.
func dial(t *testing.T, addr string, opts ...grpc.DialOption) *client {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return clientOn(conn)
}

func clientOn(conn *grpc.ClientConn) *client {
	return &client{
		dispatch: pb.NewDispatchServiceClient(conn), tasks: pb.NewTaskServiceClient(conn), sources: pb.NewSourceServiceClient(conn),
		queues: pb.NewQueueServiceClient(conn), holds: pb.NewHoldServiceClient(conn), admin: pb.NewAdminServiceClient(conn),
	}
}

// createSource makes a source.
func (c *client) createSource(t *testing.T, spec *pb.SourceSpec) {
	t.Helper()
	if _, err := c.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: spec}); err != nil {
		t.Fatalf("create source %s: %v", spec.GetId(), err)
	}
}

// setRule sets the delay and limit of all queues that match a pattern.
func (c *client) setRule(t *testing.T, pattern string, delay time.Duration, inFlight int32) {
	t.Helper()
	rule := &pb.QueueRule{Pattern: pattern, MinDelay: durationpb.New(delay), MaxInFlight: &inFlight}
	if _, err := c.queues.SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{Rule: rule, By: "e2e", Reason: "test"}); err != nil {
		t.Fatalf("set queue rule %s: %v", pattern, err)
	}
}

// submit submits new tasks, at most 1,000, and returns their ids.
func (c *client) submit(t *testing.T, items ...*pb.SubmitItem) []string {
	t.Helper()
	reply, err := c.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: items})
	if err != nil {
		t.Fatalf("submit %d tasks: %v", len(items), err)
	}
	ids := make([]string, len(items))
	for i, r := range reply.GetResults() {
		if r.GetCode() != pb.SubmitCode_SUBMIT_CODE_CREATED {
			t.Fatalf("task %d: %v", i, r)
		}
		ids[i] = r.GetTaskId()
	}
	return ids
}

// task reads a task.
func (c *client) task(t *testing.T, id string) *pb.Task {
	t.Helper()
	reply, err := c.tasks.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: id})
	if err != nil {
		t.Fatalf("get task %s: %v", id, err)
	}
	return reply.GetTask()
}

// stats reads the counts.
func (c *client) stats(t *testing.T) *pb.GetStatsResponse {
	t.Helper()
	reply, err := c.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
	if err != nil {
		t.Fatalf("get stats: %v", err)
	}
	return reply
}

// fetch asks for one task under a new client token, with a lease of the source's duration.
func (c *client) fetch(t *testing.T, collector, session string, wait time.Duration) *pb.FetchTaskResponse {
	t.Helper()
	reply, err := c.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
		CollectorId: collector, Session: session, ClientToken: uuid.NewString(), Wait: durationpb.New(wait),
	})
	if err != nil {
		t.Fatalf("fetch: %v", err)
	}
	return reply
}

// fetchOne is fetch of a task that must be there.
func (c *client) fetchOne(t *testing.T, collector, session string, wait time.Duration) *pb.LeasedTask {
	t.Helper()
	reply := c.fetch(t, collector, session, wait)
	if len(reply.GetLeasedTasks()) != 1 {
		t.Fatalf("fetched %d tasks (%v), want 1", len(reply.GetLeasedTasks()), reply.GetEmptyReason())
	}
	return reply.GetLeasedTasks()[0]
}

// report reports one lease as succeeded.
func (c *client) report(t *testing.T, collector, session string, lease *pb.Lease) *pb.ReportResult {
	t.Helper()
	reply, err := c.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{
		CollectorId: collector, Session: session,
		Reports: []*pb.TaskReport{{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: success()}},
	})
	if err != nil {
		t.Fatalf("report: %v", err)
	}
	return reply.GetResults()[0]
}

// renew renews one lease.
func (c *client) renew(t *testing.T, collector, session string, lease *pb.Lease) *pb.LeaseStatus {
	t.Helper()
	reply, err := c.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: collector, Session: session},
		Leases:    []*pb.LeaseBeat{{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken()}},
	})
	if err != nil {
		t.Fatalf("renew: %v", err)
	}
	return reply.GetStatus()
}

func success() *pb.Outcome {
	return &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{
		HttpStatus: 200, FetchDuration: durationpb.New(time.Millisecond),
	}}}
}

// redisCLI runs redis-cli as an operator would.
func redisCLI(t *testing.T, server *redistest.Server, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "redis-cli", append([]string{"-s", server.Socket()}, args...)...).Output()
	if err != nil {
		t.Fatalf("redis-cli %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// locks lists the keys of all locks under a prefix.
func locks(t *testing.T, server *redistest.Server, prefix string) []string {
	t.Helper()
	return strings.Fields(redisCLI(t, server, "--scan", "--pattern", prefix+":{*}:lock:*"))
}

// reason is the reason that an error of a call gives, empty when it gives none.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// retryDelay is how long an error of a call wants to be waited, 0 when it does not say.
func retryDelay(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
