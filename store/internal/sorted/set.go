// Package sorted has sets that are ordered by a score.
package sorted

import (
	"iter"
	"sort"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// Member is what a sorted set can hold.
type Member interface {
	comparable
	// Member is its name in the set.
	Member() string
}

// Entry is a member of a sorted set and its score.
type Entry[V Member] struct {
	Score int64
	Value V
}

// name is empty for the zero value, which stands before all members of its score.
func (e *Entry[V]) name() string {
	var none V
	if e.Value == none {
		return ""
	}
	return e.Value.Member()
}

// Before orders entries by their scores, then by the names of their members.
func Before[V Member](a, b Entry[V]) bool {
	if a.Score != b.Score {
		return a.Score < b.Score
	}
	return a.name() < b.name()
}

// Set holds members ordered by score, then by the bytes of their names, as a Redis
// ZSET does. Whoever inserts a member keeps its score, to remove it again. The zero value
// is empty.
type Set[V Member] struct {
	// only is the member where there is no tree; its zero value is none. Most sets, such as
	// the tasks of a lane that are due, never have more than one.
	only Entry[V]
	tree *btree.BTreeG[Entry[V]]
}

// Insert adds the member, or replaces the one of the same score and name. Most members
// become the last, which Load finds without a search.
func (s *Set[V]) Insert(score int64, value V) {
	e := Entry[V]{score, value}
	switch {
	case s.tree != nil:
		s.tree.Load(e)
	case s.Len() == 0 || !Before(e, s.only) && !Before(s.only, e):
		s.only = e
	default:
		s.tree = btree.NewBTreeGOptions(Before[V], btree.Options{NoLocks: true, Degree: 16})
		s.tree.Load(s.only)
		s.tree.Load(e)
		s.only = Entry[V]{}
	}
}

// Remove takes the member with exactly that score out and reports whether it was in. Most
// members were the first.
func (s *Set[V]) Remove(score int64, value V) (found bool) {
	e := Entry[V]{score, value}
	first, ok := s.First()
	switch found = first == e; {
	case !ok:
		return false
	case s.tree == nil && found:
		s.only = Entry[V]{}
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

// Len is the number of members.
func (s *Set[V]) Len() int {
	var none V
	switch {
	case s.tree != nil:
		return s.tree.Len()
	case s.only.Value == none:
		return 0
	default:
		return 1
	}
}

// First is the member of the lowest score; ok is false where there is none.
func (s *Set[V]) First() (first Entry[V], ok bool) {
	if s.tree == nil {
		return s.only, s.Len() > 0
	}
	return s.tree.Min()
}

// Last is the member of the highest score; ok is false where there is none.
func (s *Set[V]) Last() (last Entry[V], ok bool) {
	if s.tree == nil {
		return s.only, s.Len() > 0
	}
	return s.tree.Max()
}

// FirstScore is the lowest score, infinite when the set is empty.
func (s *Set[V]) FirstScore() int64 {
	if e, ok := s.First(); ok {
		return e.Score
	}
	return ms.Infinite
}

// From gives the members from the score on, ascending. The set must not be changed
// meanwhile.
func (s *Set[V]) From(score int64) iter.Seq[Entry[V]] {
	return func(yield func(Entry[V]) bool) {
		switch {
		case s.tree != nil:
			s.tree.Ascend(Entry[V]{Score: score}, yield)
		case s.Len() > 0 && s.only.Score >= score:
			yield(s.only)
		}
	}
}

// FirstFrom is the first member at or after the score.
func (s *Set[V]) FirstFrom(score int64) (found Entry[V], ok bool) {
	for e := range s.From(score) {
		return e, true
	}
	return found, false
}

// After gives the members behind (score, name), ascending. The set must not be changed
// meanwhile.
func (s *Set[V]) After(score int64, name string) iter.Seq[Entry[V]] {
	return func(yield func(Entry[V]) bool) {
		i := s.rank(func(e Entry[V]) bool { return e.Score > score || e.Score == score && e.name() > name })
		for ; i < s.Len() && yield(s.at(i)); i++ {
		}
	}
}

// UpTo counts the members of at most that score.
func (s *Set[V]) UpTo(score int64) int {
	return s.rank(func(e Entry[V]) bool { return e.Score > score })
}

// rank counts the members before the first that is behind a place.
func (s *Set[V]) rank(behind func(Entry[V]) bool) int {
	return sort.Search(s.Len(), func(i int) bool { return behind(s.at(i)) })
}

// at is the i-th member.
func (s *Set[V]) at(i int) Entry[V] {
	if s.tree == nil {
		return s.only
	}
	e, _ := s.tree.GetAt(i)
	return e
}

// Due gives at most limit members whose score has come, the lowest first. The loop takes
// each of them out.
func (s *Set[V]) Due(now int64, limit int) iter.Seq[V] {
	return func(yield func(V) bool) {
		for range limit {
			if e, ok := s.First(); !ok || e.Score > now || !yield(e.Value) {
				return
			}
		}
	}
}
