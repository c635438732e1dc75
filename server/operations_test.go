package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func TestTaskService_GetTask(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	id := leased.GetTask().GetId()
	for name, req := range map[string]*pb.GetTaskRequest{
		"by id":  {TaskId: id},
		"by URL": {SourceId: "news", Url: "https://EXAMPLE.com/a#x"},
		"by key": {SourceId: "news", Key: "https://example.com/a", Queue: "example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := b.tasks.GetTask(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			got := resp.GetTask()
			if got.GetId() != id || got.GetState() != pb.TaskState_TASK_STATE_LEASED || got.GetHolder().GetCollectorId() != "c1" ||
				got.GetHolder().GetFence() != leased.GetLease().GetFence() || got.GetHolder().GetRemaining().AsDuration() > 30*time.Second {
				t.Errorf("got %v", got)
			}
			if strings.Contains(got.String(), leased.GetLease().GetLeaseToken()) {
				t.Error("the lease token is shown")
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		_, err := b.tasks.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: aTask})
		if f := wantFault(t, err, codes.NotFound, "TASK_NOT_FOUND"); f.metadata["task_id"] != aTask {
			t.Errorf("metadata %v", f.metadata)
		}
		_, err = b.tasks.GetTask(t.Context(), &pb.GetTaskRequest{SourceId: "news", Url: "https://example.com/none"})
		if f := wantFault(t, err, codes.NotFound, "TASK_NOT_FOUND"); f.metadata["url"] != "https://example.com/none" {
			t.Errorf("metadata %v", f.metadata)
		}
	})
}

func TestTaskService_ListTasks(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	b.source(t, "other")
	var urls []string
	for i := range 7 {
		urls = append(urls, fmt.Sprintf("https://example.com/%d", i))
	}
	b.submit(t, "news", urls...)
	b.submit(t, "other", "https://example.com/x")
	seen := make(map[string]bool)
	req := &pb.ListTasksRequest{Filter: &pb.Filter{SourceId: "news"}, PageSize: 3}
	for {
		resp, err := b.tasks.ListTasks(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.GetTasks()) > 3 {
			t.Fatalf("a page of %d", len(resp.GetTasks()))
		}
		for _, task := range resp.GetTasks() {
			if task.GetSourceId() != "news" && task.GetSourceId() != "" {
				t.Errorf("task of %s", task.GetSourceId())
			}
			seen[task.GetUrl()] = true
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if len(seen) != 7 {
		t.Errorf("saw %d tasks, want 7", len(seen))
	}
}

// A page too large for a reply gets smaller, and nothing is left out.
func TestTaskService_ListTasks_largeTasks(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	const n = 900
	for from := 0; from < n; from += 300 {
		req := &pb.SubmitTasksRequest{}
		for i := from; i < from+300; i++ {
			req.Items = append(req.Items, &pb.SubmitItem{
				SourceId: "news", Url: fmt.Sprintf("https://example.com/%d", i), Metadata: map[string]string{"k": strings.Repeat("v", 8000)},
			})
		}
		if _, err := b.tasks.SubmitTasks(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[string]bool)
	req := &pb.ListTasksRequest{Filter: &pb.Filter{SourceId: "news"}, PageSize: 1000}
	pages := 0
	for {
		resp, err := b.tasks.ListTasks(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, task := range resp.GetTasks() {
			seen[task.GetId()] = true
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if len(seen) != n || pages < 2 {
		t.Errorf("saw %d tasks on %d pages, want %d", len(seen), pages, n)
	}
}

func TestServer_pageTokens(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for i := range 4 {
		b.source(t, fmt.Sprintf("news.%d", i))
	}
	first, err := b.sources.ListSources(t.Context(), &pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}, PageSize: 1})
	if err != nil || first.GetNextPageToken() == "" {
		t.Fatalf("got %v, %v", first, err)
	}
	token := first.GetNextPageToken()
	list := func(req *pb.ListSourcesRequest) error {
		_, err := b.sources.ListSources(t.Context(), req)
		return err
	}
	if err := list(&pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}, PageSize: 3, PageToken: token}); err != nil {
		t.Errorf("with another page size: %v", err)
	}
	last := token[len(token)-1]
	flipped := byte('A')
	if last == 'A' {
		flipped = 'Q'
	}
	for name, err := range map[string]error{
		"tampered":          list(&pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}, PageToken: token[:len(token)-1] + string(flipped)}),
		"truncated":         list(&pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}, PageToken: token[:len(token)/2]}),
		"no token":          list(&pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}, PageToken: "page 2"}),
		"too long":          list(&pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}, PageToken: strings.Repeat("A", 10_000)}),
		"of another filter": list(&pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: "news"}, PageToken: token}),
		"of another list": func() error {
			_, err := b.queues.ListQueues(t.Context(), &pb.ListQueuesRequest{PageToken: token})
			return err
		}(),
		"of another call": func() error {
			_, err := b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}, PageToken: token})
			return err
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			f := wantFault(t, err, codes.InvalidArgument, "PAGE_TOKEN_INVALID")
			if f.metadata["field"] != "page_token" || f.metadata["value"] == "" || f.metadata["limit"] == "" ||
				len(f.violations) != 1 || f.violations[0].GetField() != "page_token" || f.violations[0].GetReason() != "PAGE_TOKEN_INVALID" {
				t.Errorf("metadata %v, violations %v", f.metadata, f.violations)
			}
		})
	}
}

