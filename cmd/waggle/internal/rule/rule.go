// Package rule has the commands for queue rules.
package rule

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/specflag"
	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rule",
		Short: "Set politeness by pattern",
		Long: `Set politeness by pattern: an exact name (example.com, example.com:8080), a suffix (*.example.com: every name
below it, not itself), or * for everything. The longest pattern that matches applies, and applies whole. To stop a queue, use
waggle hold. waggle apply keeps rules in a file.`,
	}
	cmd.AddCommand(newSet(o), newList(o), newDelete(o))
	return cmd
}

func newSet(o *client.Options) *cobra.Command {
	given, replace := &pb.QueueRule{MaxInFlight: new(int32), DelayFactor: new(float64)}, false
	var record cli.Record
	cmd := &cobra.Command{
		Use:   "set PATTERN",
		Short: "Create a rule, or change it",
		Long: `Create a rule, or change what is given of it: the rest stays, and of a new one has its default. With --replace
the rest goes back to its default. It reports what it changed.`,
		Example: "  waggle queue rule set '*.example.com' --min-delay 200ms --max-in-flight 4",
		Args:    onePattern,
	}
	flags := cmd.Flags()
	cli.DurationVar(flags, &given.MinDelay, "min-delay", "least time between two request starts (default 1s)")
	flags.Int32Var(given.MaxInFlight, "max-in-flight", 1, "`number` of leases at a time")
	flags.Float64Var(given.DelayFactor, "delay-factor", 0, "after a report, wait this many `times` the fetch duration")
	cli.DurationVar(flags, &given.MaxDelay, "max-delay", "most that --delay-factor and the host itself ask for (default 1d and 1m)")
	cli.DurationVar(flags, &given.MaxBlock, "max-block", "longest block that failures of a host cause (default 1d)")
	cli.QueueVar(flags, &given.Queue, "queue", "one queue for all hosts that match, by this `name`")
	flags.BoolVar(&replace, "replace", false, "let what is not given go back to its default")
	record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		request := &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: args[0]}, By: record.By, Reason: record.Reason}
		var paths []string
		for _, name := range []string{"min-delay", "max-in-flight", "delay-factor", "max-delay", "max-block", "queue"} {
			if path := strings.ReplaceAll(name, "-", "_"); flags.Changed(name) {
				specflag.CopyField(request.GetRule(), given, path)
				paths = append(paths, path)
			}
		}
		switch {
		case replace: // without a mask every field counts
		case len(paths) == 0:
			return cli.Usagef("what is to change of the rule %s? say a setting, or --replace for the defaults", args[0])
		default:
			request.UpdateMask = &fieldmaskpb.FieldMask{Paths: paths}
		}
		rules, etag, err := Read(ctx, c)
		if err != nil {
			return err
		}
		request.Etag = etag // what is reported as changed is what was changed
		reply, err := c.Queues.SetQueueRule(ctx, request)
		if was := rules[args[0]]; err == nil && was != nil {
			if changes := Changes(was, reply.GetRule()); len(changes) > 0 {
				c.Note("this changed %s of the rule %s, set%s", human.Plain(strings.Join(changes, ", ")), human.Plain(args[0]), human.Plain(setText(c.Now, was)))
			}
		}
		return c.Show(reply.GetRule(), err, func() { writeRules(c.Out, c.Now, []*pb.QueueRule{reply.GetRule()}) })
	})
	return cmd
}

func newList(o *client.Options) *cobra.Command {
	return o.List(&cobra.Command{Use: "list", Short: "List the rules"}, func(ctx context.Context, c *client.Client, part client.Part) error {
		reply, err := client.ReadPart(ctx, part, c.Queues.ListQueueRules, &pb.ListQueueRulesRequest{})
		return c.ShowList(part, reply, err, func() { writeRules(c.Out, c.Now, reply.GetRules()) })
	})
}

