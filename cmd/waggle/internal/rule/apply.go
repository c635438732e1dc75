package rule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// ruleApply is the command that brings rules to a file.
type ruleApply struct {
	record              cli.Record
	dryRun, prune, lift bool
	bound               cli.PruneBound

	etag string // of the rules with what was changed of them
	done int    // changes that were made
}

func newRuleApply(o *client.Options) *cobra.Command {
	a := &ruleApply{}
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Bring the rules to those of a file",
		Long: `Bring the rules to those of a file, as 'queue rule export' writes it; - is standard
input. Each rule of the file is set whole, as 'queue rule set' does: what it leaves
out has its default. Rules that the file does not have stay, or go with --prune,
unless an entry of the file was refused or it has no rules at all. Where more than
--prune-max of all rules would go, the file may have been cut short: nothing at all
is changed then, and the exit code is 1.

What is paused or denied now, and not in the file, stays paused or denied: nobody
writes an emergency stop into a file. With --lift the file decides that, too.

--dry-run says what would change of each rule. It does not foresee what only the
dispatcher can tell, as that a mapping would leave tasks behind (QUEUE_NOT_EMPTY).`,
		Example: `  waggle queue rule apply rules.jsonl --dry-run
  waggle queue rule apply rules.jsonl --prune --yes`,
		Args: cli.Exactly("the FILE (or - for standard input)"),
	}
	flags := cmd.Flags()
	flags.BoolVar(&a.dryRun, "dry-run", false, "change nothing; say what would become of each rule")
	flags.BoolVar(&a.prune, "prune", false, "delete the rules that the file does not have")
	flags.BoolVar(&a.lift, "lift", false, "hand out again what is paused or denied now and not in the file")
	a.bound.Register(flags, "patterns")
	a.record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		if err := a.bound.Check(a.prune, a.dryRun); err != nil {
			return err
		}
		return a.run(ctx, c, args[0], cmd.InOrStdin())
	})
	return cmd
}

func (a *ruleApply) run(ctx context.Context, c *client.Client, name string, stdin io.Reader) error {
	entries, err := readRules(ctx, name, stdin)
	switch {
	case a.prune && errors.Is(err, cli.ErrNothing):
		return fmt.Errorf("%w: nothing is deleted; `waggle queue rule delete` deletes one", err)
	case err != nil:
		return err
	}
	var made []*ruleChange
	for looks := 1; ; looks++ {
		there, etag, _, err := queueRules(ctx, c, 0)
		if err != nil {
			return rulesCutShort(c, a.done, err)
		}
		plan := newRulePlan(entries, there, a.lift, a.prune)
		plan.after(made)
		if refused := plan.tooMany(&a.bound, len(there)); refused != "" {
			return rulesCutShort(c, a.done, errors.New(refused))
		}
		if a.dryRun {
			return showRulePlan(c, plan, true)
		}
		a.etag = etag
		switch err = a.carryOut(ctx, c, plan); {
		case err == nil:
			return showRulePlan(c, plan, false)
		case !changedMeanwhile(err) || looks == ruleLooks:
			return rulesCutShort(c, a.done, err)
		}
		// Somebody else has changed the rules since the look.
		made = slices.DeleteFunc(plan.changes, func(c *ruleChange) bool { return !c.made })
	}
}

// readRules reads all rules of a file.
func readRules(ctx context.Context, name string, stdin io.Reader) (entries []ruleEntry, err error) {
	byPattern, byQueue := map[string]ruleEntry{}, map[string]ruleEntry{}
	err = cli.EachObject(ctx, name, stdin, func(object textfile.Entry) {
		entry := ruleEntry{line: object.Line, err: object.Err}
		if entry.err == nil {
			entry.rule, entry.err = parseRule(object.Text)
		}
		if entry.err == nil {
			pattern, queue := entry.rule.GetPattern(), settingsName(entry.rule)
			if before := byPattern[pattern]; before.rule != nil {
				entry.err = fmt.Errorf("line %d has the same pattern", before.line)
			} else if entry.err = agreeing(byQueue[queue], entry); entry.err == nil {
				byPattern[pattern], byQueue[queue] = entry, entry
			}
		}
		entries = append(entries, entry)
	})
	return entries, err
}

func parseRule(text []byte) (*pb.QueueRule, error) {
	rule := &pb.QueueRule{}
	if err := textfile.Unmarshal(text, rule); err != nil {
		return nil, fmt.Errorf("is no QueueRule: %w", err)
	}
	rule.Pattern, rule.Queue = queuePattern(rule.GetPattern()), canonical.QueueName(rule.GetQueue())
	return rule, server.CheckQueueRule(rule)
}

// agreeing refuses a rule for a queue of which another one of the file says otherwise: the dispatcher would bring each to
// the other, again and again.
func agreeing(first, entry ruleEntry) error {
	if first.rule == nil {
		return nil
	}
	before, after := wholeRule(first.rule), wholeRule(entry.rule)
	before.Queue, before.Reason, after.Queue, after.Reason = "", "", "", ""
	if len(changedSettings(before, after)) == 0 {
		return nil
	}
	return fmt.Errorf("line %d has other settings for the queue %s: rules for one queue must agree", first.line, settingsName(entry.rule))
}

