package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
)

// End makes the shard of what was loaded, at that instant. ruleOf finds the queue rules; keeping: what commands will change is noted.
func (l *Loading) End(now time.Time, ruleOf func(pattern string) (dispatch.QueueRule, bool), keeping bool) error {
	l.s.At(now)
	if err := l.place(ruleOf); err != nil {
		return err
	}
	l.s.Keeping = keeping
	return nil
}

// Follow takes settings, holds on queues and their versions from the first shard of the store: a change of all shards takes effect
// with that, and this one may have been away. What differs is in the next group.
func (l *Loading) Follow(first *Shard) {
	s := l.s
	l.follows = true
	rules := make(map[string]string, len(first.settings))
	for name, rule := range first.settings {
		rules[name] = rule.Pattern
	}
	differ(s, codec.Setting, l.rules, rules)
	differ(s, codec.Held, s.held, first.held)
	l.rules, s.held = rules, maps.Clone(first.held)
	s.rulesVersion, s.holdsVersion = first.rulesVersion, first.holdsVersion
}

// differ notes the items that two maps have otherwise.
func differ[T comparable](s *Shard, kind codec.Kind, has, wants map[string]T) {
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		if old, ok := has[name]; !ok || old != wants[name] {
			s.noted = append(s.noted, Noted{Kind: kind, Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if _, ok := wants[name]; !ok {
			s.noted = append(s.noted, Noted{Kind: kind, Name: name})
		}
	}
}

// Versions are those of the queue rules and the holds that the shard has.
func (s *Shard) Versions() (rules, holds int64) { return s.rulesVersion, s.holdsVersion }

// place makes what follows from the items of a shard: who names whom, counts, orders, and the places of lanes and queues.
func (l *Loading) place(ruleOf func(pattern string) (dispatch.QueueRule, bool)) error {
	s := l.s
	for name, pattern := range l.rules {
		rule, ok := ruleOf(pattern)
		if !ok {
			return fmt.Errorf("the settings %s are of the rule %s, which is missing", name, pattern)
		}
		s.settings[name] = rule
	}
	for _, place := range [...]func() error{l.placeSources, l.placeLanes, l.placeQueues, l.placeHolders, l.placeTasks, l.placeGrants} {
		if err := place(); err != nil {
			return err
		}
	}
	for q := range s.queueNames.From(0) {
		s.touchQueue(q.Value.queue)
	}
	s.placeTouched()
	s.touched, s.touchedQueues = nil, nil // with room for all there are
	clear(s.soonest)
	if !l.follows {
		s.encoder.head(nil) // it is kept
	}
	return nil
}

func (l *Loading) placeSources() error {
	s := l.s
	for _, name := range slices.Sorted(maps.Keys(l.sources)) {
		src := l.sources[name]
		if !src.written {
			return fmt.Errorf("there is no source %s", name)
		}
		src.heldUntil = until(src.gate.HeldUntil)
		src.counts[dispatch.StateDone] += src.forgottenDone
		src.pool = s.poolNamed(src.gate.Pool)
		if src.forgotten {
			continue
		}
		s.sources.add(src)
		if src.forgetAt != 0 {
			s.forgetSources.Insert(src.forgetAt, src)
		}
	}
	s.counts[dispatch.StateDone] += s.forgottenDone
	return nil
}

func (l *Loading) placeLanes() error {
	s := l.s
	for _, number := range slices.Sorted(maps.Keys(l.lanes)) {
		found := l.lanes[number]
		if !found.written {
			return fmt.Errorf("there is no lane %d", number)
		}
		if l.dropped[found] {
			continue
		}
		s.addLane(found)
	}
	return nil
}

func (l *Loading) placeQueues() error {
	s := l.s
	for _, name := range slices.Sorted(maps.Keys(l.queues)) {
		q := l.queues[name]
		q.written = true
		s.addQueue(q)
	}
	return nil
}

func (l *Loading) placeHolders() error {
	for h := range l.s.holders.all() {
		h.written = true
		l.s.forgetMarks.Insert(h.markedUntil, h)
	}
	return nil
}

// placeTasks puts the tasks where they stand. The order decides nothing: each place is one in an ordered set.
func (l *Loading) placeTasks() error {
	s := l.s
	for r := range s.records.all() {
		if r.lane == nil || !r.lane.written {
			return fmt.Errorf("task %x is in no lane", r.hash)
		}
		r.written = true
		if err := l.placeTask(r); err != nil {
			return fmt.Errorf("task %s: %w", r.id(), err)
		}
	}
	return l.placeEnded()
}

// placeEnded counts the ended tasks.
func (l *Loading) placeEnded() error {
	var r record
	for place := range l.s.ended.places() {
		e := l.s.ended.at(place)
		if e.hash == (taskHash{}) {
			continue
		}
		if e.lane == nil || !e.lane.written {
			return fmt.Errorf("task %x is in no lane", e.hash)
		}
		e.written = true
		e.record(&r).counted = dispatch.StateUnknown
		l.s.count(&r, dispatch.StateDone)
		l.pace(&r)
	}
	return nil
}

func (l *Loading) placeTask(r *record) error {
	s := l.s
	if r.listedAt != 0 {
		r.lane.listed.Insert(r.listedAt, r)
		r.lane.lastListed = max(r.lane.lastListed, r.listedAt)
	}
	switch {
	case r.state > dispatch.StateCanceled:
		return fmt.Errorf("its state is %d", r.state)
	case r.lease != nil:
		if err := l.placeLease(r); err != nil {
			return err
		}
	case r.waiting() && r.score != 0: // an orphan
		s.enterLeases(r, r.score)
		s.count(r, r.visibleState(s.now))
	case r.waiting():
		s.enterWaiting(r)
	case r.state.Settled():
		if r.shrunk {
			r.content = ""
		}
		s.count(r, r.state)
		if at := r.forgetAt(); at != 0 {
			s.forgetSet(r).Insert(at, r)
		}
	default:
		return fmt.Errorf("its state is %d", r.state)
	}
	l.pace(r)
	return nil
}

// pace gives the queue of a task the next grant that the task has. Where the delay was cut meanwhile, since its rule became
// shorter or the clock was set back, placing the queue cuts it again.
func (l *Loading) pace(r *record) {
	if q := l.s.queues.get(text(r.lane.queueName)); q != nil || r.paced > l.s.now {
		q = l.s.queueOf(r.lane)
		q.nextGrant = max(q.nextGrant, r.paced)
	}
}

func (l *Loading) placeLease(r *record) error {
	s, note := l.s, r.lease.note
	if !note.written {
		return fmt.Errorf("there is no grant %d", note.number)
	}
	holder := s.holder(note.holder.collector)
	note.holder = holder
	r.lease.heldAt = len(holder.held)
	holder.held = append(holder.held, r)
	note.entries = append(note.entries, grantEntry{record: r, fence: r.lease.fence})
	note.left++
	s.enterLeases(r, r.lease.deadline)
	s.count(r, dispatch.StateLeased)
	s.queueOf(r.lane).inFlight++
	return nil
}

func (l *Loading) placeGrants() error {
	s := l.s
	for number, note := range l.grants {
		if note.left == 0 {
			return fmt.Errorf("grant %d has no lease", number)
		}
		slices.SortFunc(note.entries, func(a, b grantEntry) int { return cmp.Compare(a.fence, b.fence) })
		s.grants.add(note)
	}
	return nil
}

// poolNamed finds a pool, or makes it.
func (s *Shard) poolNamed(name string) *pool {
	found := s.pools[name]
	if found == nil {
		found = &pool{name: name}
		s.pools[name] = found
	}
	return found
}