func newDelete(o *client.Options) *cobra.Command {
	var record cli.Record
	cmd := &cobra.Command{
		Use:   "delete PATTERN",
		Short: "Delete a rule",
		Long:  "Delete a rule. What it matched gets the rule with the next shorter pattern.",
		Args:  onePattern,
	}
	record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		reply, err := c.Queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: args[0], By: record.By, Reason: record.Reason})
		return c.Show(reply.GetRule(), err, func() {
			fmt.Fprintf(c.Out, "deleted the rule %s: %s\n", human.Plain(reply.GetRule().GetPattern()), human.Plain(Text(reply.GetRule())))
		})
	})
	return cmd
}

// onePattern wants one argument, a pattern of queues, and gives it as rules have it.
func onePattern(_ *cobra.Command, args []string) error {
	if err := cli.Exactly("the pattern")(nil, args); err != nil {
		return err
	}
	args[0] = cli.QueuePattern(args[0])
	return nil
}

// Read reads the rules by pattern, with the etag that they all have.
func Read(ctx context.Context, c *client.Client) (rules map[string]*pb.QueueRule, etag string, err error) {
	reply, err := client.ReadPart(ctx, client.Part{}, c.Queues.ListQueueRules, &pb.ListQueueRulesRequest{})
	rules = map[string]*pb.QueueRule{}
	for _, rule := range reply.GetRules() {
		rules[rule.GetPattern()] = rule
	}
	return rules, reply.GetEtag(), err
}

func writeRules(out io.Writer, now time.Time, rules []*pb.QueueRule) {
	t := human.NewTable("PATTERN^14", "SETTINGS~24", "BY/1^6", "SET/2", "REASON/3~10")
	for _, r := range rules {
		t.Row(r.GetPattern(), Text(r), r.GetBy(), human.Since(now, r.GetUpdateTime()), r.GetReason())
	}
	t.Write(out, "no rules: every queue has the defaults, 1s apart, 1 at a time")
}

// whole is a rule with defaults in place of what it leaves out.
func whole(rule *pb.QueueRule) *pb.QueueRule {
	all, standard := proto.CloneOf(rule), dispatch.DefaultQueueSettings()
	all.MinDelay = cmp.Or(all.MinDelay, durationpb.New(standard.MinDelay))
	all.MaxBlock = cmp.Or(all.MaxBlock, durationpb.New(standard.MaxBlock))
	all.MaxInFlight = cmp.Or(all.MaxInFlight, proto.Int32(int32(standard.MaxInFlight)))
	return all
}

// Text is what a rule sets, in a line; what it leaves out has its default.
func Text(rule *pb.QueueRule) string {
	r := whole(rule)
	text := describe.Politeness(r.GetMinDelay(), r.GetMaxInFlight(), r.GetDelayFactor(), r.GetMaxDelay(), rule.GetMaxBlock())
	text.AddIf(r.GetQueue() != "", "queue %s", r.GetQueue())
	return text.Text()
}

// Changes are the settings in which two rules differ, with both values.
func Changes(was, is *pb.QueueRule) (changes []string) {
	texts := func(rule *pb.QueueRule) []string {
		r := whole(rule)
		return []string{
			human.DurationOr(r.GetMinDelay(), ""), strconv.Itoa(int(r.GetMaxInFlight())), strconv.FormatFloat(r.GetDelayFactor(), 'g', -1, 64),
			human.DurationOr(r.GetMaxDelay(), human.None), human.DurationOr(r.GetMaxBlock(), ""), cmp.Or(r.GetQueue(), human.None),
		}
	}
	before, after := texts(was), texts(is)
	for i, name := range []string{"min_delay", "max_in_flight", "delay_factor", "max_delay", "max_block", "queue"} {
		if before[i] != after[i] {
			changes = append(changes, fmt.Sprintf("%s from %s to %s", name, before[i], after[i]))
		}
	}
	return changes
}

// setText follows the text of a rule: who last changed it, when and why.
func setText(now time.Time, rule *pb.QueueRule) string {
	var text human.Phrases
	text.AddIf(rule.GetBy() != "", " by %s", rule.GetBy())
	text.AddIf(rule.GetUpdateTime() != nil, ", %s", human.Since(now, rule.GetUpdateTime()))
	text.AddIf(rule.GetReason() != "", " (%s)", rule.GetReason())
	return strings.Join(text, "")
}
