package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// RulesEtag stands for the queue rules as they are: their version, and a digest of all that
// they say. Rules that begin anew in a store that was emptied, or was set back, reach a
// version again, but with it the etag of before only as the same rules.
type RulesEtag string

// AnyRules stands for the queue rules whatever they are.
const AnyRules RulesEtag = ""

// RulePage are some of the queue rules.
type RulePage struct {
	Rules []QueueRule
	// Next is the pattern that the next page comes after; empty: there is none.
	Next string
	// Etag is that of all rules when the page was read, or none that they ever have.
	Etag RulesEtag
}

// SetQueueRule sets the rule of a pattern, replacing an earlier one, as ChangeQueueRule
// does. With AnyRules it is a [RuleHoldsError] when the earlier one pauses or denies, and
// the new one does not: who gave no etag need not have seen it.
func (d *Dispatcher) SetQueueRule(ctx context.Context, rule QueueRule, ifEtag RulesEtag) (QueueRule, RulesEtag, error) {
	return d.ChangeQueueRule(ctx, rule.Pattern, ifEtag, func(kept *QueueRule) error {
		if ends := kept.endedBy(&rule); ends != nil && ifEtag == AnyRules {
			return &RuleHoldsError{Gate: *ends}
		}
		*kept = rule
		return nil
	})
}

// ChangeQueueRule changes the rule of a pattern, or a new one with defaults, by change;
// grants after it follow it, in every shard. Errors: ErrInvalid, ErrQueueNotEmpty
// for a mapping that would move hosts away from a queue that holds their tasks, and
// ErrEtagMismatch when the rules have another etag than ifEtag.
// A rule that denies also ends the leases of the queues it matches. Other rules
// that map to the same queue take the settings of one that is replaced; a new one
// must agree with them. It answers the rule, and the etag of all rules with it.
// Who began a pause or a denial that stands, why and when stays with it.
func (d *Dispatcher) ChangeQueueRule(ctx context.Context, pattern string, ifEtag RulesEtag, change func(*QueueRule) error) (rule QueueRule, etag RulesEtag, err error) {
	etag, err = d.changeRules(ctx, ifEtag, func(c *ruleChanges) (err error) {
		old, ok := c.book.byPattern[pattern]
		if rule = old; !ok {
			rule = QueueRule{Pattern: pattern, Settings: DefaultQueueSettings()}
		}
		if err := change(&rule); err != nil {
			return err
		}
		if err := rule.Validate(); err != nil {
			return err
		}
		if err := d.checkRule(ctx, c.book, rule); err != nil {
			return err
		}
		if rule.Time, err = d.store.Now(ctx); err != nil {
			return fmt.Errorf("read the store's clock: %w", err)
		}
		rule.keepHolds(old, c.book.bySettings[rule.SettingsName()])
		for _, changed := range append(c.book.beside(rule), rule) {
			if err := c.made(d.store.SetRule(ctx, changed, c.version)); err != nil {
				return fmt.Errorf("set queue rule %q: %w", changed.Pattern, err)
			}
			c.book.byPattern[changed.Pattern] = changed
		}
		return nil
	})
	if err != nil {
		return rule, "", err
	}
	if rule.Settings.Deny {
		return rule, etag, d.endDenied(ctx)
	}
	return rule, etag, nil
}

// DeleteQueueRule removes the rule of a pattern and returns it, with the etag of all
// rules without it. Errors: ErrRuleNotFound, ErrQueueNotEmpty, and ErrEtagMismatch when
// the rules have another etag than ifEtag.
func (d *Dispatcher) DeleteQueueRule(ctx context.Context, pattern string, ifEtag RulesEtag) (rule QueueRule, etag RulesEtag, err error) {
	etag, err = d.changeRules(ctx, ifEtag, func(c *ruleChanges) error {
		var ok bool
		if rule, ok = c.book.byPattern[pattern]; !ok {
			return fmt.Errorf("pattern %q: %w", pattern, ErrRuleNotFound)
		}
		if err := d.checkMapping(ctx, c.book, pattern, rule.Queue, c.book.above(pattern)); err != nil {
			return err
		}
		if err := c.made(d.store.DeleteRule(ctx, pattern, c.version)); err != nil {
			return fmt.Errorf("delete queue rule %q: %w", pattern, err)
		}
		delete(c.book.byPattern, pattern)
		return nil
	})
	return rule, etag, err
}

