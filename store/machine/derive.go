package machine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
)

// Warm puts what was loaded in its place, but for lanes, queues, settings and holds: what is left for [Loading.End] grows with the lanes
// and the queues, not with the tasks. [Loading.Placed] does it for what is read or removed from then on. At the first call no item may
// name one that is missing.
//
// Called again, it follows the time: tasks that have become due are ready, and queues that nothing keeps any more are forgotten. A task
// that was due stays ready if the clock is set back, as in a shard that is in use.
func (l *Loading) Warm(now time.Time) error {
	if err := l.place(now); err != nil {
		return err
	}
	for found := range l.s.lanes.all() {
		l.s.promote(found, math.MaxInt)
	}
	var left []*queue
	for q := range l.s.queues.all() {
		if l.unused(q) {
			left = append(left, q)
		}
	}
	for _, q := range left {
		l.s.removeQueue(q)
	}
	return nil
}

// Placed ends a group of that instant: if the shard is warm, what the group has changed is placed. After an error there is no shard.
func (l *Loading) Placed(now time.Time) error {
	if !l.warm {
		return nil
	}
	return l.place(now)
}

// End makes the shard of what was loaded, at that instant. ruleOf finds the queue rules; keeping: what commands will change is noted.
func (l *Loading) End(now time.Time, ruleOf func(pattern string) (dispatch.QueueRule, bool), keeping bool) error {
	if err := l.Warm(now); err != nil {
		return err
	}
	s := l.s
	for name, pattern := range l.rules {
		rule, ok := ruleOf(pattern)
		if !ok {
			return fmt.Errorf("the settings %s are of the rule %s, which is missing", name, pattern)
		}
		s.settings[name] = rule
	}
	for found := range s.lanes.all() {
		if found.ready.Len()+found.later.Len() > 0 {
			s.touch(found)
		}
	}
	for q := range s.queues.all() {
		s.touchQueue(q)
	}
	s.placeTouched()
	s.touched, s.touchedQueues = nil, nil // with room for all there are
	clear(s.soonest)
	if !l.follows {
		s.encoder.head(nil) // it is kept
	}
	s.Keeping = keeping
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

// unplaced are items of a kind that are to be placed. An item of a group may name one that stands behind it.
type unplaced[K kept] []K

// add adds an item, once.
func (u *unplaced[K]) add(k K) {
	if m := k.marked(); !m.noted {
		m.noted = true
		*u = append(*u, k)
	}
}

// each places those that were not removed since.
func (u *unplaced[K]) each(place func(K) error) error {
	for _, k := range *u {
		if m := k.marked(); m.noted {
			m.noted = false
			if err := place(k); err != nil {
				return err
			}
		}
	}
	clear(*u)
	*u = (*u)[:0]
	return nil
}

// place puts what was read since in its place: first what others name. The order among tasks decides nothing: each place is one in an
// ordered set.
func (l *Loading) place(now time.Time) error {
	l.s.At(now)
	slices.SortFunc(l.changedLanes, func(a, b *lane) int { return cmp.Compare(a.number, b.number) })
	if err := errors.Join(l.changedSources.each(l.placeSource), l.changedLanes.each(l.placeLane)); err != nil {
		return err
	}
	for found, n := range l.apart {
		if err := l.loadApart(found, n); err != nil {
			return err
		}
	}
	clear(l.apart)
	tasks := func() error { return l.changedTasks.each(l.placeTask) }
	if !l.warm {
		tasks = l.placeLoaded
	}
	if err := tasks(); err != nil {
		return err
	}
	l.warm = true
	return l.changedGrants.each(l.placeGrant)
}

func (l *Loading) placeSource(src *source) error {
	s := l.s
	src.heldUntil, src.pool = until(src.gate.HeldUntil), s.poolNamed(src.gate.Pool)
	if src.forgotten {
		return nil
	}
	s.sources.set(src)
	if src.forgetAt != 0 {
		s.forgetSources.Insert(src.forgetAt, src)
	}
	return nil
}

func (l *Loading) placeLane(found *lane) error {
	s := l.s
	switch {
	case !found.source.written:
		return fmt.Errorf("there is no source %s", found.source.name)
	case l.dropped[found]:
		if s.lanes.get(found.key()) == found {
			s.dropLane(found)
		}
	case !found.written:
		s.addLane(found)
	}
	found.written = true
	return nil
}

// placeLoaded places all tasks.
func (l *Loading) placeLoaded() error {
	for r := range l.s.records.all() {
		if err := l.placeTask(r); err != nil {
			return err
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
		l.s.countOver(e.lane, 1)
		l.pace(&r)
	}
	return nil
}

// placeTask puts a task where it stands.
func (l *Loading) placeTask(r *record) error {
	if r.lane == nil || !r.lane.written {
		return fmt.Errorf("task %x is in no lane", r.hash)
	}
	r.written = true
	l.pace(r)
	if l.over(r) {
		l.s.count(r, dispatch.StateDone)
		l.end(r)
		l.s.countOver(r.lane, 1)
		return nil
	}
	if r.listedAt != 0 {
		r.lane.listed.Insert(r.listedAt, r)
		r.lane.lastListed = max(r.lane.lastListed, r.listedAt)
	}
	if err := l.enter(r); err != nil {
		return fmt.Errorf("task %s: %w", r.id(), err)
	}
	return nil
}

// enter puts a task into its set, and counts it.
func (l *Loading) enter(r *record) error {
	s := l.s
	switch {
	case r.state > dispatch.StateCanceled:
		return fmt.Errorf("its state is %d", r.state)
	case r.lease != nil:
		return l.enterLease(r)
	case r.waiting() && r.score != 0: // an orphan, which was due when it was to be granted
		s.enterLeases(r, r.score)
		s.count(r, dispatch.StateReady)
	case r.waiting():
		s.enterLane(r)
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
	return nil
}

func (l *Loading) enterLease(r *record) error {
	s, note := l.s, r.lease.note
	if note.holder == nil {
		return fmt.Errorf("there is no grant %d", note.number)
	}
	holder := s.holder(note.holder.collector)
	note.holder = holder
	r.lease.heldAt = len(holder.held)
	holder.held = append(holder.held, r)
	note.entries = append(note.entries, grantEntry{record: r, fence: r.lease.fence})
	note.left++
	l.changedGrants.add(note)
	s.enterLeases(r, r.lease.deadline)
	s.count(r, dispatch.StateLeased)
	s.queueOf(r.lane).inFlight++
	return nil
}

// takeOut takes a task out of where placeTask has put it. The next grant of its queue stays.
func (l *Loading) takeOut(r *record) {
	s := l.s
	if r.listedAt != 0 {
		r.lane.listed.Remove(r.listedAt, r)
	}
	s.leave(r)
	s.count(r, dispatch.StateUnknown)
	if at := r.forgetAt(); at != 0 {
		s.forgetSet(r).Remove(at, r)
	}
	if r.lease == nil {
		return
	}
	note := r.lease.note
	i := slices.IndexFunc(note.entries, func(e grantEntry) bool { return e.record == r })
	note.entries = slices.Delete(note.entries, i, i+1)
	note.left--
	l.changedGrants.add(note)
	s.release(r)
}

// pace gives the queue of a task the next grant that the task has. Where the delay was cut meanwhile, since its rule became
// shorter or the clock was set back, placing the queue cuts it again.
//
// A grant that is given back lowers the next grant of its tasks. In a shard that is warm that of the queue stays: only a walk would find
// the highest one of the other tasks. So the queue may be late, at most by the delay that was given back.
func (l *Loading) pace(r *record) {
	if q := l.s.queues.get(text(r.lane.queueName)); q != nil || r.paced > l.s.now {
		q = l.s.queueOf(r.lane)
		q.nextGrant = max(q.nextGrant, r.paced)
	}
}

// placeGrant places a grant whose leases came or went, or that came or was removed itself.
func (l *Loading) placeGrant(note *grantNote) error {
	switch there := l.grants[note.number] == note; {
	case there && note.left == 0:
		return fmt.Errorf("grant %d has no lease", note.number)
	case there:
		note.written = true
		slices.SortFunc(note.entries, func(a, b grantEntry) int { return cmp.Compare(a.fence, b.fence) })
		l.s.grants.set(note)
	case note.left > 0:
		return fmt.Errorf("there is no grant %d", note.number)
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
