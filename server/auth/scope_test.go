package auth_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/auth"
)

// kept is a backend with tasks of two sources, and the collector ids that are bound.
type kept map[string]string

func (kept) SourcesOf(_ context.Context, tasks []string) (sources []string, err error) {
	of := map[string]string{"t1": "news.a", "t2": "blogs.a"}
	for _, id := range tasks {
		if source, ok := of[id]; ok {
			sources = append(sources, source)
		}
	}
	return sources, nil
}

func (k kept) BindCollector(_ context.Context, collector, identity string) error {
	if owner, ok := k[collector]; ok && owner != identity {
		return fmt.Errorf("bind %s: %w", collector, dispatch.ErrCollectorBound)
	}
	k[collector] = identity
	return nil
}

// TestCaller_Within sends requests in and out of a grant for the sources that begin with "news.".
func TestCaller_Within(t *testing.T) {
	t.Parallel()
	g := newGuard(t, "tokens: [{name: a, sha256: "+auth.HashToken("wgl_a")+"}]\ngrants: [{identity: token:a, role: operator, sources: [news.]}]")
	news, blogs := &pb.Filter{SourceId: "news.a"}, &pb.Filter{SourceId: "blogs.a"}
	source := func(ids ...string) (targets []*pb.HoldTarget) {
		for _, id := range ids {
			targets = append(targets, &pb.HoldTarget{SourceId: id})
		}
		return targets
	}
	for method, requests := range map[string]struct{ in, out []any }{
		pb.TaskService_SubmitTasks_FullMethodName: {
			[]any{&pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news.a"}, {SourceId: "news.b"}}}},
			[]any{&pb.SubmitTasksRequest{}, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news.a"}, {SourceId: "blogs.a"}}}, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{}}}},
		},
		pb.TaskService_CancelTasks_FullMethodName: {
			[]any{&pb.CancelTasksRequest{TaskIds: []string{"t1", "gone"}}, &pb.CancelTasksRequest{Filter: news}, &pb.CancelTasksRequest{Filter: &pb.Filter{SourceIdPrefix: "news.a"}}},
			[]any{
				&pb.CancelTasksRequest{}, &pb.CancelTasksRequest{TaskIds: []string{"t1", "t2"}}, &pb.CancelTasksRequest{Filter: blogs}, &pb.CancelTasksRequest{Filter: &pb.Filter{All: true}},
				&pb.CancelTasksRequest{Filter: &pb.Filter{SourceIdPrefix: "new"}}, &pb.CancelTasksRequest{TaskIds: []string{"t1"}, Filter: &pb.Filter{Queue: "a.example"}},
				&pb.CancelTasksRequest{TaskIds: make([]string, 1001)}, &pb.CancelTasksRequest{Filter: &pb.Filter{SourceIdPrefix: "blogs.", SourceId: ""}},
			},
		},
		pb.TaskService_GetTask_FullMethodName: {
			[]any{&pb.GetTaskRequest{TaskId: "t1"}, &pb.GetTaskRequest{SourceId: "news.a", Url: "https://a.example/"}},
			[]any{&pb.GetTaskRequest{}, &pb.GetTaskRequest{TaskId: "t2"}, &pb.GetTaskRequest{SourceId: "blogs.a"}, &pb.GetTaskRequest{Queue: "a.example"}, &pb.GetTaskRequest{TaskId: "t2", SourceId: "news.a"}},
		},
		pb.SourceService_UpdateSource_FullMethodName: {
			[]any{&pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "news.a", Scope: "news.all"}}},
			[]any{&pb.UpdateSourceRequest{}, &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "blogs.a"}}, &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "news.a", Scope: "blogs.a"}}},
		},
		pb.SourceService_ApplySources_FullMethodName: {
			[]any{&pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{{Id: "news.a"}}}},
			[]any{&pb.ApplySourcesRequest{}, &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{{Id: "news.a"}, {Id: "blogs.a"}}}},
		},
		pb.SourceService_DeleteSources_FullMethodName: {
			[]any{&pb.DeleteSourcesRequest{Ids: []string{"news.a"}}, &pb.DeleteSourcesRequest{Filter: news}},
			[]any{&pb.DeleteSourcesRequest{}, &pb.DeleteSourcesRequest{Ids: []string{"news.a", "blogs.a"}}, &pb.DeleteSourcesRequest{Ids: []string{"news.a"}, Filter: blogs}},
		},
		pb.SourceService_ListSources_FullMethodName: {
			[]any{&pb.ListSourcesRequest{Filter: news}},
			[]any{&pb.ListSourcesRequest{}, &pb.ListSourcesRequest{Filter: &pb.Filter{}}, &pb.ListSourcesRequest{Filter: &pb.Filter{Pool: "news."}}},
		},
		pb.HoldService_SetHolds_FullMethodName: {
			[]any{&pb.SetHoldsRequest{Targets: source("news.a", "news.b")}, &pb.SetHoldsRequest{Filter: news}},
			[]any{
				&pb.SetHoldsRequest{}, &pb.SetHoldsRequest{Targets: source("news.a", "blogs.a")}, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Everything: true}}},
				&pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Pool: "news."}}}, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Queue: "a.example"}}},
				&pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{SourceId: "news.a", Pool: "p"}}}, &pb.SetHoldsRequest{Targets: source("news.a"), Filter: blogs},
			},
		},
		pb.AdminService_Explain_FullMethodName: {
			[]any{&pb.ExplainRequest{SourceId: "news.a"}, &pb.ExplainRequest{TaskId: "t1"}},
			[]any{&pb.ExplainRequest{}, &pb.ExplainRequest{SourceId: "blogs.a"}, &pb.ExplainRequest{TaskId: "t2"}, &pb.ExplainRequest{Queue: "a.example"}, &pb.ExplainRequest{Pool: "p"}},
		},
		pb.AdminService_ListLeases_FullMethodName:   {[]any{&pb.ListLeasesRequest{Filter: news}}, []any{&pb.ListLeasesRequest{}, &pb.ListLeasesRequest{Filter: &pb.Filter{CollectorId: "c"}}}},
		pb.HoldService_ListHolds_FullMethodName:     {[]any{&pb.ListHoldsRequest{Filter: news}}, []any{&pb.ListHoldsRequest{}, &pb.ListHoldsRequest{Filter: &pb.Filter{Queue: "a.example"}}}},
		pb.QueueService_ListQueues_FullMethodName:   {nil, []any{&pb.ListQueuesRequest{}}},
		pb.QueueService_SetQueueRule_FullMethodName: {nil, []any{&pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "a.example"}}}},
		pb.AdminService_GetStats_FullMethodName:     {[]any{&pb.GetStatsRequest{}}, nil},
	} {
		caller, err := g.Admit(bearer(t.Context(), "wgl_a"), method)
		if err != nil {
			t.Fatal(err)
		}
		for _, req := range requests.in {
			if err := caller.Within(t.Context(), req, kept{}); err != nil {
				t.Errorf("%s %v: %v", method, req, err)
			}
		}
		for _, req := range requests.out {
			if err := caller.Within(t.Context(), req, kept{}); err == nil {
				t.Errorf("%s %v is within the grant", method, req)
			} else {
				refusedBy(t, err, "token:a")
			}
		}
	}
}

