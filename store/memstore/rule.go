package memstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// ruleBook keeps the queue rules. Each shard has the settings they file.
type ruleBook struct {
	mu      sync.Mutex // guards what follows, and orders changes of the rules
	rules   btree.Map[string, dispatch.QueueRule]
	version int64
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
	case !replaced && b.rules.Len() >= bounds.MaxQueueRules:
		return 0, fmt.Errorf("%w: there are %d queue rules, the limit is %d", dispatch.ErrInvalid, b.rules.Len(), bounds.MaxQueueRules)
	default:
		b.rules.Set(pattern, *rule)
	}
	s.changeRules(func(sh *shard) {
		if replaced {
			sh.unfile(old, b)
		}
		if rule != nil {
			sh.settings[rule.SettingsName()] = *rule
		}
	})
	return b.version, nil
}

// changed reports whether a change of the rules at ifVersion was made earlier: the version is one higher, and the rules
// equal the result. ErrEtagMismatch if they have another version for another reason.
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
	same := a.Time.Equal(b.Time)
	a.Time = b.Time
	return same && a == b
}

// changeRules makes a change under a new version in every shard. A claim notices closed queues when it picks them;
// SyncRules reschedules opened ones.
func (s *Store) changeRules(change func(*shard)) {
	s.rules.version++
	for _, sh := range s.shards {
		sh.run(func(sh *shard) {
			change(sh)
			sh.rulesVersion = s.rules.version
		})
	}
}

// unfile removes the settings of a rule, if they are what is filed. The first of the other rules that file under that name
// takes its place.
func (s *shard) unfile(rule dispatch.QueueRule, b *ruleBook) {
	name := rule.SettingsName()
	if filed, ok := s.settings[name]; !ok || filed.Pattern != rule.Pattern {
		return
	}
	delete(s.settings, name)
	b.rules.Scan(func(_ string, other dispatch.QueueRule) bool {
		if other.SettingsName() != name {
			return true
		}
		s.settings[name] = other
		return false
	})
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

// SyncRules implements [dispatch.Queues]. All shards always have the same rules and holds here, so it only reschedules
// queues. A page is the version of rules and holds for which the pass began, and the last queue.
func (s *Store) SyncRules(ctx context.Context, shard int, page string, limit int) (string, error) {
	var version int64
	var after string
	if page != "" {
		var err error
		if after, err = parsePage(page, &version); err != nil {
			return "", err
		}
	}
	sh, err := s.enter(ctx, shard)
	if err != nil {
		return "", err
	}
	defer sh.end()
	if page == "" {
		if version = sh.settingsVersion(); sh.placed == version {
			return "", nil
		}
	}
	last, more := sh.placeAll(after, max(limit, 1))
	if more {
		return fmt.Sprintf("%d/%s", version, last), nil
	}
	if version == sh.settingsVersion() {
		sh.placed = version
	}
	return "", nil
}

// placeAll places at most limit queues with waiting tasks anew, by their reversed names from after on. It answers the
// last, and whether there are more.
func (s *shard) placeAll(after string, limit int) (last string, more bool) {
	last = after
	s.queueNames.Ascend(after, func(reversed string, q *queue) bool {
		switch {
		case q.waiting == 0 || reversed == after:
		case limit == 0:
			more = true
		default:
			s.touchQueue(q)
			limit--
			last = reversed
		}
		return !more
	})
	return last, more
}
