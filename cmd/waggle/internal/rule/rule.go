// Package rule has the commands for queue rules.
package rule

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// EveryQueue is the pattern of the rule that, paused, holds every queue.
const EveryQueue = "*"

// queuePattern is a pattern of queue names as rules have it.
func queuePattern(text string) string {
	if name, suffix := strings.CutPrefix(text, "*."); suffix {
		return "*." + canonical.QueueName(name)
	}
	return canonical.QueueName(text)
}

// onePattern wants one argument, a pattern of queues, and gives it as rules have it.
func onePattern(_ *cobra.Command, args []string) error {
	if err := cli.Exactly("the pattern")(nil, args); err != nil {
		return err
	}
	args[0] = queuePattern(args[0])
	return nil
}

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
	s := &ruleSet{rule: &pb.QueueRule{}, told: map[string]bool{}}
	rule := s.rule
	var inFlight int32
	var factor float64
	var paused, deny bool
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
	cli.DurationVar(flags, &rule.MinDelay, "min-delay", "least time between two request starts (default 1s)")
	flags.Int32Var(&inFlight, "max-in-flight", 1, "`number` of leases at a time")
	flags.Float64Var(&factor, "delay-factor", 0, "after a report, wait this many `times` the fetch duration")
	cli.DurationVar(flags, &rule.MaxDelay, "max-delay", "most that --delay-factor and the host itself ask for (default 1d and 1m)")
	cli.DurationVar(flags, &rule.MaxBlock, "max-block", "longest block that failures of a host cause (default 1d)")
	flags.BoolVar(&paused, "paused", false, "hand out nothing of what matches; on '*' the emergency stop")
	flags.BoolVar(&deny, "deny", false, "hand out nothing, end the leases that stand, refuse submits")
	cli.QueueVar(flags, &rule.Queue, "queue", "one queue for all hosts that match, by this `name`")
	flags.BoolVar(&s.lift, "lift", false, "hand out again what is paused or denied now")
	flags.BoolVar(&s.replace, "replace", false, "let what is not given go back to its default")
	s.record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		rule.Pattern = args[0]
		for name, set := range map[string]func(){
			"max-in-flight": func() { rule.MaxInFlight = &inFlight },
			"delay-factor":  func() { rule.DelayFactor = &factor },
			"paused":        func() { rule.Paused = &paused },
			"deny":          func() { rule.Deny = &deny },
			"min-delay":     func() {}, "max-delay": func() {}, "max-block": func() {}, "queue": func() {},
		} {
			if flags.Changed(name) {
				set()
				s.told[name] = true
			}
		}
		switch {
		case s.lift && (paused || deny):
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

// queueRules reads the rules by pattern, at most limit of them when it is not 0, with the etag that they all have.
func queueRules(ctx context.Context, c *client.Client, limit int) (rules []*pb.QueueRule, etag string, more bool, err error) {
	rules, more, err = client.ReadPages(limit, func(size int32, token string) (*pb.ListQueueRulesResponse, error) {
		return c.Queues.ListQueueRules(ctx, &pb.ListQueueRulesRequest{PageSize: size, PageToken: token})
	}, func(p *pb.ListQueueRulesResponse) []*pb.QueueRule {
		etag = cmp.Or(etag, p.GetEtag())
		return p.GetRules()
	})
	return rules, etag, more, err
}

// ruleLooks is how often a command looks at the rules that somebody else changes between
// its look and its change.
const ruleLooks = 5

// changedMeanwhile reports whether a change was refused because somebody else made one.
func changedMeanwhile(err error) bool { return status.Code(err) == codes.Aborted }

func writeRules(out io.Writer, now time.Time, rules []*pb.QueueRule) {
	t := human.NewTable("PATTERN", "SETTINGS", "BY", "SET", "REASON")
	for _, r := range rules {
		t.Row(r.GetPattern(), ruleText(r)+olderHolds(now, r), r.GetBy(), human.Since(now, r.GetUpdateTime()), human.Brief(r.GetReason(), human.MessageWidth))
	}
	t.Write(out, "no rules: every queue has the defaults, 1s apart, 1 at a time")
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
