package server_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// TestAudit makes each change that an operator can make: it is an entry of the list, by the identity, and a line of the log.
func TestAudit(t *testing.T) {
	t.Parallel()
	b := withPolicy(t, accessPolicy(time.Now().Add(time.Hour)))
	ctx, collecting := as(t.Context(), "admin"), as(t.Context(), "collector")
	spec := &pb.SourceSpec{Id: "news.a", DisplayName: "old", Metadata: map[string]string{"key": "hidden-1"}, Payload: []byte("hidden-2")}
	hold, news := []*pb.HoldTarget{{SourceId: "news.a"}}, &pb.Filter{SourceId: "news.a"}
	for _, c := range []struct {
		call                          func() error
		method, target, before, after string
	}{
		{func() error {
			_, err := b.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: spec, By: "ada", Reason: "why"})
			return err
		}, "CreateSource", "news.a", "", `display_name:"old"`},
		{func() error {
			_, err := b.sources.UpdateSource(ctx, &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "news.a", DisplayName: "new", Pool: "p"}, By: "ada", Reason: "why"})
			return err
		}, "UpdateSource", "news.a", `display_name:"old" pool:"default"`, `display_name:"new" pool:"p"`},
		{func() error {
			_, err := b.sources.ApplySources(ctx, &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{{Id: "news.b"}, {Id: "news.a", DisplayName: "third"}}, By: "ada", Reason: "why"})
			return err
		}, "ApplySources", `specs:{id:"news.b"} specs:{id:"news.a"}`, "", "news.b created, news.a updated: display_name metadata payload pool"},
		{func() error {
			_, err := b.holds.SetHolds(ctx, &pb.SetHoldsRequest{Targets: hold, Name: "n", Effect: pb.HoldEffect_HOLD_EFFECT_STOP_GRANTS, By: "ada", Reason: "why"})
			return err
		}, "SetHolds", `targets:{source_id:"news.a"} name:"n"`, "", `name:"n"`},
		{func() error {
			_, err := b.holds.LiftHolds(ctx, &pb.LiftHoldsRequest{Targets: hold, Name: "n", By: "ada", Reason: "why"})
			return err
		}, "LiftHolds", `targets:{source_id:"news.a"} name:"n"`, `name:"n"`, ""},
		{func() error {
			_, err := b.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "a.example", MaxInFlight: proto.Int32(2)}, By: "ada", Reason: "why"})
			return err
		}, "SetQueueRule", "a.example", "", "max_in_flight:2"},
		{func() error {
			_, err := b.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "a.example", MaxInFlight: proto.Int32(3)}, By: "ada", Reason: "why"})
			return err
		}, "SetQueueRule", "a.example", "max_in_flight:2", "max_in_flight:3"},
		{func() error {
			_, err := b.queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: "a.example", By: "ada", Reason: "why"})
			return err
		}, "DeleteQueueRule", "a.example", "max_in_flight:3", ""},
		{func() error {
			_, err := b.tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news.a", Url: "https://b.example/"}}})
			if err == nil {
				_, err = b.tasks.CancelTasks(ctx, &pb.CancelTasksRequest{Filter: news, By: "ada", Reason: "why"})
			}
			return err
		}, "CancelTasks", `filter:{source_id:"news.a"}`, "", "matched 1, changed 1"},
		{func() error {
			_, err := b.tasks.RetryTasks(ctx, &pb.RetryTasksRequest{Filter: &pb.Filter{SourceId: "news.a", States: []pb.TaskState{pb.TaskState_TASK_STATE_CANCELED}}, By: "ada", Reason: "why"})
			return err
		}, "RetryTasks", `source_id:"news.a"`, "", "matched 1, changed 1"},
		{func() error {
			_, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: "mine", Session: "s", ClientToken: "t", Wait: durationpb.New(10 * time.Second)})
			if err == nil {
				_, err = b.tasks.RevokeLeases(ctx, &pb.RevokeLeasesRequest{Filter: news, By: "ada", Reason: "why"})
			}
			return err
		}, "RevokeLeases", `filter:{source_id:"news.a"}`, "", "matched 1, changed 1"},
		{func() error {
			_, err := b.dispatch.RenewLease(collecting, &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s"}})
			if err == nil {
				_, err = b.admin.ReleaseCollector(ctx, &pb.ReleaseCollectorRequest{CollectorId: "c1", By: "ada", Reason: "why"})
			}
			return err
		}, "ReleaseCollector", "c1", "token:collector", ""},
		{func() error {
			_, err := b.sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{Ids: []string{"news.a"}, By: "ada", Reason: "why"})
			return err
		}, "DeleteSources", "news.a", `display_name:"third"`, "matched 1, changed 1"},
	} {
		if err := c.call(); err != nil {
			t.Fatalf("%s: %v", c.method, err)
		}
		listed, err := b.admin.ListAuditEntries(ctx, &pb.ListAuditEntriesRequest{By: "token:admin", PageSize: 1})
		if err != nil || len(listed.GetEntries()) != 1 {
			t.Fatalf("%s: %v, %v", c.method, listed, err)
		}
		// Text of messages has one space or two.
		plain := func(text string) string { return strings.Join(strings.Fields(text), " ") }
		e := listed.GetEntries()[0]
		if e.GetMethod() != c.method || e.GetSaid() != "ada" || e.GetReason() != "why" || e.GetFrom() == "" || e.GetTime() == nil ||
			!strings.Contains(plain(e.GetTarget()), c.target) || !strings.Contains(plain(e.GetBefore()), c.before) || !strings.Contains(plain(e.GetAfter()), c.after) ||
			c.before == "" && e.GetBefore() != "" || c.after == "" && e.GetAfter() != "" {
			t.Errorf("%s: %v", c.method, e)
		}
		lines := b.logs.FilterMessage("operator's call").FilterField(zap.String("grpc.method", c.method)).All()
		if len(lines) == 0 {
			t.Errorf("%s is not in the log", c.method)
			continue
		}
		fields := lines[len(lines)-1].ContextMap()
		if fields["identity"] != "token:admin" || fields["by"] != "token:admin (ada)" || fields["before"] != e.GetBefore() || fields["after"] != e.GetAfter() || fields["reason"] != "why" {
			t.Errorf("%s: the log has %v", c.method, fields)
		}
		if all := e.String() + fields["request"].(string); strings.Contains(all, "hidden") { //nolint:forcetypeassert // it is text
			t.Errorf("%s: shows what only collectors get: %s", c.method, all)
		}
	}
	n := len(audit(t, b))
	if _, err := b.sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{Ids: []string{"news.b"}, ValidateOnly: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.holds.LiftHolds(ctx, &pb.LiftHoldsRequest{Targets: hold, Name: "none"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news.b"}}); err == nil {
		t.Error("a source is created twice")
	}
	if got := len(audit(t, b)); got != n {
		t.Errorf("calls that change nothing make %d entries", got-n)
	}
	for name, call := range map[string]func() error{
		"UpdateSource": func() error {
			_, err := b.sources.UpdateSource(ctx, &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "news.b", DisplayName: "same"}, By: "ada", Reason: "again"})
			return err
		},
		"ApplySources": func() error {
			_, err := b.sources.ApplySources(ctx, &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{{Id: "news.b", DisplayName: "same"}}})
			return err
		},
		"SetQueueRule": func() error {
			_, err := b.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "same.example", MaxInFlight: proto.Int32(2)}, By: "ada"})
			return err
		},
		"SetHolds": func() error {
			_, err := b.holds.SetHolds(ctx, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Pool: "same"}}, Effect: pb.HoldEffect_HOLD_EFFECT_END_LEASES})
			return err
		},
		"ReleaseCollector": func() error {
			_, err := b.admin.ReleaseCollector(ctx, &pb.ReleaseCollectorRequest{CollectorId: "nobodys"})
			return err
		},
	} {
		if err := call(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		n := len(audit(t, b))
		if err := call(); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
		if got := len(audit(t, b)); got != n {
			t.Errorf("%s with the same arguments makes another entry", name)
		}
	}
}

