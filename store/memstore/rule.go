package memstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
)

// everyQueue is the pattern that matches every queue.
const everyQueue = "*"

// ruleBook keeps the queue rules. Each shard has the settings they file.
type ruleBook struct {
	mu      sync.Mutex // guards what follows, and orders changes of the rules
	rules   btree.Map[string, dispatch.QueueRule]
	version int64
}

// filedSettings is a rule's settings as a shard files them under the rule's
// settings name.
type filedSettings struct {
	rule dispatch.QueueRule
}

func (f filedSettings) gate(kind dispatch.GateKind) dispatch.Gate {
	return dispatch.Gate{Kind: kind, By: f.rule.By, Reason: f.rule.Reason, Time: f.rule.Time}
}

// settings are what a queue's rules come to, as of a version of the rules.
type settings struct {
	dispatch.QueueSettings
	// paced are the settings with the delay that the host asks for.
	paced        dispatch.QueueSettings
	version      int64
	name         string
	longestDelay int64
	filed        filedSettings
	pausedBy     filedSettings
}

// settingsOf resolves the settings of a queue.
func (s *shard) settingsOf(q *queue) *settings {
	if q.settings.version != s.rulesVersion {
		q.settings = s.resolve(q.name)
		q.settings.pace(q.asked)
	}
	return &q.settings
}

// pace takes in what the host asks for.
func (set *settings) pace(asked time.Duration) {
	set.paced = set.Paced(asked)
	set.longestDelay = span(set.paced.LongestDelay())
}

func (s *shard) resolve(queueName string) settings {
	set := settings{QueueSettings: dispatch.DefaultQueueSettings(), version: s.rulesVersion}
	if len(s.settings) > 0 {
		for _, name := range dispatch.SettingsNames(queueName) {
			if filed, ok := s.settings[name]; ok {
				set.QueueSettings, set.name = filed.rule.Settings, name
				set.filed, set.pausedBy = filed, filed
				break
			}
		}
		if all, ok := s.settings[everyQueue]; ok && all.rule.Settings.Paused && !set.Paused {
			// The emergency stop holds whatever longer patterns say.
			set.Paused, set.pausedBy = true, all
		}
	}
	return set
}

// SetRule implements [dispatch.Queues].
func (s *Store) SetRule(ctx context.Context, rule dispatch.QueueRule) (int64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	b := &s.rules
	b.mu.Lock()
	defer b.mu.Unlock()
	old, replaced := b.rules.Get(rule.Pattern)
	if !replaced && b.rules.Len() >= dispatch.MaxQueueRules {
		return 0, fmt.Errorf("%w: there are %d queue rules, the limit is %d", dispatch.ErrInvalid, b.rules.Len(), dispatch.MaxQueueRules)
	}
	b.rules.Set(rule.Pattern, rule)
	s.changeRules(func(sh *shard) {
		if replaced {
			sh.unfile(old)
		}
		sh.settings[rule.SettingsName()] = filedSettings{rule: rule}
	})
	return b.version, nil
}

// DeleteRule implements [dispatch.Queues].
func (s *Store) DeleteRule(ctx context.Context, pattern string) (int64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	b := &s.rules
	b.mu.Lock()
	defer b.mu.Unlock()
	old, ok := b.rules.Delete(pattern)
	if !ok {
		return 0, fmt.Errorf("%w: %.300q", dispatch.ErrRuleNotFound, pattern)
	}
	s.changeRules(func(sh *shard) { sh.unfile(old) })
	return b.version, nil
}

// changeRules makes a change under a new version in every shard. Queues that it
// closes are found closed when they are picked; SyncRules finds those that it
// opens.
func (s *Store) changeRules(change func(*shard)) {
	s.rules.version++
	for _, sh := range s.shards {
		sh.begin()
		change(sh)
		sh.rulesVersion = s.rules.version
		sh.end()
	}
}

// unfile removes the settings of a rule, if they are what is filed.
func (s *shard) unfile(rule dispatch.QueueRule) {
	name := rule.SettingsName()
	if filed, ok := s.settings[name]; ok && filed.rule.Pattern == rule.Pattern {
		delete(s.settings, name)
	}
}

// Rules implements [dispatch.Queues].
func (s *Store) Rules(ctx context.Context) ([]dispatch.QueueRule, int64, error) {
	if err := s.usable(ctx); err != nil {
		return nil, 0, err
	}
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	return s.rules.rules.Values(), s.rules.version, nil
}

// SyncRules implements [dispatch.Queues]. The rules of all shards are always
// the same here; it puts the queues that wait without an end where they belong.
func (s *Store) SyncRules(ctx context.Context, shard int, page string, limit int) (string, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	sh, err := s.shard(shard)
	if err != nil {
		return "", err
	}
	if page != "" && !strings.Contains(page, "/") {
		return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
	}
	return sh.placeGated(page, limit), nil
}

// placeGated places at most limit queues that wait for a gate without an end
// anew, from page "<pool>/<queue>" on, and answers the next page.
func (s *shard) placeGated(page string, limit int) (next string) {
	s.begin()
	defer s.end()
	poolName, after, _ := strings.Cut(page, "/")
	names := make([]string, 0, len(s.pools))
	for name := range s.pools {
		if name >= poolName {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	limit = max(limit, 1)
	var gated []*queuePool
	for _, name := range names {
		begin := ""
		if name == poolName && after != "" {
			begin = after + "\x00"
		}
		s.pools[name].wait.from(infinite, begin, func(e entry[*queuePool]) bool {
			gated = append(gated, e.value)
			return len(gated) < limit
		})
		if len(gated) >= limit {
			last := gated[len(gated)-1]
			next = last.pool.name + "/" + last.queue.name
			break
		}
	}
	for _, qp := range gated {
		s.touchQueue(qp.queue)
	}
	return next
}