// carryOut sets and deletes what the plan says. What the dispatcher refuses is tried again after the others: rules for one
// queue, and mappings, may be in each other's way.
func (a *ruleApply) carryOut(ctx context.Context, c *client.Client, plan *rulePlan) error {
	if err := inRounds(plan.changes, func(change *ruleChange) (bool, error) {
		if change.made || change.follows != "" || change.result != cli.ResultCreated && change.result != cli.ResultUpdated {
			return true, nil
		}
		rule := wholeRule(change.rule)
		reply, err := c.Queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{
			Rule: rule, By: a.record.By, Reason: cmp.Or(rule.GetReason(), a.record.Reason), Etag: a.etag,
		})
		return a.took(change, reply.GetEtag(), err)
	}); err != nil {
		return err
	}
	if plan.refused() > 0 {
		for _, change := range plan.changes {
			if change.result == cli.ResultDeleted && !change.made {
				change.result = cli.ResultKept
			}
		}
	}
	if err := inRounds(plan.changes, func(change *ruleChange) (bool, error) {
		if change.result != cli.ResultDeleted || change.made {
			return true, nil
		}
		reply, err := c.Queues.DeleteQueueRule(ctx, &pb.DeleteQueueRuleRequest{
			Pattern: change.rule.GetPattern(), By: a.record.By, Reason: a.record.Reason, Etag: a.etag,
		})
		return a.took(change, reply.GetEtag(), err)
	}); err != nil {
		return err
	}
	for _, change := range plan.changes {
		if change.err != "" && change.result != cli.ResultInvalid {
			change.result = cli.ResultRefused
		}
	}
	return nil
}

// took notes the answer to a change, and the etag of the rules with it; false: it was refused.
func (a *ruleApply) took(change *ruleChange, etag string, err error) (bool, error) {
	change.err = ""
	switch status.Code(err) {
	case codes.OK:
		a.done, a.etag, change.made = a.done+1, etag, true
		return true, nil
	case codes.InvalidArgument, codes.FailedPrecondition:
		change.err = client.RefusalText(err)
		return false, nil
	default:
		return false, err
	}
}

// inRounds does what can be done, and goes on with the rest while some of it could be.
func inRounds(changes []*ruleChange, do func(*ruleChange) (bool, error)) error {
	for {
		var left []*ruleChange
		for _, change := range changes {
			done, err := do(change)
			if err != nil {
				return err
			}
			if !done {
				left = append(left, change)
			}
		}
		if len(left) == 0 || len(left) == len(changes) {
			return nil
		}
		changes = left
	}
}

// rulesCutShort notes what an apply changed before err ended it.
func rulesCutShort(c *client.Client, done int, err error) error {
	if done > 0 {
		c.Note("stopped after %s; the same command again does the rest", human.Plural(done, "rule"))
	}
	return err
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

// results is what became of each rule, and how many became of each kind: REFUSED with what is invalid.
func (p *rulePlan) results() (rules []ruleResult, counts map[string]int) {
	rules = []ruleResult{}
	counts = map[string]int{cli.ResultCreated: 0, cli.ResultUpdated: 0, cli.ResultUnchanged: 0, cli.ResultRefused: 0, cli.ResultDeleted: 0}
	for _, c := range p.changes {
		switch {
		case c.result == cli.ResultInvalid:
			counts[cli.ResultRefused]++
		case c.follows == "" || c.result != cli.ResultUpdated: // else it is no rule of the file
			counts[c.result]++
		}
		result := ruleResult{
			Line: c.line, Pattern: c.rule.GetPattern(), Result: c.result, Changed: c.changed, Stays: c.stays, Follows: c.follows, Error: c.err,
		}
		if c.overwrites() {
			result.LastSet = &ruleNote{c.was.GetBy(), c.was.GetUpdateTime().AsTime(), c.was.GetReason()}
		}
		rules = append(rules, result)
	}
	return rules, counts
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
	rules, counts := p.results()
	shown := []string{cli.ResultCreated, cli.ResultUpdated, cli.ResultUnchanged, cli.ResultRefused}
	if p.prune {
		shown = append(shown, cli.ResultDeleted)
	}
	if err := c.ShowResults("rule", dryRun, counts, shown, rules, func() { writeRulePlan(c, p) }); err != nil {
		return err
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
	if counts[cli.ResultRefused] == 0 {
		return nil
	}
	if p.prune && p.refused() > 0 {
		c.Note("--prune deletes nothing, as not every entry was taken")
	}
	return cli.ErrReported
}

// writeRulePlan writes it for people: what begins or ends to be held first, then what is
// refused, so that neither is cut.
func writeRulePlan(c *client.Client, p *rulePlan) {
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
