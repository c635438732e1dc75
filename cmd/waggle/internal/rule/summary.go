package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// ruleTotal is what became of rules, for programs.
type ruleTotal struct {
	Created   int          `json:"created"`
	Updated   int          `json:"updated"`
	Unchanged int          `json:"unchanged"`
	Refused   int          `json:"refused"`
	Deleted   int          `json:"deleted"`
	Rules     []ruleResult `json:"rules"`
}

// ruleResult is what became of one rule.
type ruleResult struct {
	Line    int      `json:"line,omitempty"`
	Pattern string   `json:"pattern"`
	Result  string   `json:"result"`
	Changed []string `json:"changed,omitempty"`
	Stays   string   `json:"stays,omitempty"`
	Follows string   `json:"follows,omitempty"`
	Error   string   `json:"error,omitempty"`
	// LastSet is, of a rule that is updated or deleted, who last changed it before.
	LastSet *ruleNote `json:"last_set,omitempty"`
}

// ruleNote is who changed a rule, when and why.
type ruleNote struct {
	By     string    `json:"by"`
	Time   time.Time `json:"time"`
	Reason string    `json:"reason,omitempty"`
}

func (p *rulePlan) total() *ruleTotal {
	t := &ruleTotal{Rules: []ruleResult{}}
	for _, c := range p.changes {
		switch c.result {
		case cli.ResultCreated:
			t.Created++
		case cli.ResultUpdated:
			if c.follows == "" { // else it is no rule of the file
				t.Updated++
			}
		case cli.ResultUnchanged:
			t.Unchanged++
		case cli.ResultDeleted:
			t.Deleted++
		case cli.ResultInvalid, cli.ResultRefused:
			t.Refused++
		}
		result := ruleResult{
			Line: c.line, Pattern: c.rule.GetPattern(), Result: c.result, Changed: c.changed, Stays: c.stays, Follows: c.follows, Error: c.err,
		}
		if c.overwrites() {
			result.LastSet = &ruleNote{c.was.GetBy(), c.was.GetUpdateTime().AsTime(), c.was.GetReason()}
		}
		t.Rules = append(t.Rules, result)
	}
	return t
}

// refused is how many entries of the file were not taken.
func (p *rulePlan) refused() (n int) {
	for _, c := range p.changes {
		if c.err != "" && c.line > 0 {
			n++
		}
	}
	return n
}

// showRulePlan writes what became of the rules, and fails where some were refused.
func showRulePlan(c *client.Client, p *rulePlan, dryRun bool) error {
	t := p.total()
	if c.JSON {
		if err := client.WriteJSON(c.Out, t); err != nil {
			return err
		}
	} else {
		writeRulePlan(c, p, t, dryRun)
	}
	kept := 0
	for _, change := range p.changes {
		if change.stays != "" {
			kept++
		}
	}
	if kept > 0 {
		c.Note("%s paused or denied as now, which the file does not say; --lift ends that", human.PluralVerb(kept, "rule", "stays", "stay"))
	}
	if t.Refused == 0 {
		return nil
	}
	if p.prune && p.refused() > 0 {
		c.Note("--prune deletes nothing, as not every entry was taken")
	}
	return cli.ErrReported
}

// writeRulePlan writes it for people: what begins or ends to be held first, then what is
// refused, so that neither is cut.
func writeRulePlan(c *client.Client, p *rulePlan, t *ruleTotal, dryRun bool) {
	if dryRun {
		fmt.Fprintln(c.Out, "nothing is changed; this is what would become of the rules")
	}
	rows := human.NewTable("RESULT", "PATTERN", "CHANGES", "LAST SET")
	shown := slices.DeleteFunc(slices.Clone(p.changes), func(c *ruleChange) bool { return c.result == cli.ResultUnchanged && c.stays == "" })
	slices.SortStableFunc(shown, func(a, b *ruleChange) int { return cmp.Compare(a.rank(), b.rank()) })
	for _, change := range shown[:min(len(shown), 5*client.ShownResults)] {
		last := ""
		if change.overwrites() || change.result == cli.ResultKept {
			last = strings.TrimLeft(setText(c.Now, change.was), ", ")
		}
		rows.Row(change.result, change.rule.GetPattern(), change.text(), last)
	}
	rows.Write(c.Out, "")
	if more := len(shown) - len(rows.Rows); more > 0 {
		fmt.Fprintf(c.Out, "and %s more; --output json has all\n", human.Count(more))
	}
	verb := ""
	if dryRun {
		verb = "would be "
	}
	text := fmt.Sprintf("%s: %s%s created, %s updated, %s unchanged, %s refused", human.Plural(t.Created+t.Updated+t.Unchanged+t.Refused, "rule"),
		verb, human.Count(t.Created), human.Count(t.Updated), human.Count(t.Unchanged), human.Count(t.Refused))
	if p.prune {
		text += ", " + human.Count(t.Deleted) + " deleted"
	}
	fmt.Fprintln(c.Out, text)
}

// rank is in which order changes are shown.
func (c *ruleChange) rank() int {
	switch {
	case c.lifts(), c.stays != "", c.holds() && !c.was.GetPaused() && !c.was.GetDeny():
		return 0
	case c.err != "":
		return 1
	default:
		return 2
	}
}

// text is the change in a line.
func (c *ruleChange) text() string {
	var parts []string
	switch {
	case c.err != "" && c.line > 0:
		return fmt.Sprintf("line %d: %s", c.line, c.err)
	case c.err != "":
		return c.err
	case c.result == cli.ResultUpdated:
		parts = c.changed
	case c.result != cli.ResultUnchanged:
		parts = []string{ruleText(c.rule)}
	}
	if c.stays != "" {
		parts = append(parts, "stays "+c.stays)
	}
	if c.outOf != "" {
		parts = append(parts, "no longer held by "+c.outOf)
	}
	if c.follows != "" {
		parts = append(parts, "as "+c.follows+", which is for the same queue")
	}
	return strings.Join(parts, ", ")
}