// TestCaller_Within_collector sends requests of a collector in and out of its grant, and of ids that are another's.
func TestCaller_Within_collector(t *testing.T) {
	t.Parallel()
	g := newGuard(t, "tokens: [{name: a, sha256: "+auth.HashToken("wgl_a")+"}]\ngrants: [{identity: token:a, role: collector, collectors: ['a-*'], pools: [news]}]")
	const mine = "a-1/c/1"
	info, bound := &pb.CollectorInfo{Id: "a-1"}, kept{"a-taken": "token:b"}
	for method, requests := range map[string]struct {
		in  []any
		out map[string]any
	}{
		fetch: {
			[]any{&pb.FetchTaskRequest{CollectorId: "a-1", Pools: []string{"news"}}},
			map[string]any{
				`pool "default" is not of news`:                      &pb.FetchTaskRequest{CollectorId: "a-1"},
				`pool "blogs" is not of news`:                        &pb.FetchTaskRequest{CollectorId: "a-1", Pools: []string{"news", "blogs"}},
				`collector_id "b-1" is not of a-*`:                   &pb.FetchTaskRequest{CollectorId: "b-1", Pools: []string{"news"}},
				`collector_id "" is not of a-*`:                      &pb.FetchTaskRequest{Pools: []string{"news"}},
				`collector_id "a-taken" belongs to another identity`: &pb.FetchTaskRequest{CollectorId: "a-taken", Pools: []string{"news"}},
			},
		},
		beat: {[]any{&pb.HeartbeatRequest{Collector: info}}, map[string]any{`collector_id ""`: &pb.HeartbeatRequest{}}},
		pb.DispatchService_SubmitDiscovered_FullMethodName: {
			[]any{&pb.SubmitDiscoveredRequest{LeaseToken: mine}},
			map[string]any{`"b-1" is not of a-*`: &pb.SubmitDiscoveredRequest{LeaseToken: "b-1/c/1"}, `"a-taken" belongs`: &pb.SubmitDiscoveredRequest{LeaseToken: "a-taken/c/1"}},
		},
	} {
		caller, err := g.Admit(bearer(t.Context(), "wgl_a"), method)
		if err != nil {
			t.Fatal(err)
		}
		for _, req := range requests.in {
			if err := caller.Within(t.Context(), req, bound); err != nil || bound["a-1"] != "token:a" {
				t.Errorf("%s %v: %v, bound %v", method, req, err, bound)
			}
		}
		for rule, req := range requests.out {
			refusedBy(t, caller.Within(t.Context(), req, bound), rule)
		}
	}
}
