package operate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// RulesEtag stands for the queue rules as they are: their version, and a digest of their content.
// A store that was emptied or set back reaches a version again, but not the same digest.
type RulesEtag string

// AnyRules stands for the queue rules whatever they are.
const AnyRules RulesEtag = ""

// RulePage are some of the queue rules.
type RulePage struct {
	Rules []dispatch.QueueRule
	// Next is the pattern that the next page comes after; empty: there is none.
	Next string
	// Etag is that of all rules when the page was read, or none that they ever have.
	Etag RulesEtag
}

// SetQueueRule changes the rule of a pattern, or a new one with defaults, by change;
// grants after it follow it, in every shard. Other rules that map to the same queue take the
// settings of one that is replaced; a new one must agree with them. It returns the rule, and the
// etag of all rules with it. Errors: ErrInvalid, ErrQueueNotEmpty for a mapping that would move
// hosts away from a queue that holds their tasks, and ErrEtagMismatch when the rules have another
// etag than ifEtag.
func (o *Operator) SetQueueRule(
	ctx context.Context, pattern string, ifEtag RulesEtag, change func(*dispatch.QueueRule),
) (rule dispatch.QueueRule, etag RulesEtag, err error) {
	etag, err = o.changeRules(ctx, ifEtag, func(c *ruleChanges) (err error) {
		old, ok := c.book.ByPattern[pattern]
		if rule = old; !ok {
			rule = dispatch.QueueRule{Pattern: pattern, Settings: dispatch.DefaultQueueSettings()}
		}
		change(&rule)
		if err := rule.Validate(); err != nil {
			return err
		}
		if rule.Time = old.Time; ok && rule == old {
			return nil
		}
		if err := o.checkRule(ctx, c.book, rule); err != nil {
			return err
		}
		if rule.Time, err = o.Now(ctx); err != nil {
			return err
		}
		for _, changed := range append(c.book.Beside(rule), rule) {
			if err := c.put(ctx, o.store, changed.Pattern, &changed); err != nil {
				return fmt.Errorf("set queue rule %q: %w", changed.Pattern, err)
			}
			c.book.ByPattern[changed.Pattern] = changed
		}
		return nil
	})
	return rule, etag, err
}

// DeleteQueueRule removes the rule of a pattern and returns it, with the etag of all
// rules without it. Errors: ErrRuleNotFound, ErrQueueNotEmpty, and ErrEtagMismatch when
// the rules have another etag than ifEtag.
func (o *Operator) DeleteQueueRule(ctx context.Context, pattern string, ifEtag RulesEtag) (rule dispatch.QueueRule, etag RulesEtag, err error) {
	etag, err = o.changeRules(ctx, ifEtag, func(c *ruleChanges) error {
		var ok bool
		if rule, ok = c.book.ByPattern[pattern]; !ok {
			return fmt.Errorf("pattern %q: %w", pattern, dispatch.ErrRuleNotFound)
		}
		if err := o.checkMapping(ctx, c.book, pattern, rule.Queue, c.book.Above(pattern)); err != nil {
			return err
		}
		if err := c.put(ctx, o.store, pattern, nil); err != nil {
			return fmt.Errorf("delete queue rule %q: %w", pattern, err)
		}
		delete(c.book.ByPattern, pattern)
		return nil
	})
	return rule, etag, err
}

// ruleChanges are changes of the rules as they were read, one after the other.
type ruleChanges struct {
	book    *engine.RuleBook // byPattern has those that were made
	version int64            // with those that were made
}

// put keeps a rule, or deletes it if it is nil.
func (c *ruleChanges) put(ctx context.Context, store dispatch.Store, pattern string, rule *dispatch.QueueRule) error {
	version, err := store.PutRule(ctx, pattern, rule, c.version)
	if err == nil {
		c.version = version
	}
	return err
}

