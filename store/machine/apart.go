package machine

import (
	"errors"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
)

// Tasks that are over go apart with a snapshot, if the backend keeps such ([Shard.Archived]). Then memory has only their number in each
// lane. A command that names one gets a copy of it, which the store has read before ([Shard.Ask]). A task is in memory or
// apart, never both.
//
// A group has the same of a task that was over, wherever it was: its removal, which names the lane, and all of it if it goes on. A load that finds it in memory removes it there, and else counts one less apart.

// apart is what a shard knows of the tasks that are over.
type apart struct {
	// lanes are those with tasks that are over, also dropped ones.
	lanes table[laneNumber, overLane]
	// left were over and are no more, since the instant of the last snapshot; before are those since the snapshot before that, while
	// it is being made. What the backend has apart of them is no longer true.
	left, before leftTasks
	// recalled are copies of the tasks that are apart, for the command under way.
	recalled map[taskHash]*record
	// moves rises when tasks go apart: what the backend has returned before may lack them.
	moves uint64
}

// laneNumber finds a lane by its number.
type laneNumber int64

func (n laneNumber) hash() uint32 { return uint32(uint64(n) * 0x9e3779b97f4a7c15 >> 32) }

// overLane is a lane with tasks that are over.
type overLane struct{ *lane }

func (l overLane) key() laneNumber {
	if l.lane == nil {
		return 0
	}
	return laneNumber(l.number)
}

// leftTasks is a set of tasks in order of arrival.
type leftTasks struct {
	has  map[taskHash]struct{}
	list []taskHash
}

func (t *leftTasks) add(hash taskHash) {
	if _, ok := t.has[hash]; ok {
		return
	}
	if t.has == nil {
		t.has = make(map[taskHash]struct{})
	}
	t.has[hash] = struct{}{}
	t.list = append(t.list, hash)
}

func (t *leftTasks) contains(hash taskHash) bool {
	_, ok := t.has[hash]
	return ok
}

// freeze begins a snapshot, which gets what has left.
func (a *apart) freeze() []taskHash {
	a.before, a.left = a.left, leftTasks{}
	return a.before.list
}

// thaw ends a snapshot. If nobody keeps it, those that have left before it go into the next one.
func (a *apart) thaw(kept bool) {
	if !kept {
		for _, hash := range a.left.list {
			a.before.add(hash)
		}
		a.left = a.before
	}
	a.before = leftTasks{}
}

// countOver counts tasks of a lane that are over.
func (s *Shard) countOver(l *lane, n int64) {
	if s.Saving != nil && s.Saving.encoder.apart {
		s.Saving.save(l)
	}
	was := l.over
	switch l.over += n; {
	case was == 0:
		s.apart.lanes.add(overLane{l})
	case l.over == 0:
		s.apart.lanes.remove(laneNumber(l.number))
	}
}

// leaveOver takes a task out of those that are over.
func (s *Shard) leaveOver(r *record) {
	if _, ok := s.apart.recalled[r.hash]; ok {
		delete(s.apart.recalled, r.hash)
	} else {
		s.ended.remove(r.hash)
	}
	s.countOver(r.lane, -1)
	if s.Archived { // it may be apart, or go there with the snapshot that is being made
		s.apart.left.add(r.hash)
	}
}

// inMemory reports whether a task is in memory.
func (s *Shard) inMemory(hash taskHash) bool {
	return s.records.get(hash) != nil || s.ended.find(hash, hash.hash()) >= 0
}

// hasLeft reports whether what the backend has apart of a task is no longer true.
func (s *Shard) hasLeft(hash taskHash) bool {
	return s.apart.left.contains(hash) || s.apart.before.contains(hash)
}

// Apart reports whether the task is apart, if the backend has it so.
func (s *Shard) Apart(key [16]byte) bool { return !s.inMemory(key) && !s.hasLeft(key) }

// CountApart is how many tasks are apart.
func (s *Shard) CountApart() (n int64) {
	for l := range s.apart.lanes.all() {
		n += l.over
	}
	return n - int64(s.ended.len())
}

// Named names tasks, and needs those of them that are apart.
type Named interface {
	// named gives them, in the same order each time.
	named(yield func(taskHash) bool)
}

// IDs name tasks.
type IDs []dispatch.TaskID

func (ids IDs) named(yield func(taskHash) bool) {
	for _, id := range ids {
		if _, hash, ok := parseID(id); ok && !yield(hash) {
			return
		}
	}
}

func (c *Submit) named(yield func(taskHash) bool) {
	for i := range c.Items {
		if _, hash, ok := parseID(c.Items[i].ID); ok && !yield(hash) {
			return
		}
	}
}

func (c *Renew) named(yield func(taskHash) bool) {
	for i := range c.Renewals {
		if _, hash, ok := parseID(c.Renewals[i].ID); ok && !yield(hash) {
			return
		}
	}
}

func (c *Apply) named(yield func(taskHash) bool) {
	for i := range c.Transitions {
		if _, hash, ok := parseID(c.Transitions[i].ID); ok && !yield(hash) {
			return
		}
	}
}

func (c *Cancel) named(yield func(taskHash) bool) { IDs(c.IDs).named(yield) }

func (c *ImportTasks) named(yield func(taskHash) bool) {
	for i := range c.Tasks {
		if _, hash, ok := parseID(c.Tasks[i].Task.ID); ok && !yield(hash) {
			return
		}
	}
}

// Forget forgets those tasks that are over and apart whose time has come.
type Forget struct {
	Keys [][16]byte
}

func (c *Forget) named(yield func(taskHash) bool) {
	for _, key := range c.Keys {
		if !yield(key) {
			return
		}
	}
}

