// Package rule has the commands for queue rules.
package rule

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/specflag"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rule",
		Short: "Set politeness by pattern",
		Long: `Set politeness by pattern: an exact name (example.com, example.com:8080), a
suffix (*.example.com: every name below it, not itself), or * for everything. The
longest pattern that matches holds, and holds whole.`,
	}
	cmd.AddCommand(newRuleSet(o), newRuleGet(o), newRuleList(o), newRuleDelete(o), newRuleExport(o), newRuleApply(o))
	return cmd
}

func newRuleSet(o *client.Options) *cobra.Command {
	s := &ruleSet{rule: &pb.QueueRule{}}
	given := &pb.QueueRule{MaxInFlight: new(int32), DelayFactor: new(float64), Paused: new(bool), Deny: new(bool)}
	cmd := &cobra.Command{
		Use:   "set PATTERN",
		Short: "Create a rule, or change what is given of it",
		Long: `Create a rule, or change what is given of it: the rest stays, and of a new one has its
default. With --replace the rest goes back to its default. It says what it changed.

What is paused or denied now stays paused or denied, with who began it and why: it may
be somebody's emergency stop. --lift ends that, or --paused=false, --deny=false.`,
		Example: `  waggle queue rule set '*.example.com' --min-delay 200ms --max-in-flight 4
  waggle queue rule set '*' --paused --reason 'emergency stop'`,
		Args: onePattern,
	}
	flags := cmd.Flags()
	cli.DurationVar(flags, &given.MinDelay, "min-delay", "least time between two request starts (default 1s)")
	flags.Int32Var(given.MaxInFlight, "max-in-flight", 1, "`number` of leases at a time")
	flags.Float64Var(given.DelayFactor, "delay-factor", 0, "after a report, wait this many `times` the fetch duration")
	cli.DurationVar(flags, &given.MaxDelay, "max-delay", "most that --delay-factor and the host itself ask for (default 1d and 1m)")
	cli.DurationVar(flags, &given.MaxBlock, "max-block", "longest block that failures of a host cause (default 1d)")
	flags.BoolVar(given.Paused, "paused", false, "hand out nothing of what matches; on '*' the emergency stop")
	flags.BoolVar(given.Deny, "deny", false, "hand out nothing, end the leases that stand, refuse submits")
	cli.QueueVar(flags, &given.Queue, "queue", "one queue for all hosts that match, by this `name`")
	flags.BoolVar(&s.lift, "lift", false, "hand out again what is paused or denied now")
	flags.BoolVar(&s.replace, "replace", false, "let what is not given go back to its default")
	s.record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		s.rule.Pattern = args[0]
		for _, name := range []string{"min-delay", "max-in-flight", "delay-factor", "max-delay", "max-block", "paused", "deny", "queue"} {
			if path := strings.ReplaceAll(name, "-", "_"); flags.Changed(name) {
				specflag.CopyField(s.rule, given, path)
				s.told = append(s.told, path)
			}
		}
		switch {
		case s.lift && (given.GetPaused() || given.GetDeny()):
			return cli.Usagef("--lift hands out again, --paused and --deny hold: say one of them")
		case len(s.told) == 0 && !s.lift && !s.replace:
			return cli.Usagef("what is to change of the rule %s? say a setting, --lift, or --replace for the defaults", args[0])
		}
		return s.run(ctx, c)
	})
	return cmd
}

func newRuleList(o *client.Options) *cobra.Command {
	return o.List(&cobra.Command{Use: "list", Short: "List the rules"}, func(ctx context.Context, c *client.Client, limit int) (proto.Message, bool, func(), error) {
		rules, etag, more, err := queueRules(ctx, c, limit)
		return &pb.ListQueueRulesResponse{Rules: rules, Etag: etag}, more, func() { writeRules(c.Out, c.Now, rules) }, err
	})
}

func newRuleGet(o *client.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get PATTERN",
		Short: "Show the rule of a pattern",
		Long: `Show the rule of a pattern, exactly as it was set. Which rule holds for a host, "waggle
queue get HOST" says.`,
		Args: onePattern,
	}
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		rules, _, _, err := queueRules(ctx, c, 0)
		rule := ruleOf(rules, args[0])
		if err == nil && rule == nil {
			err = fmt.Errorf("no rule has the pattern %s; `waggle queue rule list` shows the rules, `waggle queue get HOST` which one holds for a host", args[0])
		}
		return c.Show(rule, err, func() { writeRules(c.Out, c.Now, []*pb.QueueRule{rule}) })
	})
	return cmd
}

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

// deleteRule deletes the rule of a pattern as it is at the first look. If somebody changes the rules between a look and the
// call, it looks again, and leaves a rule that is another one by then: it may have become an emergency stop.
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
			return nil, fmt.Errorf("the rule %s was changed meanwhile: %s%s; it stays", pattern, ruleText(is), setText(c.Now, is))
		}
		reply, err := c.Queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: pattern, By: record.By, Reason: record.Reason, Etag: etag})
		if err == nil || !changedMeanwhile(err) || looks == ruleLooks {
			return reply, err
		}
	}
}

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

// minimalRule is a rule without what it has by default, and without what Waggle writes. Its reason is that of the denial or
// pause, if it has one.
func minimalRule(rule *pb.QueueRule) *pb.QueueRule {
	least, standard := proto.CloneOf(rule), dispatch.DefaultQueueSettings()
	least.By, least.UpdateTime, least.Gates = "", nil, nil
	for _, reason := range heldReasons(rule) {
		least.Reason = cmp.Or(reason, least.Reason)
	}
	textfile.UnsetDuration(&least.MinDelay, standard.MinDelay)
	textfile.UnsetDuration(&least.MaxBlock, standard.MaxBlock)
	textfile.Unset(&least.MaxInFlight, int32(standard.MaxInFlight))
	textfile.Unset(&least.DelayFactor, 0)
	textfile.Unset(&least.Paused, false)
	textfile.Unset(&least.Deny, false)
	return least
}