// audit is all that is listed.
func audit(t *testing.T, b *bed) []*pb.AuditEntry {
	t.Helper()
	listed, err := b.admin.ListAuditEntries(as(t.Context(), "admin"), &pb.ListAuditEntriesRequest{PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return listed.GetEntries()
}

// TestAudit_storeAway makes a change whose entry the store does not take: the change stands, and the log has it with the reason.
func TestAudit_storeAway(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.store.breakCall("AppendAudit", func() error { return dispatch.ErrStoreUnavailable })
	if _, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "a"}, By: "ada"}); err != nil {
		t.Fatal(err)
	}
	lines := b.logs.FilterMessage("operator's call").All()
	if len(lines) != 1 || lines[0].ContextMap()["by"] != "ada" || !strings.Contains(lines[0].ContextMap()["not_in_audit_list"].(string), "store unavailable") { //nolint:forcetypeassert // it is text
		t.Errorf("the log has %v", lines)
	}
	b.store.breakCall("AppendAudit", nil)
	b.store.breakCall("ListLeases", func() error { return dispatch.ErrStoreUnavailable })
	if _, err := b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{
		Targets: []*pb.HoldTarget{{Everything: true}}, Name: "n", Effect: pb.HoldEffect_HOLD_EFFECT_END_LEASES,
	}); err == nil {
		t.Error("leases end that cannot be listed")
	}
	if got := audit(t, b); len(got) != 1 || got[0].GetMethod() != "SetHolds" || !strings.Contains(got[0].GetAfter(), "failed") {
		t.Errorf("of a call that has set a hold, and then failed: %v", got)
	}
	if _, err := b.sources.DeleteSources(t.Context(), &pb.DeleteSourcesRequest{Ids: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if got := audit(t, b); len(got) != 2 || got[0].GetBy() == "" || got[0].GetMethod() != "DeleteSources" {
		t.Errorf("without authentication: %v", got)
	}
}
