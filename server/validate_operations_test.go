package server_test

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func ruleWith(change func(*pb.QueueRule)) func(context.Context, *bed) error {
	rule := &pb.QueueRule{Pattern: "example.com"}
	change(rule)
	return func(ctx context.Context, b *bed) error {
		_, err := b.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: rule})
		return err
	}
}

func triggerWith(req *pb.TriggerSourcesRequest) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error { _, err := b.sources.TriggerSources(ctx, req); return err }
}

func getTaskWith(req *pb.GetTaskRequest) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error { _, err := b.tasks.GetTask(ctx, req); return err }
}

func listTasksWith(req *pb.ListTasksRequest) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error { _, err := b.tasks.ListTasks(ctx, req); return err }
}

func badOperations() []badRequest {
	many := int32(1_000_000)
	minusOne := -1.0
	update := func(req *pb.UpdateSourceRequest) func(context.Context, *bed) error {
		return func(ctx context.Context, b *bed) error { _, err := b.sources.UpdateSource(ctx, req); return err }
	}
	return []badRequest{
		{"list audit entries: by", "by", func(ctx context.Context, b *bed) error {
			_, err := b.admin.ListAuditEntries(ctx, &pb.ListAuditEntriesRequest{By: strings.Repeat("a", 257)})
			return err
		}},
		{"list audit entries: page_size", "page_size", func(ctx context.Context, b *bed) error {
			_, err := b.admin.ListAuditEntries(ctx, &pb.ListAuditEntriesRequest{PageSize: 1001})
			return err
		}},
		{"release collector: collector_id", "collector_id", func(ctx context.Context, b *bed) error {
			_, err := b.admin.ReleaseCollector(ctx, &pb.ReleaseCollectorRequest{})
			return err
		}},
		{"release collector: reason", "reason", func(ctx context.Context, b *bed) error {
			_, err := b.admin.ReleaseCollector(ctx, &pb.ReleaseCollectorRequest{CollectorId: "c1", Reason: strings.Repeat("a", 1025)})
			return err
		}},
		{"explain access: method", "method", func(ctx context.Context, b *bed) error {
			_, err := b.admin.ExplainAccess(ctx, &pb.ExplainAccessRequest{Identity: "token:a"})
			return err
		}},
		{"move owner: owner", "owner", func(ctx context.Context, b *bed) error {
			_, err := b.admin.MoveOwner(ctx, &pb.MoveOwnerRequest{Owner: strings.Repeat("a", 129)})
			return err
		}},
		{"move owner: reason", "reason", func(ctx context.Context, b *bed) error {
			_, err := b.admin.MoveOwner(ctx, &pb.MoveOwnerRequest{Reason: strings.Repeat("a", 1025)})
			return err
		}},
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
		{"trigger: neither", "ids", triggerWith(&pb.TriggerSourcesRequest{})},
		{"trigger: both", "filter", triggerWith(&pb.TriggerSourcesRequest{Ids: []string{"a"}, Filter: &pb.Filter{All: true}})},
		{"trigger: empty filter", "filter.all", triggerWith(&pb.TriggerSourcesRequest{Filter: &pb.Filter{}})},
		{"trigger: all beside a condition", "filter.all", triggerWith(&pb.TriggerSourcesRequest{Filter: &pb.Filter{All: true, Pool: "eu"}})},
		{"trigger: condition on queues", "filter.queue_suffix", triggerWith(&pb.TriggerSourcesRequest{Filter: &pb.Filter{QueueSuffix: "a.com", Pool: "eu"}})},
		{"trigger: many ids", "ids", triggerWith(&pb.TriggerSourcesRequest{Ids: strings.Split(strings.Repeat("a,", 1000)+"a", ",")})},
		{"trigger: reason", "reason", triggerWith(&pb.TriggerSourcesRequest{Ids: []string{"kept"}, Reason: strings.Repeat("r", 1025)})},
		{"explain: nothing", "task_id", func(ctx context.Context, b *bed) error {
			_, err := b.admin.Explain(ctx, &pb.ExplainRequest{})
			return err
		}},
		{"explain: two", "pool", func(ctx context.Context, b *bed) error {
			_, err := b.admin.Explain(ctx, &pb.ExplainRequest{SourceId: "a", Pool: "b"})
			return err
		}},
		{"queue list: suffix", "filter.queue_suffix", func(ctx context.Context, b *bed) error {
			_, err := b.queues.ListQueues(ctx, &pb.ListQueuesRequest{Filter: &pb.Filter{QueueSuffix: ".a.com"}})
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
		{"list tasks: nothing", "filter.source_id", listTasksWith(&pb.ListTasksRequest{})},
		{"list tasks: done", "filter.states[0]", listTasksWith(&pb.ListTasksRequest{Filter: &pb.Filter{Queue: "a.com", States: []pb.TaskState{pb.TaskState_TASK_STATE_DONE}}})},
		{"list tasks: page size", "page_size", listTasksWith(&pb.ListTasksRequest{Filter: &pb.Filter{Queue: "a.com"}, PageSize: 1001})},
		{"list tasks: negative page size", "page_size", listTasksWith(&pb.ListTasksRequest{Filter: &pb.Filter{Queue: "a.com"}, PageSize: -1})},
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
