package rule

import (
	"bufio"
	"cmp"
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newRuleExport(o *client.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Write the rules as 'queue rule apply' reads them",
		Long: `Write all rules to standard output, by pattern, a JSON object a line, as 'queue rule
apply' reads them. What has its default is left out, and so is who set a rule and
when.`,
		Example: "  waggle queue rule export > rules.jsonl",
		Args:    cli.Exactly(),
		RunE: o.Call(func(ctx context.Context, c *client.Client, _ []string) error {
			rules, _, _, err := queueRules(ctx, c, 0)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(c.Out)
			for _, rule := range rules {
				if err := textfile.WriteObject(out, minimalRule(rule)); err != nil {
					return err
				}
			}
			if len(rules) == 0 {
				c.Note("there are no rules to export")
			}
			return out.Flush()
		}),
	}
}

// minimalRule is a rule without what it has by default, and without what Waggle writes. Its
// reason is that of the denial or pause, if it has one.
func minimalRule(rule *pb.QueueRule) *pb.QueueRule {
	whole := wholeRule(rule)
	least := &pb.QueueRule{Pattern: whole.GetPattern(), Queue: whole.GetQueue(), MaxDelay: whole.GetMaxDelay(), Reason: whole.GetReason()}
	for _, reason := range heldReasons(rule) {
		least.Reason = cmp.Or(reason, least.Reason)
	}
	if whole.GetMinDelay().AsDuration() != dispatch.DefaultMinDelay {
		least.MinDelay = whole.GetMinDelay()
	}
	if whole.GetMaxBlock().AsDuration() != dispatch.DefaultMaxBlock {
		least.MaxBlock = whole.GetMaxBlock()
	}
	if whole.GetMaxInFlight() != dispatch.DefaultMaxInFlight {
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
	whole := &pb.QueueRule{
		Pattern: rule.GetPattern(), Queue: rule.GetQueue(), MaxDelay: rule.GetMaxDelay(), Reason: rule.GetReason(),
		MinDelay: rule.GetMinDelay(), MaxBlock: rule.GetMaxBlock(), MaxInFlight: rule.MaxInFlight,
		By: rule.GetBy(), UpdateTime: rule.GetUpdateTime(), Gates: rule.GetGates(),
		DelayFactor: proto.Float64(rule.GetDelayFactor()), Paused: proto.Bool(rule.GetPaused()), Deny: proto.Bool(rule.GetDeny()),
	}
	whole.MinDelay = cmp.Or(whole.MinDelay, durationpb.New(dispatch.DefaultMinDelay))
	whole.MaxBlock = cmp.Or(whole.MaxBlock, durationpb.New(dispatch.DefaultMaxBlock))
	whole.MaxInFlight = cmp.Or(whole.MaxInFlight, proto.Int32(dispatch.DefaultMaxInFlight))
	return whole
}
