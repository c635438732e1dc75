package server_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// A mask changes what it names of a rule, and nothing else.
func TestQueueService_SetQueueRule_mask(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	set := func(by string, rule *pb.QueueRule, paths ...string) *pb.QueueRule {
		t.Helper()
		rule.Pattern = "*"
		reply, err := b.queues.SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{
			Rule: rule, By: by, Reason: "as " + by + " says", UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
		})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetRule()
	}
	set("ada", &pb.QueueRule{MinDelay: durationpb.New(3 * time.Second), MaxInFlight: proto.Int32(4), MaxDelay: durationpb.New(time.Hour)})
	set("eve", &pb.QueueRule{Paused: proto.Bool(true), MinDelay: durationpb.New(time.Hour)}, "paused")
	r := set("ada", &pb.QueueRule{MaxInFlight: proto.Int32(5)}, "max_in_flight", "max_delay")
	if r.GetMinDelay().AsDuration() != 3*time.Second || r.GetMaxInFlight() != 5 || r.GetMaxDelay() != nil || !r.GetPaused() || r.GetBy() != "ada" {
		t.Errorf("the rule is %v", r)
	}
	if g := r.GetGates(); len(g) != 1 || g[0].GetKind() != pb.GateKind_GATE_KIND_QUEUE_PAUSED || g[0].GetBy() != "eve" ||
		g[0].GetReason() != "as eve says" || g[0].GetTime() == nil {
		t.Errorf("its gates are %v", g)
	}
	// Who replaces it whole without the etag of the rules need not have seen the pause.
	whole := &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "*", MinDelay: durationpb.New(2 * time.Second)}, By: "zed"}
	_, err := b.queues.SetQueueRule(t.Context(), whole)
	f := wantFault(t, err, codes.FailedPrecondition, "QUEUE_RULE_HOLDS")
	if f.metadata["pattern"] != "*" || f.metadata["kind"] != "QUEUE_PAUSED" || f.metadata["by"] != "eve" || f.metadata["reason"] != "as eve says" ||
		f.metadata["since"] != r.GetGates()[0].GetTime().AsTime().Format(time.RFC3339) {
		t.Errorf("metadata %v", f.metadata)
	}
	list, err := b.queues.ListQueueRules(t.Context(), &pb.ListQueueRulesRequest{})
	if err != nil || len(list.GetRules()) != 1 || !list.GetRules()[0].GetPaused() {
		t.Fatalf("the rules are %v, %v", list, err)
	}
	whole.Etag = list.GetEtag()
	if reply, err := b.queues.SetQueueRule(t.Context(), whole); err != nil || reply.GetRule().GetPaused() {
		t.Errorf("with the etag: %v, %v", reply, err)
	}
	set("eve", &pb.QueueRule{Deny: proto.Bool(true)})
	set("ann", &pb.QueueRule{Deny: proto.Bool(true), MinDelay: durationpb.New(time.Minute)}) // denies on
	set("ann", &pb.QueueRule{}, "deny")
	if r := set("bob", &pb.QueueRule{}); r.GetMaxInFlight() != 1 || r.GetPaused() || len(r.GetGates()) > 0 {
		t.Errorf("without a mask the rule is %v", r)
	}
	// What is no setting of a rule is refused.
	for _, path := range []string{"delay", "gates", "by", "reason", "update_time", "min_delay.seconds"} {
		_, err := b.queues.SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{
			Rule:       &pb.QueueRule{Pattern: "*", By: "me", MinDelay: durationpb.New(time.Second)},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"paused", path}},
		})
		f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
		if f.metadata["field"] != "update_mask" || f.metadata["value"] != path || !strings.Contains(f.metadata["limit"], "queue, min_delay, ") {
			t.Errorf("metadata %v", f.metadata)
		}
	}
}
