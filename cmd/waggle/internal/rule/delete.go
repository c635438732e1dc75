package rule

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newRuleDelete(o *client.Options) *cobra.Command {
	var record cli.Record
	var lift bool
	cmd := &cobra.Command{
		Use:   "delete PATTERN",
		Short: "Remove a rule; what it matched falls to the next shorter pattern",
		Long: `Remove a rule; what it matched falls to the next shorter pattern. One that somebody
else changes at the same moment stays, and so does one that pauses or denies, which may be
somebody's emergency stop, unless --lift is given.`,
		Args: onePattern,
	}
	cmd.Flags().BoolVar(&lift, "lift", false, "delete also a rule that pauses or denies")
	record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		reply, err := deleteRule(ctx, c, args[0], lift, &record)
		return c.Show(reply.GetRule(), err, func() {
			fmt.Fprintf(c.Out, "deleted the rule %s: %s\n", human.Plain(reply.GetRule().GetPattern()), human.Plain(ruleText(reply.GetRule())))
		})
	})
	return cmd
}

// deleteRule deletes the rule of a pattern as it is at the first look. Where somebody changes
// the rules between a look and the call, it looks again, and leaves a rule that is another one
// by then: it may have become an emergency stop. One that pauses or denies at the first look
// it deletes only to lift that.
func deleteRule(ctx context.Context, c *client.Client, pattern string, lift bool, record *cli.Record) (*pb.DeleteQueueRuleResponse, error) {
	var first *pb.QueueRule
	for looks := 1; ; looks++ {
		rules, etag, _, err := queueRules(ctx, c, 0)
		if err != nil {
			return nil, err
		}
		is := ruleOf(rules, pattern)
		switch word := heldWord(is); {
		case looks == 1 && word != "" && !lift:
			return nil, fmt.Errorf("the rule %s is %s; --lift deletes it all the same", pattern, holdsText(c.Now, is.GetGates()))
		case looks == 1:
			first = is
		case is != nil && !proto.Equal(first, is):
			return nil, fmt.Errorf("the rule %s was changed meanwhile: %s%s; it stays",
				pattern, ruleText(is), setText(c.Now, is))
		}
		reply, err := c.Queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: pattern, By: record.By, Reason: record.Reason, Etag: etag})
		if err == nil || !changedMeanwhile(err) || looks == ruleLooks {
			return reply, err
		}
	}
}

// ruleOf is the rule of a pattern; nil: there is none.
func ruleOf(rules []*pb.QueueRule, pattern string) *pb.QueueRule {
	for _, rule := range rules {
		if rule.GetPattern() == pattern {
			return rule
		}
	}
	return nil
}
