package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
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

// settings are what a queue's rules come to, as of a version of the rules.
type settings struct {
	dispatch.QueueSettings
	// paced are the settings with the delay that the host asks for.
	paced        dispatch.QueueSettings
	version      int64
	name         string
	longestDelay int64
	filed        dispatch.QueueRule
	pausedBy     dispatch.QueueRule
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
				set.QueueSettings, set.name = filed.Settings, name
				set.filed, set.pausedBy = filed, filed
				break
			}
		}
		if all, ok := s.settings[everyQueue]; ok && all.Settings.Paused && !set.Paused {
			// The emergency stop holds whatever longer patterns say.
			set.Paused, set.pausedBy = true, all
		}
	}
	return set
}

// PutRule implements [dispatch.Queues].
func (s *Store) PutRule(ctx context.Context, pattern string, rule *dispatch.QueueRule, ifVersion int64) (int64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	b := &s.rules
	b.mu.Lock()
	defer b.mu.Unlock()
	old, replaced := b.rules.Get(pattern)
	asLeft := !replaced
	if rule != nil {
		asLeft = replaced && sameRule(old, *rule)
	}
	if done, err := b.changed(ifVersion, asLeft); done || err != nil {
		return b.version, err
	}
	switch {
	case rule == nil && !replaced:
		return 0, fmt.Errorf("%w: %.300q", dispatch.ErrRuleNotFound, pattern)
	case rule == nil:
		b.rules.Delete(pattern)
	case !replaced && b.rules.Len() >= dispatch.MaxQueueRules:
		return 0, fmt.Errorf("%w: there are %d queue rules, the limit is %d", dispatch.ErrInvalid, b.rules.Len(), dispatch.MaxQueueRules)
	default:
		b.rules.Set(pattern, *rule)
	}
	s.changeRules(func(sh *shard) {
		if replaced {
			sh.unfile(old)
		}
		if rule != nil {
			sh.settings[rule.SettingsName()] = *rule
		}
	})
	return b.version, nil
}

// changed reports whether a change of the rules at ifVersion has been made already: they
// are one version further, and as it leaves them. ErrEtagMismatch where they have
// another version for another reason.
func (b *ruleBook) changed(ifVersion int64, asLeft bool) (bool, error) {
	switch {
	case b.version == ifVersion:
		return false, nil
	case b.version == ifVersion+1 && asLeft:
		return true, nil
	}
	return false, fmt.Errorf("%w: the queue rules have version %d, not %d", dispatch.ErrEtagMismatch, b.version, ifVersion)
}

// sameRule reports whether two rules are one, set at one time.
func sameRule(a, b dispatch.QueueRule) bool {
	same := a.Time.Equal(b.Time) && a.Pause.Time.Equal(b.Pause.Time) && a.Denial.Time.Equal(b.Denial.Time)
	a.Time, a.Pause.Time, a.Denial.Time = b.Time, b.Pause.Time, b.Denial.Time
	return same && a == b
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
	if filed, ok := s.settings[name]; ok && filed.Pattern == rule.Pattern {
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
	var from rulesPage
	if page != "" {
		if from, err = parseRulesPage(page); err != nil {
			return "", err
		}
	}
	return sh.placeGated(from, max(limit, 1)), nil
}

// rulesPage is how far a shard has come to a version of the rules, once that has
// begun: to a queue of a pool. The version is 0 where it had come to it before.
type rulesPage struct {
	begun   bool
	version int64
	pool    string
	score   int64
	queue   string
}

func parseRulesPage(page string) (rulesPage, error) {
	parts := strings.SplitN(page, "/", 4)
	if len(parts) < 4 {
		return rulesPage{}, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
	}
	version, err1 := strconv.ParseInt(parts[0], 10, 64)
	score, err2 := strconv.ParseInt(parts[2], 10, 64)
	if err1 != nil || err2 != nil {
		return rulesPage{}, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
	}
	return rulesPage{true, version, parts[1], score, parts[3]}, nil
}

func (p *rulesPage) String() string {
	return fmt.Sprintf("%d/%s/%d/%s", p.version, p.pool, p.score, p.queue)
}

// placeGated places at most limit queues anew, from the page on: those that wait for
// a gate without an end, and once after each change of the rules those whose delay
// lasts, which may be shorter now. It answers the next page.
func (s *shard) placeGated(p rulesPage, limit int) (next string) {
	s.begin()
	defer s.end()
	if !p.begun && s.placedRules != s.rulesVersion {
		p.version = s.rulesVersion
	}
	lowest := s.now + 1
	if p.version == 0 {
		lowest = infinite
	}
	for _, name := range slices.Sorted(maps.Keys(s.pools)) {
		if name < p.pool {
			continue
		}
		score, queue := lowest, ""
		if name == p.pool && p.begun {
			score, queue = p.score, p.queue
		}
		for e := range s.pools[name].wait.after(score, queue) {
			if limit == 0 {
				return p.String()
			}
			if q := e.value.queue; e.score == infinite || q.nextGrant > s.now {
				s.touchQueue(q)
				limit--
			}
			p.pool, p.score, p.queue = name, e.score, e.value.queue.name
		}
	}
	if p.version == s.rulesVersion {
		s.placedRules = p.version
	}
	return ""
}