// rulesEtag is the etag of rules, in the order of their patterns, that have a version. To
// digest them takes a fraction of what the store took to read them.
func rulesEtag(rules []dispatch.QueueRule, version int64) (RulesEtag, error) {
	digest := sha256.New()
	encode := json.NewEncoder(digest)
	for _, rule := range rules {
		// Rules that were read may have another time zone.
		rule.Time = rule.Time.UTC()
		if err := encode.Encode(rule); err != nil {
			return "", fmt.Errorf("digest queue rule %q: %w", rule.Pattern, err)
		}
	}
	return RulesEtag(fmt.Sprintf("%d-%.12x", version, digest.Sum(nil))), nil
}

// changeRules reads the rules and changes them, if they have the etag ifEtag: all that
// is decided by the rules holds of those that are changed. Where somebody else changes
// them in between it reads and decides anew, but not for an ifEtag: who gave it has not
// seen what is there now. Of several changes the first may be made then.
func (o *Operator) changeRules(ctx context.Context, ifEtag RulesEtag, change func(*ruleChanges) error) (RulesEtag, error) {
	for range changeTries {
		rules, version, err := o.store.Rules(ctx)
		if err != nil {
			return "", fmt.Errorf("read queue rules: %w", err)
		}
		etag, err := rulesEtag(rules, version)
		if err != nil {
			return "", err
		}
		if ifEtag != AnyRules && ifEtag != etag {
			return "", fmt.Errorf("the queue rules have the etag %s, not %s: %w", etag, ifEtag, dispatch.ErrEtagMismatch)
		}
		changes := ruleChanges{book: engine.NewRuleBook(rules, version), version: version}
		err = change(&changes)
		if errors.Is(err, dispatch.ErrEtagMismatch) && ifEtag == AnyRules {
			continue
		}
		if err != nil {
			return "", err
		}
		etag, err = rulesEtag(changes.book.All(), changes.version)
		return etag, errors.Join(o.syncRules(ctx), err)
	}
	return "", fmt.Errorf("the queue rules were changed %d times in between: %w", changeTries, dispatch.ErrEtagMismatch)
}

// QueueRules lists rules by pattern, from the first after after.
func (o *Operator) QueueRules(ctx context.Context, after string, limit int) (RulePage, error) {
	all, version, err := o.store.Rules(ctx)
	if err != nil {
		return RulePage{}, fmt.Errorf("read queue rules: %w", err)
	}
	from := slices.IndexFunc(all, func(r dispatch.QueueRule) bool { return r.Pattern > after })
	if from < 0 {
		from = len(all)
	}
	etag, err := rulesEtag(all, version)
	if err != nil {
		return RulePage{}, err
	}
	page := RulePage{Rules: all[from:], Etag: etag}
	if len(page.Rules) > limit {
		page.Rules = page.Rules[:limit]
		page.Next = page.Rules[limit-1].Pattern
	}
	return page, nil
}

// checkRule refuses a rule that would contradict another one, or move hosts
// away from tasks.
func (o *Operator) checkRule(ctx context.Context, book *engine.RuleBook, rule dispatch.QueueRule) error {
	old, replaces := book.ByPattern[rule.Pattern]
	if !replaces && len(book.ByPattern) >= bounds.MaxQueueRules {
		return dispatch.Invalid("rule", rule.Pattern, fmt.Sprintf("would be one more than the limit of %d rules", bounds.MaxQueueRules))
	}
	if others := book.Beside(rule); len(others) > 0 && (!replaces || old.SettingsName() != rule.SettingsName()) {
		return dispatch.Invalid("queue", rule.SettingsName(), fmt.Sprintf("has other settings by the rule %q: rules for one queue must agree", others[0].Pattern))
	}
	was := old.Queue
	if !replaces {
		was = book.Above(rule.Pattern)
	}
	return o.checkMapping(ctx, book, rule.Pattern, was, rule.Queue)
}

// syncRules brings queues that wait for a gate that the rules may have lifted, or brought nearer, to where they now belong.
func (o *Operator) syncRules(ctx context.Context) error {
	return o.eachShard("place queues by the rules", func(shard int, page string) (string, error) {
		return o.store.SyncRules(ctx, shard, page, queuePage)
	})
}