func TestQueueService_rules(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	ctx := t.Context()
	b.source(t, "news")
	b.submit(t, "news", "https://held.example/a")
	set, err := b.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{
		Rule: &pb.QueueRule{Pattern: "*.example.com", MinDelay: durationpb.New(0)}, By: "ann", Reason: "ours",
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := set.GetRule(); r.GetMinDelay().AsDuration() != 0 || r.GetMaxInFlight() != 1 || r.GetMaxBlock().AsDuration() != 24*time.Hour ||
		r.GetBy() != "ann" || r.GetReason() != "ours" || r.GetUpdateTime() == nil {
		t.Errorf("rule %v", r)
	}
	t.Run("etag", func(t *testing.T) {
		seen, err := b.queues.ListQueueRules(ctx, &pb.ListQueueRulesRequest{})
		if err != nil || seen.GetEtag() != set.GetEtag() {
			t.Fatalf("listed etag %s, set %s: %v", seen.GetEtag(), set.GetEtag(), err)
		}
		change := func(etag string) (*pb.SetQueueRuleResponse, error) {
			return b.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "*.etag.example"}, Etag: etag})
		}
		now, err := change(seen.GetEtag())
		if err != nil || now.GetEtag() == seen.GetEtag() {
			t.Fatalf("etag %s, %v", now.GetEtag(), err)
		}
		_, err = change(seen.GetEtag())
		if f := wantFault(t, err, codes.Aborted, "ETAG_MISMATCH"); f.metadata["etag"] != now.GetEtag() || f.metadata["pattern"] != "*.etag.example" {
			t.Errorf("metadata %v", f.metadata)
		}
		_, err = b.queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: "*.etag.example", Etag: seen.GetEtag()})
		wantFault(t, err, codes.Aborted, "ETAG_MISMATCH")
		_, err = change("7")
		wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
		if _, err := b.queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: "*.etag.example", Etag: now.GetEtag()}); err != nil {
			t.Error(err)
		}
	})
	listed, err := b.queues.ListQueueRules(ctx, &pb.ListQueueRulesRequest{})
	if err != nil || len(listed.GetRules()) != 1 || listed.GetRules()[0].GetPattern() != "*.example.com" {
		t.Errorf("listed %v, %v", listed, err)
	}
	deleted, err := b.queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: "*.example.com"})
	if err != nil || deleted.GetRule().GetBy() != "ann" {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	_, err = b.queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: "*.example.com"})
	if f := wantFault(t, err, codes.NotFound, "QUEUE_RULE_NOT_FOUND"); f.metadata["pattern"] != "*.example.com" {
		t.Errorf("metadata %v", f.metadata)
	}
	t.Run("mapping away from tasks", func(t *testing.T) {
		_, err := b.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "held.example", Queue: "shared"}})
		f := wantFault(t, err, codes.FailedPrecondition, "QUEUE_NOT_EMPTY")
		if f.metadata["pattern"] != "held.example" || !strings.Contains(f.message, "held.example") {
			t.Errorf("%q, %v", f.message, f.metadata)
		}
	})
}

