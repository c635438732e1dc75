package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newRuleDelete(o *clientOptions) *cobra.Command {
	var record recordFlags
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
	record.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		reply, err := c.deleteRule(ctx, args[0], lift, &record)
		return c.show(reply.GetRule(), err, func() {
			fmt.Fprintf(c.out, "deleted the rule %s: %s\n", plain(reply.GetRule().GetPattern()), plain(ruleText(reply.GetRule())))
		})
	})
	return cmd
}

// deleteRule deletes the rule of a pattern as it is at the first look. Where somebody changes
// the rules between a look and the call, it looks again, and leaves a rule that is another one
// by then: it may have become an emergency stop. One that pauses or denies at the first look
// it deletes only to lift that.
func (c *client) deleteRule(ctx context.Context, pattern string, lift bool, record *recordFlags) (*pb.DeleteQueueRuleResponse, error) {
	var first *pb.QueueRule
	for looks := 1; ; looks++ {
		rules, etag, _, err := c.queueRules(ctx, 0)
		if err != nil {
			return nil, err
		}
		is := ruleOf(rules, pattern)
		switch word := heldWord(is); {
		case looks == 1 && word != "" && !lift:
			return nil, fmt.Errorf("the rule %s is %s; --lift deletes it all the same", pattern, holdsText(c.now, is.GetGates()))
		case looks == 1:
			first = is
		case is != nil && !proto.Equal(first, is):
			return nil, fmt.Errorf("the rule %s was changed meanwhile: %s%s; it stays",
				pattern, ruleText(is), setText(c.now, is))
		}
		reply, err := c.queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: pattern, By: record.by, Reason: record.reason, Etag: etag})
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
