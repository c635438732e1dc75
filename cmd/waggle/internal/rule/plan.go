package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// ruleEntry is a rule of a file, or what is wrong with it.
type ruleEntry struct {
	line int
	rule *pb.QueueRule // nil: it could not be read
	err  error
}

// ruleChange is what becomes of one rule.
type ruleChange struct {
	line    int           // of the file; 0: it is not there
	rule    *pb.QueueRule // whole, as it is to be; of one that goes, as it is
	was     *pb.QueueRule // whole; nil: there is none
	result  string
	changed []string // settings, with what they were and will be
	stays   string   // what of it the file does not say and stays: paused, denied
	follows string   // the pattern of the rule by which it changes, as both are for one queue
	outOf   string   // the pattern of a shorter rule that holds its queues until it is there
	err     string
	made    bool
}

// overwrites reports whether what somebody has set is no longer there after the change.
func (c *ruleChange) overwrites() bool {
	return c.result == cli.ResultUpdated || c.result == cli.ResultDeleted
}

// lifts reports whether the change hands out again what was held.
func (c *ruleChange) lifts() bool {
	if c.outOf != "" {
		return true
	}
	gone := c.result == cli.ResultDeleted
	return c.was.GetPaused() && (gone || !c.rule.GetPaused()) || c.was.GetDeny() && (gone || !c.rule.GetDeny())
}

// holds reports whether the rule holds its queues, or comes to.
func (c *ruleChange) holds() bool { return c.rule.GetPaused() || c.rule.GetDeny() }

// rulePlan brings the rules that there are to those of a file.
type rulePlan struct {
	lift, prune bool

	file    map[string]*pb.QueueRule   // by pattern
	there   map[string]*pb.QueueRule   // whole, by pattern
	byQueue map[string][]*pb.QueueRule // whole, by what they set
	changes []*ruleChange
}

// newRulePlan makes a plan. What is paused or denied and not so in the file stays so
// without lift: what somebody has stopped in a hurry is in no file.
func newRulePlan(entries []ruleEntry, there []*pb.QueueRule, lift, prune bool) *rulePlan {
	p := &rulePlan{
		lift: lift, prune: prune,
		file: map[string]*pb.QueueRule{}, there: map[string]*pb.QueueRule{}, byQueue: map[string][]*pb.QueueRule{},
	}
	for _, rule := range there {
		whole := wholeRule(rule)
		p.there[rule.GetPattern()] = whole
		p.byQueue[settingsName(whole)] = append(p.byQueue[settingsName(whole)], whole)
	}
	for _, entry := range entries {
		if entry.err == nil { // what is refused is not what the file says
			p.file[entry.rule.GetPattern()] = entry.rule
		}
	}
	refused := false
	for _, entry := range entries {
		change := p.changeTo(entry)
		refused = refused || change.err != ""
		p.changes = append(p.changes, change)
	}
	for _, rule := range there {
		if _, has := p.file[rule.GetPattern()]; !has {
			p.absent(p.there[rule.GetPattern()], refused)
		}
	}
	// What holds less comes last, and what is gone after that.
	slices.SortStableFunc(p.changes, func(a, b *ruleChange) int { return cmp.Compare(a.turn(), b.turn()) })
	return p
}

// after tells first what was made of earlier plans, which is as the file says by now.
func (p *rulePlan) after(made []*ruleChange) {
	by := map[string]bool{}
	for _, change := range made {
		by[change.rule.GetPattern()] = true
	}
	p.changes = slices.Concat(made, slices.DeleteFunc(p.changes, func(c *ruleChange) bool {
		return c.result == cli.ResultUnchanged && by[c.rule.GetPattern()]
	}))
}

func (c *ruleChange) turn() int {
	switch {
	case c.result == cli.ResultDeleted:
		return 2
	case c.lifts():
		return 1
	default:
		return 0
	}
}

// settingsName is what a rule sets: the queue that it maps to, else its pattern.
func settingsName(rule *pb.QueueRule) string { return cmp.Or(rule.GetQueue(), rule.GetPattern()) }

// changeTo is what becomes of a rule that the file has.
func (p *rulePlan) changeTo(entry ruleEntry) *ruleChange {
	if entry.err != nil {
		return &ruleChange{line: entry.line, rule: entry.rule, result: cli.ResultInvalid, err: entry.err.Error()}
	}
	change := &ruleChange{line: entry.line, rule: wholeRule(entry.rule), was: p.there[entry.rule.GetPattern()]}
	if !p.lift {
		p.keep(change)
	}
	if above := p.above(change); above != nil && (above.GetPaused() && !change.rule.GetPaused() || above.GetDeny() && !change.rule.GetDeny()) {
		change.outOf = above.GetPattern()
	}
	change.changed = changedSettings(change.was, change.rule)
	switch {
	case change.was == nil:
		change.result, change.changed = cli.ResultCreated, nil
	case len(change.changed) == 0:
		change.result = cli.ResultUnchanged
	default:
		change.result = cli.ResultUpdated
	}
	return change
}

