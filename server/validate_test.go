package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

const aTask = "17-aaaaaaaaaaaaaaaaaaaaaaaaaa"

// badRequest is a request with one field out of its limits.
type badRequest struct {
	name  string
	field string
	call  func(ctx context.Context, b *bed) error
}

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

func createWith(change func(*pb.SourceSpec)) func(context.Context, *bed) error {
	spec := &pb.SourceSpec{Id: "news"}
	change(spec)
	return func(ctx context.Context, b *bed) error {
		_, err := b.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: spec})
		return err
	}
}

func ruleWith(change func(*pb.QueueRule)) func(context.Context, *bed) error {
	rule := &pb.QueueRule{Pattern: "example.com"}
	change(rule)
	return func(ctx context.Context, b *bed) error {
		_, err := b.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: rule})
		return err
	}
}

func pauseWith(req *pb.PauseSourcesRequest) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error { _, err := b.sources.PauseSources(ctx, req); return err }
}

func getTaskWith(req *pb.GetTaskRequest) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error { _, err := b.tasks.GetTask(ctx, req); return err }
}

func listTasksWith(req *pb.ListTasksRequest) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error { _, err := b.tasks.ListTasks(ctx, req); return err }
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
		{"renew: slots", "collector.slots", renewWith(&pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Slots: -1}})},
		{"discovered: none", "items", func(ctx context.Context, b *bed) error {
			_, err := b.dispatch.SubmitDiscovered(ctx, &pb.SubmitDiscoveredRequest{TaskId: aTask, LeaseToken: "c1/t/7"})
			return err
		}},
	}
}

