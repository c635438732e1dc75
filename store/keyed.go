package store

import (
	"context"
	"time"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
	"github.com/waggle-crawl/waggle/store/machine"
)

// This file has what is different with a backend that is keyed ([backend.Term]): shards come and go each by itself, and leases have
// locks.

// openKeyed makes the store of those shards that were acquired. The others come later: until then the backend refuses what is asked
// of them.
func (l *Loader) openKeyed(ctx context.Context, term backend.Term) (*Store, error) {
	if l.config.Now == nil {
		l.config.Now = term.Now
	}
	s, err := l.keyedStore(term.Shards)
	if err != nil {
		return nil, err
	}
	s.term = term
	for _, gain := range term.Gained {
		if err := s.gain(ctx, gain); err != nil {
			return nil, err
		}
	}
	close(l.opened)
	return s, nil
}

// keyedStore is the store that is opened or followed, without anything in it before.
func (l *Loader) keyedStore(shards int) (*Store, error) {
	l.making.Lock()
	defer l.making.Unlock()
	if l.store != nil && len(l.store.shards) == shards {
		return l.store, nil
	}
	s, err := newStore(shards, l.config)
	if err != nil {
		return nil, err
	}
	s.clock.keyed = true
	for _, sh := range s.shards {
		sh.Keeping, sh.Keyed = true, true
		sh.away.Store(true)
	}
	l.store = s
	return s, nil
}

// follow makes what takes a shard of another owner.
func (l *Loader) follow(of backend.Followed) (backend.Standby, error) {
	if l.config.Now == nil {
		l.config.Now = of.Now
	}
	s, err := l.keyedStore(of.Shards)
	if err != nil {
		return nil, err
	}
	one := &Loader{store: s, one: &machine.Shard{Number: of.Shard}}
	one.beginOne()
	s.followed.Store(of.Shard, one)
	return one, nil
}

// gained takes in a shard that was acquired later.
func (l *Loader) gained(ctx context.Context, gain backend.Gain) error {
	select {
	case <-l.opened:
		return l.store.gain(ctx, gain)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unlocked undoes what a group could not do to locks.
func (l *Loader) unlocked(shard int, locks []backend.Unlocked) (backend.Commit, error) {
	<-l.opened // there is no group before
	c := machine.Unlocked{Locks: make([]machine.UnlockedLock, len(locks))}
	for i := range locks {
		c.Locks[i] = machine.UnlockedLock(locks[i])
	}
	undone, err := l.store.shards[shard].perform(&c)
	if err != nil || !c.Changed {
		return nil, err
	}
	return undone.last, nil
}

// gain takes in a shard that was acquired: what was away, or what is in memory already. Locks may have been lost meanwhile.
func (s *Store) gain(ctx context.Context, gain backend.Gain) error {
	sh, acquired := s.shards[gain.Shard], time.Now()
	var l *Loader
	followed, isFollowed := s.followed.LoadAndDelete(gain.Shard)
	switch {
	case gain.Kept && isFollowed:
		l = followed.(*Loader) //nolint:forcetypeassert // as follow has stored it
	case gain.Kept:
		sh.begin()
		defer sh.end()
		sh.LocksLost()
		sh.Start(0, gain.Renewed)
		return nil
	default:
		sh.away.Store(true)
		l = &Loader{store: s, one: &machine.Shard{Number: gain.Shard}}
		l.beginOne()
		if err := s.backend.Load(ctx, gain.Shard, l); err != nil {
			return err
		}
	}
	if err := s.place(l, gain.Away+time.Since(acquired), gain.Renewed); err != nil {
		return err
	}
	l.collect()
	s.publish(dispatch.Hint{Kind: dispatch.HintResync})
	return nil
}

// beginOne drops what was loaded of a shard so far.
func (l *Loader) beginOne() {
	number := l.one.Number
	l.one, l.begun, l.tasks = machine.New(number), true, 0
	l.shards = make([]*machine.Loading, len(l.store.shards))
	l.shards[number] = machine.NewLoading(l.one)
	if number == bookShard {
		l.store.clearBooks()
	}
}

// clearBooks drops what is of no shard, of a store that is being opened.
func (s *Store) clearBooks() {
	s.rules.rules = btree.Map[string, dispatch.QueueRule]{}
	s.holds.holds = make(map[string]dispatch.Hold)
	s.kept, s.pending, s.sourceBook.held = btree.Map[string, *keptSource]{}, btree.Set[string]{}, btree.Set[string]{}
	s.collectors.byID, s.collectors.seen = btree.Map[string, *collector]{}, sorted.Set[*collector]{}
	s.access.bindings, s.access.ends, s.access.audit = btree.Map[string, *binding]{}, sorted.Set[*binding]{}, nil
	s.access.notices = make(map[string][]byte)
}

// place puts a shard that was loaded in the place of what there was. What it changes by that is in its next group; should that not come,
// the next load changes it again.
func (s *Store) place(l *Loader, away time.Duration, renewed time.Time) error {
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	loaded, number := l.one, l.one.Number
	involved := s.shards[:1]
	if number != bookShard {
		involved = []*shard{s.shards[bookShard], s.shards[number]}
		l.shards[number].Follow(s.shards[bookShard].Shard)
	}
	s.lockShards(involved)
	defer unlockShards(involved)
	loaded.Keyed = true
	if err := l.end(number); err != nil {
		return err
	}
	loaded.LocksLost()
	loaded.Undone = s.shards[number].Undone + 1 // who has an answer of before looks at it again
	loaded.Start(away, renewed)
	loaded.FollowHours(s.shards[number].Shard)
	s.shards[number].Shard, s.shards[number].last = loaded, nil
	s.shards[number].away.Store(false)
	if number == bookShard {
		s.rules.version, s.holds.version = loaded.Versions()
	}
	return nil
}