// Room implements [Command].
func (c *Forget) Room() (bytes int, grows bool) { return SmallGroup + len(c.Keys)*64, false }

// Run implements [Command].
func (c *Forget) Run(s *Shard) {
	for _, key := range c.Keys {
		if r := s.findHash(key); r != nil && r.stands == inEnded && s.known(r) == nil {
			s.forget(r)
		}
	}
}

// Recall is what the backend has returned of the tasks that are apart.
type Recall struct {
	asked []taskHash // in the order of their names
	moves uint64
	tasks []LoadedTask
	err   error
}

// Ask has copies of the tasks that are apart ready for a command that names them, until the end of the call. It returns the keys to ask
// the backend for before that; then it is called again. Between, other commands can run.
func (s *Shard) Ask(r *Recall, of Named) (keys [][16]byte, err error) {
	of.named(func(hash taskHash) bool {
		if !s.inMemory(hash) {
			keys = append(keys, hash)
		}
		return true
	})
	if len(keys) > 0 && (r.moves != s.apart.moves || !r.hasAsked(keys)) {
		*r = Recall{moves: s.apart.moves, asked: make([]taskHash, len(keys))}
		for i := range keys {
			r.asked[i] = keys[i]
		}
		return keys, nil
	}
	for i := range r.tasks {
		t := &r.tasks[i]
		if !s.Apart(t.r.hash) {
			continue // it has left, or another command has changed it meanwhile
		}
		copied, err := s.recalled(t)
		if err != nil {
			return nil, err
		}
		if s.apart.recalled == nil {
			s.apart.recalled = make(map[taskHash]*record, len(r.tasks))
		}
		s.apart.recalled[copied.hash] = copied
		if len(t.unknown) > 0 { // written back if it changes
			if s.unknown == nil {
				s.unknown = make(map[kept]codec.Unknown)
			}
			s.unknown[copied] = t.unknown
		}
	}
	return nil, r.err
}

// hasAsked reports whether the backend was asked for all of those, which stand in the same order.
func (r *Recall) hasAsked(keys [][16]byte) bool {
	asked := r.asked
	for _, key := range keys {
		for len(asked) > 0 && asked[0] != key {
			asked = asked[1:]
		}
		if len(asked) == 0 {
			return false
		}
	}
	return true
}

// Add adds what the backend has of a task that was asked for.
func (r *Recall) Add(entry []byte) {
	a, _, ok := codec.CutApart(entry)
	if !ok || a.Kind != codec.Task {
		r.err = errors.New("a task that is apart cannot be read")
		return
	}
	r.tasks = append(r.tasks, LoadedTask{})
	r.tasks[len(r.tasks)-1].Read(a.Fields)
}

// recalled is the copy of a task that the backend has apart.
func (s *Shard) recalled(t *LoadedTask) (*record, error) {
	r := t.r
	if t.err != nil {
		return nil, fmt.Errorf("a task that is apart: %w", t.err)
	}
	found := s.apart.lanes.get(laneNumber(t.lane)).lane
	if r.lane = found; found == nil || !r.over() {
		return nil, fmt.Errorf("task %x is apart, and is in no lane, or not over", r.hash)
	}
	e := r.ended()
	r = e.record(r)
	r.written = true
	if s.Saving != nil { // it is apart there, too
		r.snapshot = s.Saving.snapshot
	}
	return r, nil
}

// EndCall drops what was recalled for the call.
func (s *Shard) EndCall() {
	for _, r := range s.apart.recalled {
		delete(s.unknown, r)
	}
	s.apart.recalled = nil
}

// Moved ends a snapshot with tasks that go apart; kept: the backend has it, and [Shard.DropApart] is to drop them from memory.
func (s *Shard) Moved(kept bool) {
	if s.apart.thaw(kept); kept {
		s.apart.moves++
		s.ended.pinned = true
	}
}

// DropApart drops from memory what went apart with a snapshot, of so many places from that one on, which it moves, and reports whether there
// is more.
func (s *Shard) DropApart(snapshot uint32, place *int, places int) (more bool) {
	for end := min(*place+places, s.ended.places()); *place < end; *place++ {
		if e := s.ended.at(*place); e.apart && e.snapshot == snapshot {
			s.ended.remove(e.hash)
		}
	}
	if *place < s.ended.places() {
		return true
	}
	s.ended.pinned = false
	s.ended.shrink()
	return false
}

// saveApart writes a task that goes apart.
func (w *saver) saveApart(k kept, until int64) {
	begin := len(w.out)
	w.out = w.encoder.whole(w.out, k)
	w.entries = codec.AppendApart(w.entries, until, w.out[begin:])
	w.out = w.out[:begin]
}

// saveLeft writes the next tasks that are apart no more. They come before all others: one of those may be over again.
func (w *saver) saveLeft(entries []byte, items int) []byte {
	n := min(items, len(w.left))
	for i := range w.left[:n] {
		begin := len(w.out)
		w.out = w.encoder.removal(w.out, &record{hash: w.left[i]}, false)
		entries = codec.AppendApart(entries, 0, w.out[begin:])
		w.out = w.out[:begin]
	}
	w.left = w.left[n:]
	return entries
}

// loadApart counts tasks of lanes that were loaded and are apart.
func (l *Loading) loadApart(found *lane, n int64) error {
	switch {
	case n == 0:
		return nil
	case found.source == nil || found.over+n < 0:
		return errors.New("more tasks of a lane are removed than are over")
	}
	l.s.countOver(found, n)
	found.source.counts[dispatch.StateDone] += n
	l.s.counts[dispatch.StateDone] += n
	return nil
}
