package rule

import (
	"cmp"
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// queueRules reads the rules by pattern, at most limit of them when it is not 0, with the etag that they all have.
func queueRules(ctx context.Context, c *client.Client, limit int) (rules []*pb.QueueRule, etag string, more bool, err error) {
	rules, more, err = client.ReadPages(ctx, limit, c.Queues.ListQueueRules, &pb.ListQueueRulesRequest{}, func(p *pb.ListQueueRulesResponse) []*pb.QueueRule {
		etag = cmp.Or(etag, p.GetEtag())
		return p.GetRules()
	})
	return rules, etag, more, err
}

// ruleLooks is how often a command looks at the rules that somebody else changes between its look and its change.
const ruleLooks = 5

// changedMeanwhile reports whether a change was refused because somebody else made one.
func changedMeanwhile(err error) bool { return status.Code(err) == codes.Aborted }

// EveryQueue is the pattern of the rule that, paused, holds every queue.
const EveryQueue = "*"

// onePattern wants one argument, a pattern of queues, and gives it as rules have it.
func onePattern(_ *cobra.Command, args []string) error {
	if err := cli.Exactly("the pattern")(nil, args); err != nil {
		return err
	}
	args[0] = queuePattern(args[0])
	return nil
}

// queuePattern is a pattern of queue names as rules have it.
func queuePattern(text string) string {
	if name, suffix := strings.CutPrefix(text, "*."); suffix {
		return "*." + canonical.QueueName(name)
	}
	return canonical.QueueName(text)
}

func writeRules(out io.Writer, now time.Time, rules []*pb.QueueRule) {
	t := human.NewTable("PATTERN", "SETTINGS", "BY", "SET", "REASON")
	for _, r := range rules {
		t.Row(r.GetPattern(), ruleText(r)+olderHolds(now, r), r.GetBy(), human.Since(now, r.GetUpdateTime()), human.Brief(r.GetReason(), human.MessageWidth))
	}
	t.Write(out, "no rules: every queue has the defaults, 1s apart, 1 at a time")
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

// wholeRule is a rule with defaults in place of what it leaves out.
func wholeRule(rule *pb.QueueRule) *pb.QueueRule {
	whole, standard := proto.CloneOf(rule), dispatch.DefaultQueueSettings()
	whole.MinDelay = cmp.Or(whole.MinDelay, durationpb.New(standard.MinDelay))
	whole.MaxBlock = cmp.Or(whole.MaxBlock, durationpb.New(standard.MaxBlock))
	whole.MaxInFlight = cmp.Or(whole.MaxInFlight, proto.Int32(int32(standard.MaxInFlight)))
	whole.DelayFactor, whole.Paused, whole.Deny = proto.Float64(rule.GetDelayFactor()), proto.Bool(rule.GetPaused()), proto.Bool(rule.GetDeny())
	return whole
}

// ruleText is what a rule sets, in a line; what it leaves out has its default.
func ruleText(r *pb.QueueRule) string {
	whole := wholeRule(r)
	text := describe.Politeness(whole.GetMinDelay(), whole.GetMaxInFlight(), r.GetDelayFactor(), r.GetMaxDelay(), r.GetMaxBlock())
	text.AddIf(r.GetPaused(), "PAUSED")
	text.AddIf(r.GetDeny(), "DENIED")
	text.AddIf(r.GetQueue() != "", "queue %s", r.GetQueue())
	return text.Text()
}

// heldWord is how a rule holds its queues; empty: it does not.
func heldWord(rule *pb.QueueRule) string {
	switch {
	case rule.GetPaused() && rule.GetDeny():
		return "paused and denied"
	case rule.GetDeny():
		return "denied"
	case rule.GetPaused():
		return "paused"
	}
	return ""
}

// setText follows the text of a rule: who last changed it, when and why, and who paused or denied it before that.
func setText(now time.Time, rule *pb.QueueRule) string {
	var text human.Phrases
	text.AddIf(rule.GetBy() != "", " by %s", rule.GetBy())
	text.AddIf(rule.GetUpdateTime() != nil, ", %s", human.Since(now, rule.GetUpdateTime()))
	text.AddIf(rule.GetReason() != "", " (%s)", rule.GetReason())
	return strings.Join(text, "") + olderHolds(now, rule)
}

// olderHolds follows the text of a rule: the pause and the denial that began before its last change, if any did.
func olderHolds(now time.Time, rule *pb.QueueRule) string {
	text := ""
	for _, gate := range rule.GetGates() {
		if gate.GetTime().AsTime().Before(rule.GetUpdateTime().AsTime()) {
			text += "; " + holdsText(now, []*pb.Gate{gate})
		}
	}
	return text
}

// holdsText is how a rule holds its queues, since when, by whom and why.
func holdsText(now time.Time, gates []*pb.Gate) string {
	var parts []string
	for _, gate := range gates {
		word := "paused "
		if gate.GetKind() == pb.GateKind_GATE_KIND_QUEUE_DENIED {
			word = "denied "
		}
		parts = append(parts, word+describe.Gate(now, gate))
	}
	return strings.Join(parts, "; ")
}