func badSpecs() []badRequest {
	spec := func(name, field string, change func(*pb.SourceSpec)) badRequest {
		return badRequest{"source: " + name, "spec." + field, createWith(change)}
	}
	every := func(d time.Duration) *pb.Schedule {
		return &pb.Schedule{Rule: &pb.Schedule_Every{Every: durationpb.New(d)}}
	}
	cron := func(line, zone string) *pb.Schedule {
		return &pb.Schedule{Rule: &pb.Schedule_Cron{Cron: line}, TimeZone: zone}
	}
	adaptive := func(from, to time.Duration) *pb.Schedule {
		return &pb.Schedule{Rule: &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{
			MinInterval: durationpb.New(from), MaxInterval: durationpb.New(to),
		}}}
	}
	zero, ten := int32(0), int32(10)
	return []badRequest{
		{"source: none", "spec.id", func(ctx context.Context, b *bed) error {
			_, err := b.sources.CreateSource(ctx, &pb.CreateSourceRequest{})
			return err
		}},
		spec("id with brace", "id", func(s *pb.SourceSpec) { s.Id = "a{b}" }),
		spec("long id", "id", func(s *pb.SourceSpec) { s.Id = strings.Repeat("a", 129) }),
		spec("long name", "display_name", func(s *pb.SourceSpec) { s.DisplayName = strings.Repeat("a", 257) }),
		spec("scope", "scope", func(s *pb.SourceSpec) { s.Scope = "a/b" }),
		spec("pool", "pool", func(s *pb.SourceSpec) { s.Pool = "EU" }),
		spec("label", "labels[k]", func(s *pb.SourceSpec) { s.Labels = map[string]string{"k": strings.Repeat("v", 129)} }),
		spec("seed without URL", "seeds[0].url", func(s *pb.SourceSpec) { s.Seeds = []*pb.Seed{{}} }),
		spec("seed that does not parse", "seeds[0].url", func(s *pb.SourceSpec) { s.Seeds = []*pb.Seed{{Url: "http://[::1"}} }),
		spec("seed with a space", "seeds[0].url", func(s *pb.SourceSpec) { s.Seeds = []*pb.Seed{{Url: " http://a.example/a b "}} }),
		spec("seed without host", "seeds[0].url", func(s *pb.SourceSpec) { s.Seeds = []*pb.Seed{{Url: "http:///path"}} }),
		spec("seed with queue with brace", "seeds[0].queue", func(s *pb.SourceSpec) { s.Seeds = []*pb.Seed{{Key: "k", Queue: "{q}"}} }),
		spec("seeds that are the same", "seeds[1]", func(s *pb.SourceSpec) {
			s.Seeds = []*pb.Seed{{Url: "http://example.com"}, {Url: "http://EXAMPLE.com/#x"}}
		}),
		spec("short every", "schedule.every", func(s *pb.SourceSpec) { s.Schedule = every(time.Millisecond) }),
		spec("negative every", "schedule.every", func(s *pb.SourceSpec) { s.Schedule = every(-time.Hour) }),
		spec("cron that does not parse", "schedule.cron", func(s *pb.SourceSpec) { s.Schedule = cron("61 * * * *", "") }),
		spec("empty cron", "schedule.cron", func(s *pb.SourceSpec) { s.Schedule = cron("", "") }),
		spec("time zone", "schedule.time_zone", func(s *pb.SourceSpec) { s.Schedule = cron("@daily", "Mars/Olympus") }),
		spec("adaptive without bounds", "schedule.adaptive.min_interval", func(s *pb.SourceSpec) {
			s.Schedule = &pb.Schedule{Rule: &pb.Schedule_Adaptive{Adaptive: &pb.Adaptive{}}}
		}),
		spec("adaptive without an end", "schedule.adaptive.max_interval", func(s *pb.SourceSpec) {
			s.Schedule = adaptive(time.Hour, 367*24*time.Hour)
		}),
		spec("adaptive upside down", "schedule.adaptive.max_interval", func(s *pb.SourceSpec) { s.Schedule = adaptive(time.Hour, time.Minute) }),
		spec("jitter of an interval", "schedule.jitter", func(s *pb.SourceSpec) {
			s.Schedule = every(time.Hour)
			s.Schedule.Jitter = durationpb.New(time.Hour)
		}),
		spec("negative jitter", "schedule.jitter", func(s *pb.SourceSpec) { s.Schedule = &pb.Schedule{Jitter: durationpb.New(-1)} }),
		spec("priority", "priority", func(s *pb.SourceSpec) { s.Priority = &ten }),
		spec("lease_duration", "lease_duration", func(s *pb.SourceSpec) { s.LeaseDuration = durationpb.New(2 * time.Hour) }),
		spec("max_hold below lease", "max_hold", func(s *pb.SourceSpec) {
			s.LeaseDuration, s.MaxHold = durationpb.New(time.Minute), durationpb.New(time.Second)
		}),
		spec("no attempts", "retry.max_attempts", func(s *pb.SourceSpec) { s.Retry = &pb.RetryPolicy{MaxAttempts: &zero} }),
		spec("negative backoff", "retry.min_backoff", func(s *pb.SourceSpec) { s.Retry = &pb.RetryPolicy{MinBackoff: durationpb.New(-1)} }),
		spec("remember", "remember", func(s *pb.SourceSpec) { s.Remember = durationpb.New(time.Second) }),
		spec("expression", "follow.include[0]", func(s *pb.SourceSpec) { s.Follow = &pb.Follow{Include: []string{"("}} }),
		spec("max_depth", "follow.max_depth", func(s *pb.SourceSpec) { s.Follow = &pb.Follow{MaxDepth: proto.Int32(10_001)} }),
		spec("host", "follow.allow_hosts[0]", func(s *pb.SourceSpec) { s.Follow = &pb.Follow{AllowHosts: []string{"*."}} }),
		spec("metadata", "metadata", func(s *pb.SourceSpec) { s.Metadata = map[string]string{"k": strings.Repeat("v", 8<<10)} }),
		spec("payload", "payload", func(s *pb.SourceSpec) { s.Payload = make([]byte, 256<<10+1) }),
	}
}

