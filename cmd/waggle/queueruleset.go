package main

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// ruleSet sets a rule in place of the one that there is.
type ruleSet struct {
	rule       *pb.QueueRule
	record     recordFlags
	lift       bool
	told       map[string]bool // whether the command says "paused" and "deny", either way
	was        *pb.QueueRule   // nil: there is none
	stays      string          // how the rule holds its queues though the command does not say so
	heldBy     *pb.QueueRule   // the rule that held them
	everything []*pb.QueueRule
}

// run sets the rule, and tells what it replaced. Where somebody changes the rules between
// the look at them and the call, it looks again.
func (s *ruleSet) run(ctx context.Context, c *client) error {
	asked := s.rule
	for looks := 1; ; looks++ {
		s.rule, s.stays, s.heldBy = proto.CloneOf(asked), "", nil
		reply, err := s.try(ctx, c)
		if err == nil {
			return s.show(c, reply)
		}
		if !changedMeanwhile(err) || looks == ruleLooks {
			return err
		}
	}
}

// try sets the rule in place of what there is now.
func (s *ruleSet) try(ctx context.Context, c *client) (*pb.SetQueueRuleResponse, error) {
	var etag string
	var err error
	if s.everything, etag, _, err = c.rulesWithEtag(ctx, 0); err != nil {
		return nil, err
	}
	s.was = ruleOf(s.everything, s.rule.GetPattern())
	reason := s.record.reason
	if !s.lift {
		s.keep()
		if s.stays != "" && s.was != nil {
			reason = or(s.was.GetReason(), reason) // it is why it is held
		}
	}
	return c.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: s.rule, By: s.record.by, Reason: reason, Etag: etag})
}

// show tells of the rule, of the one that it replaced and of what it left standing.
func (s *ruleSet) show(c *client, reply *pb.SetQueueRuleResponse) error {
	if s.was != nil && len(changedSettings(wholeRule(s.was), wholeRule(reply.GetRule()))) > 0 {
		c.note("this replaced the rule %s that stood: %s%s", plain(s.was.GetPattern()), plain(ruleText(s.was)), plain(c.setText(s.was)))
	}
	if s.stays != "" {
		c.note("%s stays %s, as the rule %s was set%s; --lift ends that",
			plain(s.rule.GetPattern()), s.stays, plain(s.heldBy.GetPattern()), plain(c.setText(s.heldBy)))
	}
	return c.show(reply.GetRule(), func() { writeRules(c.out, c.now, []*pb.QueueRule{reply.GetRule()}) })
}

// keep lets the rule hold what is held now, as 'queue rule apply' does, unless the command
// says otherwise in so many words.
func (s *ruleSet) keep() {
	plan := newRulePlan([]ruleEntry{{rule: s.rule}}, s.everything, false, false)
	for _, change := range plan.changes {
		if change.stays == "" || change.rule.GetPattern() != s.rule.GetPattern() {
			continue
		}
		kept := &pb.QueueRule{}
		if change.rule.GetPaused() && !s.rule.GetPaused() && !s.told["paused"] {
			s.rule.Paused, kept.Paused = proto.Bool(true), proto.Bool(true)
		}
		if change.rule.GetDeny() && !s.rule.GetDeny() && !s.told["deny"] {
			s.rule.Deny, kept.Deny = proto.Bool(true), proto.Bool(true)
		}
		s.stays = heldWord(kept)
		s.heldBy = s.holder(plan.above(change))
	}
}

// holder is the rule that held what the new one is for: the one that it replaces, another
// one for its queue, or the shorter one above it.
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

// setText is by whom a rule was set, when and why, to stand behind what is told of it.
func (c *client) setText(rule *pb.QueueRule) string {
	text := ""
	if rule.GetBy() != "" {
		text = " by " + rule.GetBy()
	}
	if rule.GetUpdateTime() != nil {
		text += ", " + since(c.now, rule.GetUpdateTime())
	}
	if rule.GetReason() != "" {
		text += fmt.Sprintf(" (%s)", rule.GetReason())
	}
	return text
}
