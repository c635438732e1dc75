package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// rule is that of a pattern, nil if it has none, and the etag of all rules.
func (v *visit) rule(pattern string) (rule *pb.QueueRule, etag string, err error) {
	for token := ""; ; {
		reply, err := v.c.queues.ListQueueRules(v.Context(), &pb.ListQueueRulesRequest{PageSize: 1000, PageToken: token})
		if err != nil {
			return nil, "", err
		}
		etag = cmp.Or(etag, reply.GetEtag())
		for _, one := range reply.GetRules() {
			if one.GetPattern() == pattern {
				return one, etag, nil
			}
		}
		if token = reply.GetNextPageToken(); token == "" {
			return nil, etag, nil
		}
	}
}

// ruleSettings are the settings of a rule as a form has them: texts, by their names as of the command.
func ruleSettings(rule *pb.QueueRule) map[string]string {
	all := map[string]string{
		"queue": rule.GetQueue(), "min-delay": spanText(rule.GetMinDelay()), "max-delay": spanText(rule.GetMaxDelay()), "max-block": spanText(rule.GetMaxBlock()),
	}
	if rule.GetMaxInFlight() != 0 {
		all["max-in-flight"] = strconv.Itoa(int(rule.GetMaxInFlight()))
	}
	if rule.GetDelayFactor() != 0 {
		all["delay-factor"] = strconv.FormatFloat(rule.GetDelayFactor(), 'g', -1, 64)
	}
	return all
}

// ruleFields ask for the settings of a rule.
func ruleFields() []field {
	return []field{
		{Name: "min-delay", Label: "Delay", Hint: "least time between two requests; empty: 1s"},
		{Name: "max-in-flight", Label: "At once", Hint: "most leases at a time; empty: 1"},
		{Name: "delay-factor", Label: "Delay factor", Hint: "wait this many times the duration of the last fetch; empty: 0"},
		{Name: "max-delay", Label: "Longest delay", Hint: "that the factor or the host can cause; empty: 1d and 1m"},
		{Name: "max-block", Label: "Longest block", Hint: "that failures of a host can cause; empty: 1d"},
		{Name: "queue", Label: "Queue", Hint: "that all hosts that match share; empty: each has its own"},
	}
}

// planRule sets a rule whole: a setting that the form leaves empty gets its default.
func (v *visit) planRule(f form) (*plan, error) {
	pattern := f.text("pattern")
	was, etag, err := v.rule(pattern)
	if err != nil {
		return nil, err
	}
	etag = cmp.Or(f.text("etag"), etag)
	f.Set("etag", etag) // of what is shown: a rule that changes in between is not overwritten
	settings := ruleSettings(was)
	p := &plan{command: []string{"waggle", "queue", "rule", "set", pattern, "--replace"}, fresh: v.Method == http.MethodGet}
	p.fields = []field{{Name: "pattern", Label: "Pattern", Kind: "text", Value: pattern, Required: true, Hint: "as example.com, *.example.com or *"}}
	rule, now := &pb.QueueRule{Pattern: pattern}, make(map[string]string)
	for _, one := range ruleFields() {
		one.Kind, one.Value = "text", settings[one.Name]
		if f.Has(one.Name) {
			one.Value = f.text(one.Name)
		}
		if now[one.Name] = one.Value; one.Value != "" {
			p.command = append(p.command, "--"+one.Name, one.Value)
		}
		p.fields = append(p.fields, one)
	}
	if pattern == "" {
		return p, nil
	}
	if rule.Queue = now["queue"]; now["max-in-flight"] != "" {
		n, err := strconv.ParseInt(now["max-in-flight"], 10, 32)
		if err != nil {
			return p, v.noNumber("max-in-flight", now["max-in-flight"])
		}
		rule.MaxInFlight = proto.Int32(int32(n))
	}
	if now["delay-factor"] != "" {
		n, err := strconv.ParseFloat(now["delay-factor"], 64)
		if err != nil {
			return p, v.noNumber("delay-factor", now["delay-factor"])
		}
		rule.DelayFactor = proto.Float64(n)
	}
	for name, into := range map[string]**durationpb.Duration{"min-delay": &rule.MinDelay, "max-delay": &rule.MaxDelay, "max-block": &rule.MaxBlock} {
		if *into, err = v.spanOf(name, now[name]); err != nil {
			return p, err
		}
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) {
		out := v.ruleChange(was, settings, now)
		if o.dry {
			return out, nil
		}
		_, err := v.c.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: rule, Reason: o.reason, Etag: etag})
		return out, err
	}
	return p, nil
}

func (v *visit) noNumber(name, text string) error {
	return status.Error(codes.InvalidArgument, v.text.say("%s: %q is no number.", name, text))
}

// ruleChange is what becomes of a rule: no call of the API tells it beforehand.
func (v *visit) ruleChange(was *pb.QueueRule, before, now map[string]string) *outcome {
	out := &outcome{Matched: 1}
	for _, one := range ruleFields() {
		if before[one.Name] != now[one.Name] {
			out.Lines = append(out.Lines, fmt.Sprintf("%s: %s → %s.", v.text.say(one.Label), cmp.Or(before[one.Name], v.text.say("default")), cmp.Or(now[one.Name], v.text.say("default"))))
		}
	}
	switch {
	case was == nil:
		out.Changed, out.Lines = 1, append(out.Lines, v.text.say("It is a new rule."))
	case len(out.Lines) > 0:
		out.Changed = 1
	}
	return out
}

func (v *visit) planUnrule(f form) (*plan, error) {
	pattern := f.text("pattern")
	was, etag, err := v.rule(pattern)
	if err != nil {
		return nil, err
	}
	etag = cmp.Or(f.text("etag"), etag)
	f.Set("etag", etag)
	p := &plan{note: v.text.say("What the rule %s matched gets the next shorter pattern, or the defaults.", pattern), command: []string{"waggle", "queue", "rule", "delete", pattern}}
	if was == nil {
		return p, status.Error(codes.NotFound, v.text.say("There is no rule %s.", pattern))
	}
	p.call = func(ctx context.Context, o order) (*outcome, error) {
		out := &outcome{Matched: 1, Changed: 1, Names: []string{pattern}}
		if o.dry {
			return out, nil
		}
		_, err := v.c.queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{Pattern: pattern, Reason: o.reason, Etag: etag})
		return out, err
	}
	return p, nil
}
