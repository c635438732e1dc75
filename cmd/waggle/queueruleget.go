package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newRuleGet(o *clientOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get PATTERN",
		Short: "Show the rule of a pattern",
		Long: `Show the rule of a pattern, exactly as it was set. Which rule holds for a host, "waggle
queue get HOST" says.`,
		Args: onePattern,
	}
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		rules, _, _, err := c.queueRules(ctx, 0)
		rule := ruleOf(rules, args[0])
		if err == nil && rule == nil {
			err = fmt.Errorf("no rule has the pattern %s; `waggle queue rule list` shows the rules, `waggle queue get HOST` which one holds for a host", args[0])
		}
		return c.show(rule, err, func() { writeRules(c.out, c.now, []*pb.QueueRule{rule}) })
	})
	return cmd
}
