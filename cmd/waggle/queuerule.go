package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newQueueRule(o *clientOptions) *cobra.Command {
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

func newRuleSet(o *clientOptions) *cobra.Command {
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
	durationVar(flags, &rule.MinDelay, "min-delay", "least time between two request starts (default 1s)")
	flags.Int32Var(&inFlight, "max-in-flight", 1, "`number` of leases at a time")
	flags.Float64Var(&factor, "delay-factor", 0, "after a report, wait this many `times` the fetch duration")
	durationVar(flags, &rule.MaxDelay, "max-delay", "most that --delay-factor and the host itself ask for (default 1d and 1m)")
	durationVar(flags, &rule.MaxBlock, "max-block", "longest block that failures of a host cause (default 1d)")
	flags.BoolVar(&paused, "paused", false, "hand out nothing of what matches; on '*' the emergency stop")
	flags.BoolVar(&deny, "deny", false, "hand out nothing, end the leases that stand, refuse submits")
	queueVar(flags, &rule.Queue, "queue", "one queue for all hosts that match, by this `name`")
	flags.BoolVar(&s.lift, "lift", false, "hand out again what is paused or denied now")
	flags.BoolVar(&s.replace, "replace", false, "let what is not given go back to its default")
	s.record.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
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
			return usagef("--lift hands out again, --paused and --deny hold: say one of them")
		case len(s.told) == 0 && !s.lift && !s.replace:
			return usagef("what is to change of the rule %s? say a setting, --lift, or --replace for the defaults", args[0])
		}
		return s.run(ctx, c)
	})
	return cmd
}

func newRuleList(o *clientOptions) *cobra.Command {
	return o.list(&cobra.Command{Use: "list", Short: "List the rules"}, func(ctx context.Context, c *client, limit int) (proto.Message, bool, func(), error) {
		rules, etag, more, err := c.queueRules(ctx, limit)
		return &pb.ListQueueRulesResponse{Rules: rules, Etag: etag}, more, func() { writeRules(c.out, c.now, rules) }, err
	})
}

// queueRules reads the rules by pattern, at most limit of them when it is not 0, with the etag that they all have.
func (c *client) queueRules(ctx context.Context, limit int) (rules []*pb.QueueRule, etag string, more bool, err error) {
	rules, more, err = readPages(limit, func(size int32, token string) (*pb.ListQueueRulesResponse, error) {
		return c.queues.ListQueueRules(ctx, &pb.ListQueueRulesRequest{PageSize: size, PageToken: token})
	}, func(p *pb.ListQueueRulesResponse) []*pb.QueueRule {
		etag = or(etag, p.GetEtag())
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
	t := newTable("PATTERN", "SETTINGS", "BY", "SET", "REASON")
	for _, r := range rules {
		t.row(r.GetPattern(), ruleText(r)+olderHolds(now, r), r.GetBy(), since(now, r.GetUpdateTime()), brief(r.GetReason(), messageWidth))
	}
	t.write(out, "no rules: every queue has the defaults, 1s apart, 1 at a time")
}
