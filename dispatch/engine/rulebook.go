package engine

import (
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// RuleBook is a version of all queue rules.
type RuleBook struct {
	Version    int64
	ByPattern  map[string]dispatch.QueueRule
	BySettings map[string]dispatch.QueueRule // by QueueRule.SettingsName
}

// NewRuleBook makes the book of a version of the rules.
func NewRuleBook(rules []dispatch.QueueRule, version int64) *RuleBook {
	b := &RuleBook{
		Version:    version,
		ByPattern:  make(map[string]dispatch.QueueRule, len(rules)),
		BySettings: make(map[string]dispatch.QueueRule, len(rules)),
	}
	for _, rule := range rules {
		b.ByPattern[rule.Pattern] = rule
		b.BySettings[rule.SettingsName()] = rule
	}
	return b
}

// QueueOf is the queue for tasks of host, by the longest rule that matches.
func (b *RuleBook) QueueOf(host string) string {
	if rule, _ := longestMatch(b.ByPattern, host); rule.Queue != "" {
		return rule.Queue
	}
	return host
}

// Settings are the settings of a queue, and their name; empty if they are the defaults.
func (b *RuleBook) Settings(queue string) (dispatch.QueueSettings, string) {
	if rule, ok := longestMatch(b.BySettings, queue); ok {
		return rule.Settings, rule.SettingsName()
	}
	return dispatch.DefaultQueueSettings(), ""
}

// NewQueue is a queue as it would be created.
func (b *RuleBook) NewQueue(name string) *dispatch.Queue {
	q := &dispatch.Queue{Name: name}
	q.Settings, q.SettingsName = b.Settings(name)
	return q
}

// Names reports whether a rule has exactly this queue.
func (b *RuleBook) Names(queue string) bool {
	_, ok := b.BySettings[queue]
	return ok
}

// MatchedBy reports whether pattern would be the longest match of host.
func (b *RuleBook) MatchedBy(host, pattern string) bool {
	for _, name := range dispatch.SettingsNames(host) {
		if name == pattern {
			return true
		}
		if _, ok := b.ByPattern[name]; ok {
			return false
		}
	}
	return false
}

// Above is the queue for the hosts of pattern by the next shorter rule; "" = each host has its own.
func (b *RuleBook) Above(pattern string) string {
	for _, name := range dispatch.SettingsNames(pattern) {
		if rule, ok := b.ByPattern[name]; ok && name != pattern {
			return rule.Queue
		}
	}
	return ""
}

// Beside are the other rules for rule's queue with different settings, by pattern, changed to rule's settings.
func (b *RuleBook) Beside(rule dispatch.QueueRule) []dispatch.QueueRule {
	var others []dispatch.QueueRule
	for _, other := range b.ByPattern {
		if other.Pattern != rule.Pattern && other.SettingsName() == rule.SettingsName() && other.Settings != rule.Settings {
			pattern, queue := other.Pattern, other.Queue
			other = rule
			other.Pattern, other.Queue = pattern, queue
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b dispatch.QueueRule) int { return strings.Compare(a.Pattern, b.Pattern) })
	return others
}

// All are the rules by pattern.
func (b *RuleBook) All() []dispatch.QueueRule {
	return slices.SortedFunc(maps.Values(b.ByPattern), func(a, b dispatch.QueueRule) int { return strings.Compare(a.Pattern, b.Pattern) })
}

// longestMatch finds the entry of queue by the most specific of its [dispatch.SettingsNames].
func longestMatch[V any](filed map[string]V, queue string) (found V, ok bool) {
	if len(filed) == 0 {
		return found, false
	}
	if found, ok = filed[queue]; ok {
		return found, true
	}
	host := queue
	if strings.Contains(queue, ":") {
		if h, _, err := net.SplitHostPort(queue); err == nil {
			host = h
			if found, ok = filed[host]; ok {
				return found, true
			}
		}
	}
	var name [bounds.MaxQueueLength + 2]byte
	for {
		_, rest, more := strings.Cut(host, ".")
		if !more {
			break
		}
		if found, ok = filed[string(append(append(name[:0], "*."...), rest...))]; ok {
			return found, true
		}
		host = rest
	}
	found, ok = filed["*"]
	return found, ok
}