func TestAdminService(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{Version: "v1"})
	leased := b.leased(t)
	stats, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if stats.GetTasks().GetLeased() != 1 || stats.GetLeases() != 1 || stats.GetStore().GetKind() != "memory" || stats.GetStore().GetShards() != 1 ||
		stats.GetDispatcher().GetId() != "d1" || stats.GetDispatcher().GetVersion() != "v1" || stats.GetCounters().GetGranted() != 1 {
		t.Errorf("stats %v", stats)
	}
	leases, err := b.admin.ListLeases(t.Context(), &pb.ListLeasesRequest{})
	if err != nil || len(leases.GetLeases()) != 1 {
		t.Fatalf("leases %v, %v", leases, err)
	}
	if got := leases.GetLeases()[0]; got.GetTaskId() != leased.GetTask().GetId() || got.GetHolder().GetCollectorId() != "c1" || got.GetQueue() != "example.com" {
		t.Errorf("lease %v", got)
	}
	_, err = b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Hostname: "h", Slots: 4, Labels: map[string]string{"region": "eu"}, Sources: []string{"s"}, Queues: []string{"q"}},
		Leases:    []*pb.LeaseBeat{held(leased)},
	})
	if err != nil {
		t.Fatal(err)
	}
	list := func(states ...pb.CollectorState) []*pb.Collector {
		resp, err := b.admin.ListCollectors(t.Context(), &pb.ListCollectorsRequest{States: states})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetCollectors()
	}
	got := list(pb.CollectorState_COLLECTOR_STATE_ACTIVE)
	if len(got) != 1 || got[0].GetInfo().GetHostname() != "h" || got[0].GetLeases() != 1 || got[0].GetInfo().GetLabels()["region"] != "eu" ||
		!slices.Equal(got[0].GetInfo().GetSources(), []string{"s"}) || !slices.Equal(got[0].GetInfo().GetQueues(), []string{"q"}) {
		t.Errorf("collectors %v", got)
	}
	if got := list(pb.CollectorState_COLLECTOR_STATE_GONE); len(got) != 0 {
		t.Errorf("gone: %v", got)
	}
	if _, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{succeeded(leased)}}); err != nil {
		t.Fatal(err)
	}
	if got := list(); len(got) != 1 || got[0].GetLeases() != 0 {
		t.Errorf("once its lease has ended, before another beat: %v", got)
	}
	if _, err = b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Stopping: true, Ended: true}}); err != nil {
		t.Fatal(err)
	}
	if got := list(pb.CollectorState_COLLECTOR_STATE_ENDED); len(got) != 1 || !got[0].GetInfo().GetEnded() {
		t.Errorf("ended: %v, all: %v", got, list())
	}
	if _, err = b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s2"}}); err != nil {
		t.Fatal(err)
	}
	if got := list(pb.CollectorState_COLLECTOR_STATE_ACTIVE); len(got) != 1 || got[0].GetInfo().GetSession() != "s2" {
		t.Errorf("started again: %v", list())
	}
	for stuck, state := range []pb.CollectorState{1: pb.CollectorState_COLLECTOR_STATE_ACTIVE, 2: pb.CollectorState_COLLECTOR_STATE_STUCK} {
		if stuck == 0 {
			continue
		}
		info := &pb.CollectorInfo{Id: "c1", Session: "s2", Slots: 2, StuckSlots: int32(stuck)}
		if _, err = b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: info}); err != nil {
			t.Fatal(err)
		}
		if got := list(state); len(got) != 1 || got[0].GetInfo().GetStuckSlots() != int32(stuck) {
			t.Errorf("with %d of 2 slots stuck: %v", stuck, list())
		}
	}
}