func badOperations() []badRequest {
	many := int32(1_000_000)
	minusOne := -1.0
	update := func(req *pb.UpdateSourceRequest) func(context.Context, *bed) error {
		return func(ctx context.Context, b *bed) error { _, err := b.sources.UpdateSource(ctx, req); return err }
	}
	return []badRequest{
		{"get source: id", "id", func(ctx context.Context, b *bed) error {
			_, err := b.sources.GetSource(ctx, &pb.GetSourceRequest{Id: "a b"})
			return err
		}},
		{"update: mask", "update_mask", update(&pb.UpdateSourceRequest{
			Spec: &pb.SourceSpec{Id: "kept"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"shade"}},
		})},
		{"update: etag", "etag", update(&pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "kept"}, Etag: "7"})},
		{"update: scope", "spec.scope", update(&pb.UpdateSourceRequest{
			Spec: &pb.SourceSpec{Id: "kept", Scope: "other"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"scope"}},
		})},
		{"update: value", "spec.retry.max_attempts", update(&pb.UpdateSourceRequest{
			Spec:       &pb.SourceSpec{Id: "kept", Retry: &pb.RetryPolicy{MaxAttempts: &many}},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retry.max_attempts"}},
		})},
		{"pause: neither", "ids", pauseWith(&pb.PauseSourcesRequest{})},
		{"pause: both", "filter", pauseWith(&pb.PauseSourcesRequest{Ids: []string{"a"}, Filter: &pb.Filter{All: true}})},
		{"pause: empty filter", "filter.all", pauseWith(&pb.PauseSourcesRequest{Filter: &pb.Filter{}})},
		{"pause: all beside a condition", "filter.all", pauseWith(&pb.PauseSourcesRequest{Filter: &pb.Filter{All: true, Pool: "eu"}})},
		{"pause: condition on queues", "filter.queue_suffix", pauseWith(&pb.PauseSourcesRequest{Filter: &pb.Filter{QueueSuffix: "a.com", Pool: "eu"}})},
		{"pause: many ids", "ids", pauseWith(&pb.PauseSourcesRequest{Ids: strings.Split(strings.Repeat("a,", 1000)+"a", ",")})},
		{"pause: until", "until", pauseWith(&pb.PauseSourcesRequest{Ids: []string{"kept"}, Until: timestamppb.New(time.Now().AddDate(11, 0, 0))})},
		{"pause: passed", "until", pauseWith(&pb.PauseSourcesRequest{Ids: []string{"kept"}, Until: timestamppb.New(time.Now().Add(-time.Hour))})},
		{"pause: reason", "reason", pauseWith(&pb.PauseSourcesRequest{Ids: []string{"kept"}, Reason: strings.Repeat("r", 1025)})},
		{"block: passed", "until", func(ctx context.Context, b *bed) error {
			_, err := b.queues.BlockQueue(ctx, &pb.BlockQueueRequest{Name: "a.com", Until: timestamppb.New(time.Now().Add(-time.Hour))})
			return err
		}},
		{"block: name", "name", func(ctx context.Context, b *bed) error {
			_, err := b.queues.BlockQueue(ctx, &pb.BlockQueueRequest{Name: "a\n"})
			return err
		}},
		{"queue pause: passed", "until", func(ctx context.Context, b *bed) error {
			_, err := b.queues.PauseQueue(ctx, &pb.PauseQueueRequest{Name: "a.com", Until: timestamppb.New(time.Now().Add(-time.Hour))})
			return err
		}},
		{"explain: nothing", "task_id", func(ctx context.Context, b *bed) error {
			_, err := b.admin.Explain(ctx, &pb.ExplainRequest{})
			return err
		}},
		{"explain: two", "pool", func(ctx context.Context, b *bed) error {
			_, err := b.admin.Explain(ctx, &pb.ExplainRequest{SourceId: "a", Pool: "b"})
			return err
		}},
		{"queue resume: name", "name", func(ctx context.Context, b *bed) error {
			_, err := b.queues.ResumeQueue(ctx, &pb.ResumeQueueRequest{})
			return err
		}},
		{"queue list: suffix", "suffix", func(ctx context.Context, b *bed) error {
			_, err := b.queues.ListQueues(ctx, &pb.ListQueuesRequest{Suffix: ".a.com"})
			return err
		}},
		{"cancel: suffix", "filter.queue_suffix", func(ctx context.Context, b *bed) error {
			_, err := b.tasks.CancelTasks(ctx, &pb.CancelTasksRequest{Filter: &pb.Filter{QueueSuffix: "*.a.com"}})
			return err
		}},
		{"rule: pattern", "rule.pattern", ruleWith(func(r *pb.QueueRule) { r.Pattern = "a*b" })},
		{"rule: no pattern", "rule.pattern", ruleWith(func(r *pb.QueueRule) { r.Pattern = "" })},
		{"rule: min_delay", "rule.min_delay", ruleWith(func(r *pb.QueueRule) { r.MinDelay = durationpb.New(25 * time.Hour) })},
		{"rule: max_in_flight", "rule.max_in_flight", ruleWith(func(r *pb.QueueRule) { r.MaxInFlight = &many })},
		{"rule: delay_factor", "rule.delay_factor", ruleWith(func(r *pb.QueueRule) { r.DelayFactor = &minusOne })},
		{"delete rule: pattern", "pattern", func(ctx context.Context, b *bed) error {
			_, err := b.queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: "*."})
			return err
		}},
		{"get task: nothing", "task_id", getTaskWith(&pb.GetTaskRequest{})},
		{"get task: id", "task_id", getTaskWith(&pb.GetTaskRequest{TaskId: "x"})},
		{"get task: id and URL", "url", getTaskWith(&pb.GetTaskRequest{TaskId: aTask, Url: "http://a.com"})},
		{"get task: URL", "url", getTaskWith(&pb.GetTaskRequest{SourceId: "kept", Url: "no url"})},
		{"list tasks: nothing", "source_id", listTasksWith(&pb.ListTasksRequest{})},
		{"list tasks: done", "states[0]", listTasksWith(&pb.ListTasksRequest{Queue: "a.com", States: []pb.TaskState{pb.TaskState_TASK_STATE_DONE}})},
		{"list tasks: page size", "page_size", listTasksWith(&pb.ListTasksRequest{Queue: "a.com", PageSize: 1001})},
		{"list tasks: negative page size", "page_size", listTasksWith(&pb.ListTasksRequest{Queue: "a.com", PageSize: -1})},
		{"list sources: health", "health[0]", func(ctx context.Context, b *bed) error {
			_, err := b.sources.ListSources(ctx, &pb.ListSourcesRequest{Health: []pb.SourceHealth{99}})
			return err
		}},
		{"list collectors: state", "states[0]", func(ctx context.Context, b *bed) error {
			_, err := b.admin.ListCollectors(ctx, &pb.ListCollectorsRequest{States: []pb.CollectorState{99}})
			return err
		}},
		{"submit: none", "items", func(ctx context.Context, b *bed) error {
			_, err := b.tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{})
			return err
		}},
		{"submit: many", "items", func(ctx context.Context, b *bed) error {
			_, err := b.tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: make([]*pb.SubmitItem, 1001)})
			return err
		}},
	}
}

