package server_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func fetchWith(change func(*pb.FetchTaskRequest)) func(context.Context, *bed) error {
	req := &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(0)}
	change(req)
	return func(ctx context.Context, b *bed) error { _, err := b.dispatch.FetchTask(ctx, req); return err }
}

func reportWith(change func(*pb.TaskReport)) func(context.Context, *bed) error {
	report := &pb.TaskReport{
		TaskId: aTask, LeaseToken: "c1/t/7",
		Outcome: &pb.Outcome{Result: &pb.Outcome_Released{Released: &pb.Released{}}},
	}
	change(report)
	req := &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{report}}
	return func(ctx context.Context, b *bed) error { _, err := b.dispatch.ReportTask(ctx, req); return err }
}

func failedWith(f *pb.Failed) func(*pb.TaskReport) {
	return func(r *pb.TaskReport) { r.Outcome.Result = &pb.Outcome_Failed{Failed: f} }
}

func succeededWith(s *pb.Succeeded) func(*pb.TaskReport) {
	return func(r *pb.TaskReport) { r.Outcome.Result = &pb.Outcome_Succeeded{Succeeded: s} }
}

func renewWith(req *pb.RenewLeaseRequest) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error { _, err := b.dispatch.RenewLease(ctx, req); return err }
}

func badFetches() []badRequest {
	fetch := func(name, field string, change func(*pb.FetchTaskRequest)) badRequest {
		return badRequest{"fetch: " + name, field, fetchWith(change)}
	}
	return []badRequest{
		fetch("no collector", "collector_id", func(r *pb.FetchTaskRequest) { r.CollectorId = "" }),
		fetch("long collector", "collector_id", func(r *pb.FetchTaskRequest) { r.CollectorId = strings.Repeat("c", 129) }),
		fetch("brace", "collector_id", func(r *pb.FetchTaskRequest) { r.CollectorId = "c{1}" }),
		fetch("slash", "collector_id", func(r *pb.FetchTaskRequest) { r.CollectorId = "c/1" }),
		fetch("control character", "collector_id", func(r *pb.FetchTaskRequest) { r.CollectorId = "c\x00" }),
		fetch("upper case", "collector_id", func(r *pb.FetchTaskRequest) { r.CollectorId = "C1" }),
		fetch("no session", "session", func(r *pb.FetchTaskRequest) { r.Session = "" }),
		fetch("session with slash", "session", func(r *pb.FetchTaskRequest) { r.Session = "a/b" }),
		fetch("client token with slash", "client_token", func(r *pb.FetchTaskRequest) { r.ClientToken = "a/b" }),
		fetch("long client token", "client_token", func(r *pb.FetchTaskRequest) { r.ClientToken = strings.Repeat("t", 129) }),
		fetch("pool", "pools[0]", func(r *pb.FetchTaskRequest) { r.Pools = []string{"{eu}"} }),
		fetch("many pools", "pools", func(r *pb.FetchTaskRequest) { r.Pools = strings.Split(strings.Repeat("p,", 16)+"p", ",") }),
		fetch("queue", "queues[0]", func(r *pb.FetchTaskRequest) { r.Queues = []string{"a/b"} }),
		fetch("source", "sources[0]", func(r *pb.FetchTaskRequest) { r.Sources = []string{""} }),
		fetch("max_tasks", "max_tasks", func(r *pb.FetchTaskRequest) { r.MaxTasks = 1001 }),
		fetch("negative max_tasks", "max_tasks", func(r *pb.FetchTaskRequest) { r.MaxTasks = -1 }),
		fetch("max_bytes", "max_bytes", func(r *pb.FetchTaskRequest) { r.MaxBytes = 3<<20 + 1 }),
		fetch("long wait", "wait", func(r *pb.FetchTaskRequest) { r.Wait = durationpb.New(31 * time.Second) }),
		fetch("negative wait", "wait", func(r *pb.FetchTaskRequest) { r.Wait = durationpb.New(-1) }),
		fetch("wait that is none", "wait", func(r *pb.FetchTaskRequest) { r.Wait = &durationpb.Duration{Seconds: 1, Nanos: -1} }),
		fetch("short lease", "lease_duration", func(r *pb.FetchTaskRequest) { r.LeaseDuration = durationpb.New(999 * time.Millisecond) }),
		fetch("long lease", "lease_duration", func(r *pb.FetchTaskRequest) { r.LeaseDuration = durationpb.New(time.Hour + 1) }),
		fetch("label without a key", "labels.key", func(r *pb.FetchTaskRequest) { r.Labels = map[string]string{"": "eu"} }),
		fetch("long label", "labels[region]", func(r *pb.FetchTaskRequest) { r.Labels = map[string]string{"region": strings.Repeat("e", 129)} }),
		fetch("many labels", "labels", func(r *pb.FetchTaskRequest) {
			r.Labels = make(map[string]string)
			for i := range 65 {
				r.Labels[strconv.Itoa(i)] = ""
			}
		}),
		fetch("many reports", "reports", func(r *pb.FetchTaskRequest) { r.Reports = make([]*pb.TaskReport, 1001) }),
	}
}

