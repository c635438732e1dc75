package main

import (
	"bufio"
	"cmp"
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newRuleExport(o *clientOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Write the rules as 'queue rule apply' reads them",
		Long: `Write all rules to standard output, by pattern, a JSON object a line, as 'queue rule
apply' reads them. What has its default is left out, and so is who set a rule and
when.`,
		Example: "  waggle queue rule export > rules.jsonl",
		Args:    exactly(),
		RunE: o.call(func(ctx context.Context, c *client, _ []string) error {
			rules, _, err := c.queueRules(ctx, 0)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(c.out)
			for _, rule := range rules {
				if err := sourcefile.WriteObject(out, minimalRule(rule)); err != nil {
					return err
				}
			}
			if len(rules) == 0 {
				c.note("there are no rules to export")
			}
			return out.Flush()
		}),
	}
}

// minimalRule is a rule without what it has by default, and without what Waggle writes. Its
// reason is that of the denial or pause, if it has one.
func minimalRule(rule *pb.QueueRule) *pb.QueueRule {
	whole, standard := wholeRule(rule), dispatch.DefaultQueueSettings()
	least := &pb.QueueRule{Pattern: whole.GetPattern(), Queue: whole.GetQueue(), MaxDelay: whole.GetMaxDelay(), Reason: whole.GetReason()}
	for _, reason := range heldReasons(rule) {
		least.Reason = or(reason, least.Reason)
	}
	if whole.GetMinDelay().AsDuration() != standard.MinDelay {
		least.MinDelay = whole.GetMinDelay()
	}
	if whole.GetMaxBlock().AsDuration() != standard.MaxBlock {
		least.MaxBlock = whole.GetMaxBlock()
	}
	if whole.GetMaxInFlight() != int32(standard.MaxInFlight) {
		least.MaxInFlight = whole.MaxInFlight
	}
	if whole.GetDelayFactor() != 0 {
		least.DelayFactor = whole.DelayFactor
	}
	if whole.GetPaused() {
		least.Paused = whole.Paused
	}
	if whole.GetDeny() {
		least.Deny = whole.Deny
	}
	return least
}

// wholeRule is a rule with defaults in place of what it leaves out.
func wholeRule(rule *pb.QueueRule) *pb.QueueRule {
	standard := dispatch.DefaultQueueSettings()
	whole := &pb.QueueRule{
		Pattern: rule.GetPattern(), Queue: rule.GetQueue(), MaxDelay: rule.GetMaxDelay(), Reason: rule.GetReason(),
		MinDelay: rule.GetMinDelay(), MaxBlock: rule.GetMaxBlock(), MaxInFlight: rule.MaxInFlight,
		By: rule.GetBy(), UpdateTime: rule.GetUpdateTime(), Gates: rule.GetGates(),
		DelayFactor: proto.Float64(rule.GetDelayFactor()), Paused: proto.Bool(rule.GetPaused()), Deny: proto.Bool(rule.GetDeny()),
	}
	whole.MinDelay = cmp.Or(whole.MinDelay, durationpb.New(standard.MinDelay))
	whole.MaxBlock = cmp.Or(whole.MaxBlock, durationpb.New(standard.MaxBlock))
	whole.MaxInFlight = cmp.Or(whole.MaxInFlight, proto.Int32(int32(standard.MaxInFlight)))
	return whole
}
