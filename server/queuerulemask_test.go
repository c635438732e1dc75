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
	r := set("eve", &pb.QueueRule{MaxInFlight: proto.Int32(5), MinDelay: durationpb.New(time.Hour)}, "max_in_flight", "max_delay")
	if r.GetMinDelay().AsDuration() != 3*time.Second || r.GetMaxInFlight() != 5 || r.GetMaxDelay() != nil || r.GetBy() != "eve" || r.GetReason() != "as eve says" {
		t.Errorf("the rule is %v", r)
	}
	if r := set("bob", &pb.QueueRule{DelayFactor: proto.Float64(2)}); r.GetMaxInFlight() != 1 || r.GetMinDelay().AsDuration() != time.Second || r.GetDelayFactor() != 2 {
		t.Errorf("without a mask the rule is %v", r)
	}
	// What is no setting of a rule is refused.
	for _, path := range []string{"delay", "by", "reason", "update_time", "min_delay.seconds"} {
		_, err := b.queues.SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{
			Rule:       &pb.QueueRule{Pattern: "*", By: "me", MinDelay: durationpb.New(time.Second)},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"queue", path}},
		})
		f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
		if f.metadata["field"] != "update_mask" || f.metadata["value"] != path || !strings.Contains(f.metadata["limit"], "queue, min_delay, ") {
			t.Errorf("metadata %v", f.metadata)
		}
	}
}