// Every field out of its limits is INVALID_ARGUMENT and names the field, the
// value and the limit.
func TestServer_badInput(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "kept")
	for _, bad := range append(append(append(badFetches(), badReports()...), badSpecs()...), badOperations()...) {
		t.Run(bad.name, func(t *testing.T) {
			f := wantFault(t, bad.call(t.Context(), b), codes.InvalidArgument, "INVALID_FIELD")
			if len(f.violations) == 0 || f.violations[0].GetField() != bad.field {
				t.Fatalf("violations %v, want %s", f.violations, bad.field)
			}
			if f.metadata["field"] != bad.field || f.metadata["limit"] == "" || !strings.Contains(f.message, bad.field) ||
				!strings.Contains(f.message, f.metadata["limit"]) {
				t.Errorf("message %q, metadata %v", f.message, f.metadata)
			}
		})
	}
}

// What is wrong with the wildcards of a pattern is told with the forms there are.
func TestServer_badInput_wildcards(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for _, pattern := range []string{"a*b", "*a.example", "*.", "*.*.example", "a.*", ".a.example", "*..a.example"} {
		_, err := b.queues.SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: pattern}})
		if f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD"); !strings.Contains(f.message, `"*." and a suffix`) {
			t.Errorf("%q: %s", pattern, f.message)
		}
	}
}

