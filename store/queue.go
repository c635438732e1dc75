package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/machine"
)

// QueuesNamed implements [dispatch.Queues].
func (s *Store) QueuesNamed(ctx context.Context, names []string) ([]*dispatch.Queue, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	queues := make([]*dispatch.Queue, len(names))
	for i, name := range names {
		err := s.shardOfName(name).read(ctx, func(sh *machine.Shard) {
			queues[i] = sh.QueueNamed(name)
		})
		if err != nil {
			return nil, err
		}
	}
	return queues, nil
}

// QueueHours implements [dispatch.Queues].
func (s *Store) QueueHours(ctx context.Context, names []string) ([]dispatch.QueueHour, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	hours := make([]dispatch.QueueHour, len(names))
	for i, name := range names {
		err := s.shardOfName(name).read(ctx, func(sh *machine.Shard) { hours[i] = sh.QueueHour(name) })
		if err != nil {
			return nil, err
		}
	}
	return hours, nil
}

// ListQueues implements [dispatch.Queues].
func (s *Store) ListQueues(ctx context.Context, suffix, after string, limit int) ([]*dispatch.Queue, error) {
	var found []*dispatch.Queue
	err := s.readAll(ctx, func(sh *machine.Shard) { found = append(found, sh.ListQueues(suffix, after, limit)...) })
	slices.SortFunc(found, func(a, b *dispatch.Queue) int {
		return strings.Compare(machine.ReverseLabels(a.Name), machine.ReverseLabels(b.Name))
	})
	return found[:min(len(found), limit)], err
}

// ListPools implements [dispatch.Queues].
func (s *Store) ListPools(ctx context.Context, name, after string, limit int) ([]dispatch.Pool, error) {
	var sums pools
	err := s.readAll(ctx, sums.add)
	var known []dispatch.Pool
	sums.Ascend(after, func(pool string, sum dispatch.Pool) bool {
		if sum.Open+sum.Waiting > 0 && pool > after && (name == "" || pool == name) && len(known) < limit {
			known = append(known, sum)
		}
		return len(known) < limit
	})
	return known, err
}

// pools are those of some shards together, by name.
type pools struct {
	btree.Map[string, dispatch.Pool]
}

func (all *pools) add(sh *machine.Shard) {
	sh.EachPool(func(p dispatch.Pool) {
		sum, _ := all.Get(p.Name)
		all.Set(p.Name, dispatch.Pool{
			Name: p.Name, Open: sum.Open + p.Open, Waiting: sum.Waiting + p.Waiting, Grantable: sum.Grantable + p.Grantable,
			OldestGrantable: max(sum.OldestGrantable, p.OldestGrantable), OldestLease: max(sum.OldestLease, p.OldestLease),
		})
	})
}

// ruleBook keeps the queue rules. Each shard has the settings they file.
type ruleBook struct {
	mu      sync.Mutex // orders changes of the rules, and guards what follows together with all shards
	rules   btree.Map[string, dispatch.QueueRule]
	version int64
	last    seen // the last change
}

// PutRule implements [dispatch.Queues].
func (s *Store) PutRule(ctx context.Context, pattern string, rule *dispatch.QueueRule, ifVersion int64) (int64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	version, last, err := s.putRule(pattern, rule, ifVersion)
	if err != nil {
		return version, err
	}
	return version, s.durable(ctx, last) // without the mutex: a snapshot needs it, and the group may be kept by that
}

func (s *Store) putRule(pattern string, rule *dispatch.QueueRule, ifVersion int64) (version int64, last seen, err error) {
	b := &s.rules
	b.mu.Lock()
	defer b.mu.Unlock()
	old, replaced := b.rules.Get(pattern)
	asLeft := !replaced
	if rule != nil {
		asLeft = replaced && sameRule(old, *rule)
	}
	switch done, err := b.changed(ifVersion, asLeft); {
	case err != nil:
		return b.version, last, err
	case done:
		return b.version, b.last, nil
	}
	switch {
	case rule == nil && !replaced:
		return 0, last, fmt.Errorf("%w: %.300q", dispatch.ErrRuleNotFound, pattern)
	case rule != nil && !replaced && b.rules.Len() >= bounds.MaxQueueRules:
		return 0, last, fmt.Errorf("%w: there are %d queue rules, the limit is %d", dispatch.ErrInvalid, b.rules.Len(), bounds.MaxQueueRules)
	}
	last, err = s.performAll(machine.SmallGroup, true, func() { s.setRule(pattern, rule) })
	if err != nil {
		return 0, last, err
	}
	b.last = last.part(bookShard)
	return b.version, last, nil
}

// setRule sets or removes a queue rule, under a new version in every shard. A claim notices closed queues when it
// picks them; SyncRules reschedules opened ones.
func (s *Store) setRule(pattern string, rule *dispatch.QueueRule) {
	b := &s.rules
	old, replaced := b.rules.Get(pattern)
	s.changeNamed(codec.Rule, pattern)
	if rule == nil {
		b.rules.Delete(pattern)
	} else {
		b.rules.Set(pattern, *rule)
	}
	b.version++
	s.publish(dispatch.Hint{Kind: dispatch.HintRules})
	for _, sh := range s.shards {
		if replaced {
			sh.Unfile(old, b.other)
		}
		sh.TakeRule(b.version, rule)
	}
}

// other is the first rule that files under a name of settings.
func (b *ruleBook) other(name string) (found dispatch.QueueRule, ok bool) {
	b.rules.Scan(func(_ string, rule dispatch.QueueRule) bool {
		if ok = rule.SettingsName() == name; ok {
			found = rule
		}
		return !ok
	})
	return found, ok
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

// Rules implements [dispatch.Queues].
func (s *Store) Rules(ctx context.Context) ([]dispatch.QueueRule, int64, error) {
	if err := s.usable(ctx); err != nil {
		return nil, 0, err
	}
	s.rules.mu.Lock()
	rules, version, last := s.rules.rules.Values(), s.rules.version, s.rules.last
	s.rules.mu.Unlock()
	return rules, version, s.durable(ctx, last)
}

// SyncRules implements [dispatch.Queues]. All shards always have the same rules and holds here, so it only reschedules
// queues. A page is the version of rules and holds for which the pass began, and the last queue.
func (s *Store) SyncRules(ctx context.Context, shard int, page string, limit int) (string, error) {
	c := machine.Sync{First: page == "", Limit: max(limit, 1)}
	if !c.First {
		var err error
		if c.After, err = parsePage(page, &c.Version); err != nil {
			return "", err
		}
	}
	err := s.doIn(ctx, shard, &c)
	return c.Next, err
}