func badReports() []badRequest {
	report := func(name, field string, change func(*pb.TaskReport)) badRequest {
		return badRequest{"report: " + name, field, reportWith(change)}
	}
	const at = "reports[0]."
	return []badRequest{
		{"report: none", "reports", func(ctx context.Context, b *bed) error {
			_, err := b.dispatch.ReportTask(ctx, &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1"})
			return err
		}},
		report("no task", at+"task_id", func(r *pb.TaskReport) { r.TaskId = "" }),
		report("no task id", at+"task_id", func(r *pb.TaskReport) { r.TaskId = "4096-aaaaaaaaaaaaaaaaaaaaaaaaaa" }),
		report("empty lease token", at+"lease_token", func(r *pb.TaskReport) { r.LeaseToken = "" }),
		report("truncated lease token", at+"lease_token", func(r *pb.TaskReport) { r.LeaseToken = "c1/t" }),
		report("lease token without fence", at+"lease_token", func(r *pb.TaskReport) { r.LeaseToken = "c1/t/" }),
		report("no outcome", at+"outcome", func(r *pb.TaskReport) { r.Outcome = nil }),
		report("large memo", at+"outcome.succeeded.memo", succeededWith(&pb.Succeeded{Memo: make([]byte, 4<<10+1)})),
		report("negative bytes", at+"outcome.succeeded.bytes", succeededWith(&pb.Succeeded{Bytes: -1})),
		report("many discovered", at+"outcome.succeeded.discovered", succeededWith(&pb.Succeeded{Discovered: make([]*pb.DiscoveredItem, 1001)})),
		report("queue_delay", at+"outcome.succeeded.queue_delay", succeededWith(&pb.Succeeded{QueueDelay: durationpb.New(time.Hour + 1)})),
		report("next_crawl_delay", at+"outcome.succeeded.next_crawl_delay", succeededWith(&pb.Succeeded{NextCrawlDelay: durationpb.New(367 * 24 * time.Hour)})),
		report("negative queue_delay", at+"outcome.failed.queue_delay", failedWith(&pb.Failed{QueueDelay: durationpb.New(-1)})),
		report("status", at+"outcome.failed.http_status", failedWith(&pb.Failed{HttpStatus: 99})),
		report("long message", at+"outcome.failed.message", failedWith(&pb.Failed{Message: strings.Repeat("m", 1025)})),
		report("negative reason", at+"outcome.failed.reason", failedWith(&pb.Failed{Reason: -1})),
		report("permanent host failure", at+"outcome.failed.permanent", failedWith(&pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_DNS, Permanent: true})),
		report("permanent URL failure", at+"outcome.failed.permanent", failedWith(&pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_TIMEOUT, Permanent: true})),
		report("fetch_duration", at+"outcome.failed.fetch_duration", failedWith(&pb.Failed{FetchDuration: durationpb.New(25 * time.Hour)})),
		report("retry_after", at+"outcome.failed.retry_after", failedWith(&pb.Failed{RetryAfter: durationpb.New(-1)})),
		report("delay", at+"outcome.released.delay", func(r *pb.TaskReport) {
			r.Outcome.Result = &pb.Outcome_Released{Released: &pb.Released{Delay: durationpb.New(25 * time.Hour)}}
		}),
		{"renew: no collector", "collector.id", renewWith(&pb.RenewLeaseRequest{})},
		{"renew: large cursor", "leases[0].cursor", renewWith(&pb.RenewLeaseRequest{
			Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"},
			Leases:    []*pb.LeaseBeat{{TaskId: aTask, LeaseToken: "c1/t/7", Cursor: make([]byte, 64<<10+1)}},
		})},
		{"renew: many leases", "leases", renewWith(&pb.RenewLeaseRequest{
			Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"}, Leases: make([]*pb.LeaseBeat, 1001),
		})},
		{"renew: ended with leases", "collector.ended", renewWith(&pb.RenewLeaseRequest{
			Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Ended: true}, Leases: []*pb.LeaseBeat{{TaskId: aTask, LeaseToken: "c1/t/7"}},
		})},
		{"renew: slots", "collector.slots", renewWith(&pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Slots: -1}})},
		{"renew: stuck slots", "collector.stuck_slots", renewWith(&pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", StuckSlots: 100_001}})},
		{"renew: problem", "collector.problem", renewWith(&pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Problem: strings.Repeat("x", 301)}})},
		{"renew: problem_duration", "collector.problem_duration", renewWith(&pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", ProblemDuration: durationpb.New(-1)}})},
		{"renew: sources", "collector.sources[1]", renewWith(&pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Sources: []string{"a", "A"}}})},
		{"renew: queues", "collector.queues", renewWith(&pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Queues: make([]string, 17)}})},
		{"discovered: none", "items", func(ctx context.Context, b *bed) error {
			_, err := b.dispatch.SubmitDiscovered(ctx, &pb.SubmitDiscoveredRequest{TaskId: aTask, LeaseToken: "c1/t/7"})
			return err
		}},
	}
}

func TestDispatchService_FetchTask_unknownSource(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	_, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
		CollectorId: "c1", Session: "s1", Sources: []string{"none"}, Wait: durationpb.New(0),
	})
	if f := wantFault(t, err, codes.NotFound, "SOURCE_NOT_FOUND"); f.metadata["source_id"] != "none" {
		t.Errorf("metadata %v", f.metadata)
	}
}
