package rule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

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
	record                   cli.Record
	dryRun, prune, lift, yes bool
	bound                    cli.PruneBound

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
	flags.BoolVar(&a.yes, "yes", false, "delete what --prune finds, without patterns being named one by one")
	a.bound.Register(flags)
	a.record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		if a.bound.Given && !a.prune {
			return cli.Usagef("--prune-max is the bound of --prune, which is missing")
		}
		if a.prune && !a.yes && !a.dryRun {
			return cli.Usagef("--prune deletes whatever the file does not have: look with --dry-run, then say --yes")
		}
		return a.run(ctx, c, args[0], cmd.InOrStdin())
	})
	return cmd
}

func (a *ruleApply) run(ctx context.Context, c *client.Client, name string, stdin io.Reader) error {
	in, err := cli.OpenInput(ctx, name, stdin)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	defer in.Close()
	entries, err := readRules(ctx, in)
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
func readRules(ctx context.Context, in *cli.Input) (entries []ruleEntry, err error) {
	byPattern, byQueue := map[string]ruleEntry{}, map[string]ruleEntry{}
	err = in.EachObject(ctx, func(object textfile.Entry) {
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
		if !change.calls() || change.result == cli.ResultDeleted {
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