// ruleChanges are changes of the rules as they were read, one after the other.
type ruleChanges struct {
	book    *ruleBook // byPattern has those that were made
	version int64     // with those that were made
}

// made notes a change that the store answered.
func (c *ruleChanges) made(version int64, err error) error {
	if err == nil {
		c.version = version
	}
	return err
}

// rulesEtag is the etag of rules, in the order of their patterns, that have a version. To
// digest them takes a fraction of what the store took to read them.
func rulesEtag(rules []QueueRule, version int64) (RulesEtag, error) {
	digest := sha256.New()
	encode := json.NewEncoder(digest)
	for _, rule := range rules {
		// Rules that were read may tell their times by another clock face.
		for _, at := range []*time.Time{&rule.Time, &rule.Pause.Time, &rule.Denial.Time} {
			*at = at.UTC()
		}
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
func (d *Dispatcher) changeRules(ctx context.Context, ifEtag RulesEtag, change func(*ruleChanges) error) (RulesEtag, error) {
	for range mutateTries {
		rules, version, err := d.store.Rules(ctx)
		if err != nil {
			return "", fmt.Errorf("read queue rules: %w", err)
		}
		etag, err := rulesEtag(rules, version)
		if err != nil {
			return "", err
		}
		if ifEtag != AnyRules && ifEtag != etag {
			return "", fmt.Errorf("the queue rules have the etag %s, not %s: %w", etag, ifEtag, ErrEtagMismatch)
		}
		changes := ruleChanges{book: newRuleBook(rules, version), version: version}
		err = change(&changes)
		if errors.Is(err, ErrEtagMismatch) && ifEtag == AnyRules {
			continue
		}
		if err != nil {
			return "", err
		}
		etag, err = rulesEtag(changes.book.all(), changes.version)
		return etag, errors.Join(d.rulesChanged(ctx), err)
	}
	return "", fmt.Errorf("the queue rules were changed %d times in between: %w", mutateTries, ErrEtagMismatch)
}

// QueueRules lists rules by pattern, from the first after after.
func (d *Dispatcher) QueueRules(ctx context.Context, after string, limit int) (RulePage, error) {
	all, version, err := d.store.Rules(ctx)
	if err != nil {
		return RulePage{}, fmt.Errorf("read queue rules: %w", err)
	}
	from, _ := slices.BinarySearchFunc(all, after, func(r QueueRule, after string) int {
		if r.Pattern <= after {
			return -1
		}
		return 1
	})
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

// Validate reports, as a [FieldError], the first setting out of its range.
func (r *QueueRule) Validate() error {
	s := r.Settings
	switch {
	case !validPattern(r.Pattern):
		return Invalid("pattern", r.Pattern, fmt.Sprintf("must be a queue name, \"*.suffix\" or \"*\", of 1 to %d bytes in lower case", MaxQueueLength))
	case s.MinDelay < 0 || s.MinDelay > MaxMinDelay:
		return Invalid("min_delay", s.MinDelay, fmt.Sprintf("must be 0 to %v", MaxMinDelay))
	case s.MaxInFlight < 1 || s.MaxInFlight > MaxInFlightLimit:
		return Invalid("max_in_flight", s.MaxInFlight, fmt.Sprintf("must be 1 to %d", MaxInFlightLimit))
	case !(s.DelayFactor >= 0 && s.DelayFactor <= MaxDelayFactor):
		return Invalid("delay_factor", s.DelayFactor, fmt.Sprintf("must be 0 to %d", MaxDelayFactor))
	case s.MaxDelay < 0 || s.MaxDelay > MaxMinDelay:
		return Invalid("max_delay", s.MaxDelay, fmt.Sprintf("must be 1ms to %v", MaxMinDelay))
	case s.MaxDelay > 0 && s.MaxDelay < s.MinDelay:
		return Invalid("max_delay", s.MaxDelay, fmt.Sprintf("must be min_delay, %v, or more: requests are never nearer than that", s.MinDelay))
	case s.MaxBlock < time.Second || s.MaxBlock > LongestMaxBlock:
		return Invalid("max_block", s.MaxBlock, fmt.Sprintf("must be 1s to %v", LongestMaxBlock))
	case r.Queue != "" && strings.Contains(r.Queue, "*"):
		return Invalid("queue", r.Queue, "must be the name of one queue")
	}
	return nil
}

func validPattern(pattern string) bool {
	if pattern == "*" {
		return true
	}
	name := strings.TrimPrefix(pattern, "*.")
	return name != "" && len(pattern) <= MaxQueueLength && !strings.Contains(name, "*") && name == strings.ToLower(name)
}

// checkRule refuses a rule that would contradict another one, or move hosts
// away from tasks.
func (d *Dispatcher) checkRule(ctx context.Context, book *ruleBook, rule QueueRule) error {
	old, replaces := book.byPattern[rule.Pattern]
	if !replaces && len(book.byPattern) >= MaxQueueRules {
		return Invalid("rule", rule.Pattern, fmt.Sprintf("would be one more than the limit of %d rules", MaxQueueRules))
	}
	if others := book.beside(rule); len(others) > 0 && (!replaces || old.SettingsName() != rule.SettingsName()) {
		return Invalid("queue", rule.SettingsName(), fmt.Sprintf("has other settings by the rule %q: rules for one queue must agree", others[0].Pattern))
	}
	was := old.Queue
	if !replaces {
		was = book.above(rule.Pattern)
	}
	return d.checkMapping(ctx, book, rule.Pattern, was, rule.Queue)
}

// beside are the other rules for the queue that rule is for, by pattern, with
// rule's settings in place of the different ones that they have.
func (b *ruleBook) beside(rule QueueRule) []QueueRule {
	var others []QueueRule
	for _, other := range b.byPattern {
		if other.Pattern != rule.Pattern && other.SettingsName() == rule.SettingsName() && other.Settings != rule.Settings {
			pattern, queue := other.Pattern, other.Queue
			other = rule
			other.Pattern, other.Queue = pattern, queue
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b QueueRule) int { return strings.Compare(a.Pattern, b.Pattern) })
	return others
}

// all are the rules by pattern.
func (b *ruleBook) all() []QueueRule {
	return slices.SortedFunc(maps.Values(b.byPattern), func(a, b QueueRule) int { return strings.Compare(a.Pattern, b.Pattern) })
}

// rulesChanged brings every shard to the rules and tells every dispatcher.
func (d *Dispatcher) rulesChanged(ctx context.Context) error {
	d.catalog.dropRules()
	if err := d.syncRules(ctx); err != nil {
		return err
	}
	if err := d.store.Publish(ctx, Hint{Kind: HintRules}); err != nil {
		return fmt.Errorf("tell of queue rules: %w", err)
	}
	return nil
}

// syncRules brings shards to the rules of shard 0, and queues that wait for a gate
// that the rules may have lifted, or brought nearer, to where they now belong.
func (d *Dispatcher) syncRules(ctx context.Context) error {
	for shard := range d.store.Shards() {
		for page := ""; ; {
			next, err := d.store.SyncRules(ctx, shard, page, queuePage)
			if err != nil {
				return fmt.Errorf("bring shard %d to the queue rules: %w", shard, err)
			}
			if page = next; page == "" {
				break
			}
		}
	}
	return nil
}
