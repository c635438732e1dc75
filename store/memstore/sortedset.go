package memstore

import (
	"iter"
	"math"
	"sort"

	"github.com/tidwall/btree"
)

// infinite is the score +inf: no instant, until someone lifts a gate.
const infinite = math.MaxInt64

// setMember is what a sorted set can hold: member is its name in the set.
type setMember interface {
	comparable
	member() string
}

// entry is a member of a sorted set and its score.
type entry[V setMember] struct {
	score int64
	value V
}

// name is empty for the zero value, which stands before all members of its score.
func (e *entry[V]) name() string {
	var none V
	if e.value == none {
		return ""
	}
	return e.value.member()
}

func before[V setMember](a, b entry[V]) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	return a.name() < b.name()
}

// sortedSet holds members ordered by score, then by the bytes of their names, as a Redis
// ZSET does. Whoever inserts a member keeps its score, to remove it again. The zero value
// is empty.
type sortedSet[V setMember] struct {
	// only is the member where there is no tree; its zero value is none. Most sets, such as
	// the tasks of a lane that are due, never have more than one.
	only entry[V]
	tree *btree.BTreeG[entry[V]]
}

// insert adds the member, or replaces the one of the same score and name. Most members
// become the last, which Load finds without a search.
func (s *sortedSet[V]) insert(score int64, value V) {
	e := entry[V]{score, value}
	switch {
	case s.tree != nil:
		s.tree.Load(e)
	case s.len() == 0 || !before(e, s.only) && !before(s.only, e):
		s.only = e
	default:
		s.tree = btree.NewBTreeGOptions(before[V], btree.Options{NoLocks: true, Degree: 16})
		s.tree.Load(s.only)
		s.tree.Load(e)
		s.only = entry[V]{}
	}
}

// remove takes the member with exactly that score out and reports whether it was in. Most
// members were the first.
func (s *sortedSet[V]) remove(score int64, value V) (found bool) {
	e := entry[V]{score, value}
	first, ok := s.first()
	switch found = first == e; {
	case !ok:
		return false
	case s.tree == nil && found:
		s.only = entry[V]{}
	case s.tree == nil:
	case found:
		s.tree.PopMin()
	default:
		_, found = s.tree.Delete(e)
	}
	if s.tree != nil && s.tree.Len() == 0 {
		s.tree = nil
	}
	return found
}

func (s *sortedSet[V]) len() int {
	var none V
	switch {
	case s.tree != nil:
		return s.tree.Len()
	case s.only.value == none:
		return 0
	default:
		return 1
	}
}

func (s *sortedSet[V]) first() (first entry[V], ok bool) {
	if s.tree == nil {
		return s.only, s.len() > 0
	}
	return s.tree.Min()
}

func (s *sortedSet[V]) last() (last entry[V], ok bool) {
	if s.tree == nil {
		return s.only, s.len() > 0
	}
	return s.tree.Max()
}

// firstScore is the lowest score, infinite when the set is empty.
func (s *sortedSet[V]) firstScore() int64 {
	if e, ok := s.first(); ok {
		return e.score
	}
	return infinite
}

// from gives the members from the score on, ascending. The set must not be changed
// meanwhile.
func (s *sortedSet[V]) from(score int64) iter.Seq[entry[V]] {
	return func(yield func(entry[V]) bool) {
		switch {
		case s.tree != nil:
			s.tree.Ascend(entry[V]{score: score}, yield)
		case s.len() > 0 && s.only.score >= score:
			yield(s.only)
		}
	}
}

// firstFrom is the first member at or after the score.
func (s *sortedSet[V]) firstFrom(score int64) (found entry[V], ok bool) {
	for e := range s.from(score) {
		return e, true
	}
	return found, false
}

// after gives the members behind (score, name), ascending. The set must not be changed
// meanwhile.
func (s *sortedSet[V]) after(score int64, name string) iter.Seq[entry[V]] {
	return func(yield func(entry[V]) bool) {
		i := s.rank(func(e entry[V]) bool { return e.score > score || e.score == score && e.name() > name })
		for ; i < s.len() && yield(s.at(i)); i++ {
		}
	}
}

// upTo counts the members of at most that score.
func (s *sortedSet[V]) upTo(score int64) int {
	return s.rank(func(e entry[V]) bool { return e.score > score })
}

// rank counts the members before the first that is behind a place.
func (s *sortedSet[V]) rank(behind func(entry[V]) bool) int {
	return sort.Search(s.len(), func(i int) bool { return behind(s.at(i)) })
}

// at is the i-th member.
func (s *sortedSet[V]) at(i int) entry[V] {
	if s.tree == nil {
		return s.only
	}
	e, _ := s.tree.GetAt(i)
	return e
}

// due gives at most limit members whose score has come, the lowest first. The loop takes
// each of them out.
func (s *sortedSet[V]) due(now int64, limit int) iter.Seq[V] {
	return func(yield func(V) bool) {
		for range limit {
			if e, ok := s.first(); !ok || e.score > now || !yield(e.value) {
				return
			}
		}
	}
}