// keep lets a rule hold what is held now by it, by the others for its queue, or by the
// shorter one that it comes before, unless the file says that one too.
func (p *rulePlan) keep(change *ruleChange) {
	holders := append([]*pb.QueueRule{change.was}, p.byQueue[settingsName(change.rule)]...)
	if above := p.above(change); heldWord(above) != heldWord(p.file[above.GetPattern()]) {
		holders = append(holders, above)
	}
	var stays []string
	for _, held := range holders {
		if held.GetPaused() && !change.rule.GetPaused() {
			*change.rule.Paused, stays = true, append(stays, "paused")
		}
		if held.GetDeny() && !change.rule.GetDeny() {
			*change.rule.Deny, stays = true, append(stays, "denied")
		}
	}
	change.stays = strings.Join(stays, " and ")
}

// above is the rule that holds now for what a new one is to match; nil: there is none, or
// the rule is not new. A pause of everything is none: it holds whatever comes before it.
func (p *rulePlan) above(change *ruleChange) *pb.QueueRule {
	if change.was != nil {
		return nil
	}
	for _, pattern := range shorterPatterns(change.rule.GetPattern()) {
		if rule := p.there[pattern]; rule != nil {
			if pattern == "*" && !rule.GetDeny() {
				return nil
			}
			return rule
		}
	}
	return nil
}

// shorterPatterns are those that match all that a pattern does, the longest first.
func shorterPatterns(pattern string) (shorter []string) {
	name := strings.TrimPrefix(pattern, "*.")
	if port := strings.LastIndexByte(name, ':'); port > strings.LastIndexByte(name, ']') {
		name = name[:port]
		shorter = append(shorter, name)
	}
	for _, rest, more := strings.Cut(name, "."); more; _, rest, more = strings.Cut(rest, ".") {
		shorter = append(shorter, "*."+rest)
	}
	if pattern != "*" {
		shorter = append(shorter, "*")
	}
	return shorter
}

// absent is what becomes of a rule that the file does not have.
func (p *rulePlan) absent(rule *pb.QueueRule, refused bool) {
	change := &ruleChange{rule: rule, was: rule, result: cli.ResultDeleted}
	switch {
	case p.prune && refused:
		return
	case p.prune && !p.lift && change.holds():
		change.result = cli.ResultKept
		change.stays = heldWord(rule)
	case !p.prune:
		if !p.follow(change) {
			return
		}
	}
	p.changes = append(p.changes, change)
}

// follow makes a rule one that takes the settings of another of its queue, which the file has; false: there is none.
func (p *rulePlan) follow(change *ruleChange) bool {
	for _, leader := range p.changes {
		if leader.result != cli.ResultUpdated || leader.follows != "" || settingsName(leader.rule) != settingsName(change.was) ||
			settingsName(leader.was) != settingsName(change.was) {
			continue
		}
		change.rule = wholeRule(leader.rule)
		change.rule.Pattern, change.rule.Queue, change.rule.Reason = change.was.GetPattern(), change.was.GetQueue(), ""
		if change.changed = changedSettings(change.was, change.rule); len(change.changed) > 0 {
			change.result, change.follows = cli.ResultUpdated, leader.rule.GetPattern()
			return true
		}
	}
	return false
}

// tooMany says why the plan deletes too many of the rules that there are.
func (p *rulePlan) tooMany(bound *cli.PruneBound, there int) string {
	var gone []string
	for _, change := range p.changes {
		if change.result == cli.ResultDeleted {
			gone = append(gone, change.rule.GetPattern())
			if change.made {
				there++ // it is there no longer
			}
		}
	}
	return bound.Refusal(len(gone), there, "rule", gone)
}

// changedSettings are the settings in which a rule differs from what it was. A reason that
// is not given, or is that of a pause or denial, is none that differs.
func changedSettings(was, rule *pb.QueueRule) (changed []string) {
	for _, setting := range []struct {
		name string
		text func(*pb.QueueRule) string
	}{
		{"min_delay", func(r *pb.QueueRule) string { return human.Duration(r.GetMinDelay().AsDuration()) }},
		{"max_in_flight", func(r *pb.QueueRule) string { return strconv.Itoa(int(r.GetMaxInFlight())) }},
		{"delay_factor", func(r *pb.QueueRule) string { return strconv.FormatFloat(r.GetDelayFactor(), 'g', -1, 64) }},
		{"max_delay", func(r *pb.QueueRule) string { return human.DurationOr(r.GetMaxDelay(), human.None) }},
		{"max_block", func(r *pb.QueueRule) string { return human.Duration(r.GetMaxBlock().AsDuration()) }},
		{"queue", func(r *pb.QueueRule) string { return cmp.Or(r.GetQueue(), human.None) }},
		{"paused", func(r *pb.QueueRule) string { return strconv.FormatBool(r.GetPaused()) }},
		{"deny", func(r *pb.QueueRule) string { return strconv.FormatBool(r.GetDeny()) }},
		{"reason", func(r *pb.QueueRule) string { return cmp.Or(r.GetReason(), human.None) }},
	} {
		before, after := setting.text(was), setting.text(rule)
		if before == after || setting.name == "reason" && (rule.GetReason() == "" || slices.Contains(heldReasons(was), rule.GetReason())) {
			continue
		}
		changed = append(changed, fmt.Sprintf("%s %s -> %s", setting.name, before, after))
	}
	return changed
}

// heldReasons are why a rule holds its queues.
func heldReasons(rule *pb.QueueRule) (reasons []string) {
	for _, gate := range rule.GetGates() {
		reasons = append(reasons, gate.GetReason())
	}
	return reasons
}