// All fields that are wrong are told at once, up to a limit.
func TestServer_badInput_allFields(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	_, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{MaxTasks: -1, MaxBytes: -1})
	if f := faultOf(t, err); len(f.violations) != 4 {
		t.Errorf("violations %v", f.violations)
	}
	_, err = b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: make([]*pb.TaskReport, 500)})
	if f := faultOf(t, err); len(f.violations) != 20 {
		t.Errorf("%d violations", len(f.violations))
	}
}

// An item that cannot be a task is answered in its place and fails no other.
func TestTaskService_SubmitTasks_badItems(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	ten := int32(10)
	bad := map[string]*pb.SubmitItem{
		"source_id": {SourceId: "a{b}", Url: "http://a.com"},
		"url":       {SourceId: "news"},
		"queue":     {SourceId: "news", Key: "k", Queue: "a b"},
		"kind":      {SourceId: "news", Url: "http://a.com", Kind: strings.Repeat("k", 129)},
		"key":       {SourceId: "news", Url: "http://a.com", Key: strings.Repeat("k", 2049)},
		"priority":  {SourceId: "news", Url: "http://a.com", Priority: &ten},
		"due_time":  {SourceId: "news", Url: "http://a.com", DueTime: timestamppb.New(time.Now().AddDate(11, 0, 0))},
		"metadata":  {SourceId: "news", Url: "http://a.com", Metadata: map[string]string{"k": strings.Repeat("v", 8<<10)}},
		"payload":   {SourceId: "news", Url: "http://a.com", Payload: make([]byte, 256<<10+1)},
		"if_exists": {SourceId: "news", Url: "http://a.com", IfExists: 9},
	}
	for field, item := range bad {
		t.Run(field, func(t *testing.T) {
			resp, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{
				item, {SourceId: "news", Url: "http://a.com/" + field},
			}})
			if err != nil {
				t.Fatal(err)
			}
			got := resp.GetResults()
			if got[0].GetCode() != pb.SubmitCode_SUBMIT_CODE_INVALID || got[0].GetErrorReason() != pb.ErrorReason_ERROR_REASON_INVALID_FIELD ||
				!strings.Contains(got[0].GetMessage(), field) || got[0].GetTaskId() != "" {
				t.Errorf("bad item: %v", got[0])
			}
			if got[1].GetCode() != pb.SubmitCode_SUBMIT_CODE_CREATED {
				t.Errorf("good item: %v", got[1])
			}
		})
	}
	t.Run("unknown source", func(t *testing.T) {
		resp, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "none", Url: "http://a.com"}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetResults()[0]; got.GetErrorReason() != pb.ErrorReason_ERROR_REASON_SOURCE_NOT_FOUND {
			t.Errorf("got %v", got)
		}
	})
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = rawCodec{}

// A string that is not UTF-8 cannot be decoded, which is the client's fault and
// told so.
func TestServer_badInput_notUTF8(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	raw, err := proto.Marshal(&pb.GetSourceRequest{Id: "news"})
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] = 0xff
	var resp []byte
	err = b.conn.Invoke(t.Context(), pb.SourceService_GetSource_FullMethodName, &raw, &resp, grpc.ForceCodecV2(rawCodec{}))
	f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
	if !strings.Contains(f.message, "UTF-8") {
		t.Errorf("message %q", f.message)
	}

	beat, err := proto.Marshal(&pb.HeartbeatRequest{Collector: &pb.CollectorInfo{Id: "c1"}})
	if err != nil {
		t.Fatal(err)
	}
	beat[len(beat)-1] = 0xff
	stream, err := b.conn.NewStream(t.Context(), &pb.DispatchService_ServiceDesc.Streams[0],
		pb.DispatchService_Heartbeat_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&beat); err != nil {
		t.Fatal(err)
	}
	wantFault(t, stream.RecvMsg(&resp), codes.InvalidArgument, "INVALID_FIELD")
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

// A label whose key is too long is told by what it is of, its length and the limit.
func TestServer_badInput_labels(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	long := strings.Repeat("k", 129)
	_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "a", Labels: map[string]string{long: "v"}}})
	f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
	if f.metadata["field"] != "spec.labels.key" || !strings.Contains(f.message, "it is 129 bytes long; the limit is 128") {
		t.Errorf("%s %v", f.message, f.metadata)
	}
}
