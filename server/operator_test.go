package server_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// operations are all calls by which operators change something, of what b has.
func operations(ctx context.Context, b *bed, task, by, why string) []func() error {
	ids, name := []string{"news"}, "example.com"
	secret := &pb.SourceSpec{Id: "shop", Metadata: map[string]string{"cookie": "hush"}, Payload: []byte("hush")}
	return []func() error{
		func() error {
			_, err := b.tasks.RevokeLeases(ctx, &pb.RevokeLeasesRequest{TaskIds: []string{task}, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.tasks.CancelTasks(ctx, &pb.CancelTasksRequest{TaskIds: []string{task}, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.tasks.RetryTasks(ctx, &pb.RetryTasksRequest{TaskIds: []string{task}, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: secret, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.sources.UpdateSource(ctx, &pb.UpdateSourceRequest{Spec: secret, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.sources.ApplySources(ctx, &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{secret}, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.holds.SetHolds(ctx, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Queue: name}}, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.holds.LiftHolds(ctx, &pb.LiftHoldsRequest{Targets: []*pb.HoldTarget{{Queue: name}}, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.sources.TriggerSources(ctx, &pb.TriggerSourcesRequest{Ids: ids, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: name}, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: name, By: by, Reason: why})
			return err
		},
		func() error {
			_, err := b.sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{Ids: ids, By: by, Reason: why})
			return err
		},
	}
}

// The log says of each change that operators make who made it and why, though calls
// that succeed are not logged, nor more than a few in a second.
func TestServer_operatorsAreLogged(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{LogBurst: 1})
	task := b.leased(t).GetTask().GetId()
	before := 1 // by it the source of the task was made
	calls := operations(t.Context(), b, task, "ann", "they asked")
	for _, call := range calls {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	lines := func() []map[string]any {
		var out []map[string]any
		for _, line := range b.logs.FilterLevelExact(zapcore.InfoLevel).FilterMessage("operator's call").All() {
			out = append(out, line.ContextMap())
		}
		return out[min(before, len(out)):]
	}
	eventually(t, "every change is logged", func() bool { return len(lines()) == len(calls) })
	for _, line := range lines() {
		if line["by"] != "ann" || line["reason"] != "they asked" || !strings.Contains(line["request"].(string), "they asked") {
			t.Errorf("%v", line)
		}
		if strings.Contains(line["request"].(string), "hush") {
			t.Errorf("a secret of collectors in the log: %v", line)
		}
	}
	// What changes nothing is not.
	if _, err := b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Filter: &pb.Filter{All: true}, ValidateOnly: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{{Id: "a"}}, ValidateOnly: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.queues.ListQueueRules(t.Context(), &pb.ListQueueRulesRequest{}); err != nil {
		t.Fatal(err)
	}
	if n := len(lines()); n != len(calls) {
		t.Errorf("%d lines of %d changes", n, len(calls))
	}
}

// Who and why are checked wherever they are taken.
func TestServer_operatorsAreChecked(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	task := b.leased(t).GetTask().GetId()
	for i, call := range operations(t.Context(), b, task, strings.Repeat("a", 129), strings.Repeat("a", 1025)) {
		f := wantFault(t, call(), codes.InvalidArgument, "INVALID_FIELD")
		if len(f.violations) != 2 || f.violations[0].GetField() != "by" || f.violations[1].GetField() != "reason" {
			t.Errorf("call %d: %v", i, f.violations)
		}
	}
}
