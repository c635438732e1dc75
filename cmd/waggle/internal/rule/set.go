package rule

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// ruleSet creates a rule, or changes the one that there is.
type ruleSet struct {
	rule       *pb.QueueRule
	record     cli.Record
	lift       bool
	replace    bool
	told       []string      // the settings that the command gives
	was        *pb.QueueRule // nil: there is none
	stays      string        // how the rule holds its queues though the command does not say so
	heldBy     *pb.QueueRule // the rule that held them
	everything []*pb.QueueRule
}

// run sets the rule, and notes what it changed. If somebody changes the rules between the look at them and the call, it
// looks again.
func (s *ruleSet) run(ctx context.Context, c *client.Client) error {
	asked := s.rule
	for looks := 1; ; looks++ {
		s.rule, s.stays, s.heldBy = proto.CloneOf(asked), "", nil
		switch reply, err := s.try(ctx, c); {
		case err == nil && reply == nil:
			return s.showIdle(c)
		case err == nil:
			return s.show(c, reply)
		case !changedMeanwhile(err) || looks == ruleLooks:
			return err
		}
	}
}

// try sets the rule by what there is now; without a reply there was nothing to lift.
func (s *ruleSet) try(ctx context.Context, c *client.Client) (*pb.SetQueueRuleResponse, error) {
	var etag string
	var err error
	if s.everything, etag, _, err = queueRules(ctx, c, 0); err != nil {
		return nil, err
	}
	s.was = ruleOf(s.everything, s.rule.GetPattern())
	switch {
	case !s.lift:
		s.keep()
	case s.idle():
		return nil, nil
	}
	return c.Queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{
		Rule: s.rule, By: s.record.By, Reason: s.record.Reason, Etag: etag, UpdateMask: s.mask(),
	})
}

// idle reports whether the command only lifts, and neither the rule nor one that a new rule would take its queues from holds
// anything.
func (s *ruleSet) idle() bool {
	if s.replace || len(s.told) > 0 || heldWord(s.was) != "" {
		return false
	}
	plan := newRulePlan(nil, s.everything, true, false)
	return heldWord(plan.above(&ruleChange{rule: s.rule, was: s.was})) == ""
}

// showIdle tells that nothing was lifted, and what holds all the same.
func (s *ruleSet) showIdle(c *client.Client) error {
	rule := s.was
	if rule == nil {
		rule = &pb.QueueRule{Pattern: s.rule.GetPattern()}
	}
	return c.Show(rule, nil, func() {
		fmt.Fprintf(c.Out, "%s was not paused or denied; nothing changed\n", human.Plain(rule.GetPattern()))
		if stop := ruleOf(s.everything, EveryQueue); stop.GetPaused() {
			fmt.Fprintf(c.Out, "it is held by the rule %s: %s\n", EveryQueue, human.Plain(holdsText(c.Now, stop.GetGates())))
		}
	})
}

// mask names what the command changes of the rule; nil: all.
func (s *ruleSet) mask() *fieldmaskpb.FieldMask {
	if s.replace {
		return nil
	}
	mask := &fieldmaskpb.FieldMask{Paths: append([]string{"pattern"}, s.told...)} // without a path it would be all
	if s.lift || s.stays != "" {
		mask.Paths = append(mask.Paths, "paused", "deny")
	}
	return mask
}

// show tells of the rule, of what it was and of what it left standing.
func (s *ruleSet) show(c *client.Client, reply *pb.SetQueueRuleResponse) error {
	rule := reply.GetRule()
	if s.was != nil {
		s.tellChange(c, changedSettings(wholeRule(s.was), wholeRule(rule)))
	}
	switch {
	case s.stays != "":
		c.Note("%s stays %s, as the rule %s is: %s; --lift ends that",
			human.Plain(s.rule.GetPattern()), s.stays, human.Plain(s.heldBy.GetPattern()), human.Plain(holdsText(c.Now, s.heldBy.GetGates())))
	case s.was.GetPaused() && rule.GetPaused(), s.was.GetDeny() && rule.GetDeny():
		c.Note("%s was already %s", human.Plain(rule.GetPattern()), human.Plain(holdsText(c.Now, s.was.GetGates())))
	}
	return c.Show(rule, nil, func() { writeRules(c.Out, c.Now, []*pb.QueueRule{rule}) })
}

// tellChange tells what the command changed of the rule that there was, and who had set it.
func (s *ruleSet) tellChange(c *client.Client, changed []string) {
	pattern, set := human.Plain(s.was.GetPattern()), human.Plain(setText(c.Now, s.was))
	switch {
	case len(changed) == 0:
	case s.replace:
		c.Note("this replaced the rule %s that stood: %s%s", pattern, human.Plain(ruleText(s.was)), set)
	default:
		c.Note("this changed %s of the rule %s, set%s", human.Plain(strings.Join(changed, ", ")), pattern, set)
	}
}

// keep lets the rule hold what is held now, as 'queue rule apply' does, unless flags say otherwise.
func (s *ruleSet) keep() {
	entry := ruleEntry{rule: s.rule}
	plan := newRulePlan([]ruleEntry{entry}, s.everything, false, false)
	change := plan.changeTo(entry)
	if change.stays == "" {
		return
	}
	kept := &pb.QueueRule{}
	if change.rule.GetPaused() && !s.rule.GetPaused() && !slices.Contains(s.told, "paused") {
		s.rule.Paused, kept.Paused = proto.Bool(true), proto.Bool(true)
	}
	if change.rule.GetDeny() && !s.rule.GetDeny() && !slices.Contains(s.told, "deny") {
		s.rule.Deny, kept.Deny = proto.Bool(true), proto.Bool(true)
	}
	s.stays, s.heldBy = heldWord(kept), s.holder(plan.above(change))
}

// holder is the rule that held what the new one is for: the one that it replaces, another one for its queue, or the shorter
// one above it.
func (s *ruleSet) holder(above *pb.QueueRule) *pb.QueueRule {
	if heldWord(s.was) != "" {
		return s.was
	}
	for _, rule := range s.everything {
		if settingsName(rule) == settingsName(s.rule) && heldWord(rule) != "" {
			return rule
		}
	}
	return ruleOf(s.everything, above.GetPattern())
}
