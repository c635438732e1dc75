package memstore

import (
	"math"
	"sort"

	"github.com/tidwall/btree"
)

// infinite is the score +inf: no instant, until someone lifts a gate.
const infinite = math.MaxInt64

// treeDegree gives the nodes of a tree room for 79 members. With the 63 of btree's own
// degree, the leases of 64 collectors with a task each split the only node, and merge it
// again, with every task.
const treeDegree = 40

// entry is a member of an ordered set with what it stands for.
type entry[V any] struct {
	score  int64
	member string
	value  V
}

// orderedSet holds members ordered by score, then by the bytes of the member,
// as a Redis ZSET does. Whoever puts a member in keeps its score, to take it
// out again. The zero value is empty.
//
// Most sets hold one member for a short while: it is kept here, and a tree is
// made when a second one comes.
type orderedSet[V any] struct {
	tree *btree.BTreeG[entry[V]]
	only entry[V]
	one  bool // only is the one member; there is no tree
}

func entryLess[V any](a, b entry[V]) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	return a.member < b.member
}

func (e *entry[V]) is(score int64, member string) bool { return e.score == score && e.member == member }

// insert adds the member, or replaces the value of the same score and member.
func (s *orderedSet[V]) insert(score int64, member string, value V) {
	e := entry[V]{score: score, member: member, value: value}
	if s.tree != nil {
		s.tree.Load(e) // most come in at the end, and Load looks there first
		return
	}
	if !s.one || s.only.is(score, member) {
		s.only, s.one = e, true
		return
	}
	s.tree = btree.NewBTreeGOptions(entryLess[V], btree.Options{NoLocks: true, Degree: treeDegree})
	s.tree.Set(s.only)
	s.tree.Set(e)
	s.only, s.one = entry[V]{}, false
}

// remove takes the member with exactly that score out and reports whether it
// was in.
func (s *orderedSet[V]) remove(score int64, member string) bool {
	if s.tree == nil {
		was := s.one && s.only.is(score, member)
		if was {
			s.only, s.one = entry[V]{}, false
		}
		return was
	}
	_, was := s.tree.Delete(entry[V]{score: score, member: member})
	if s.tree.Len() == 0 {
		s.tree = nil
	}
	return was
}

func (s *orderedSet[V]) len() int {
	switch {
	case s.tree != nil:
		return s.tree.Len()
	case s.one:
		return 1
	default:
		return 0
	}
}

// upTo counts the members of at most that score.
func (s *orderedSet[V]) upTo(score int64) int {
	if s.tree == nil {
		if s.one && s.only.score <= score {
			return 1
		}
		return 0
	}
	return sort.Search(s.tree.Len(), func(i int) bool {
		e, _ := s.tree.GetAt(i)
		return e.score > score
	})
}

func (s *orderedSet[V]) first() (entry[V], bool) {
	if s.tree == nil {
		return s.only, s.one
	}
	return s.tree.Min()
}

func (s *orderedSet[V]) last() (entry[V], bool) {
	if s.tree == nil {
		return s.only, s.one
	}
	return s.tree.Max()
}

// firstScore is the lowest score, infinite when the set is empty.
func (s *orderedSet[V]) firstScore() int64 {
	if e, ok := s.first(); ok {
		return e.score
	}
	return infinite
}

// from calls yield for the members from (score, member) on, ascending, until
// it returns false. The set must not be changed meanwhile.
func (s *orderedSet[V]) from(score int64, member string, yield func(entry[V]) bool) {
	begin := entry[V]{score: score, member: member}
	if s.tree != nil {
		s.tree.Ascend(begin, yield)
	} else if s.one && !entryLess(s.only, begin) {
		yield(s.only)
	}
}

// firstFrom is the first member at or after score.
func (s *orderedSet[V]) firstFrom(score int64) (found entry[V], ok bool) {
	s.from(score, "", func(e entry[V]) bool {
		found, ok = e, true
		return false
	})
	return found, ok
}

// The score of an open set is band * 2^44 + since: the band is 9 - priority,
// since is in milliseconds.
const (
	bandShift = 44
	sinceMask = 1<<bandShift - 1
	bands     = 10
)

// openSet is an ordered set of what can be picked now: it counts its members by
// priority band.
type openSet[V any] struct {
	orderedSet[V]
	count [bands]int
}

func (s *openSet[V]) insert(score int64, member string, value V) {
	s.count[score>>bandShift]++
	s.orderedSet.insert(score, member, value)
}

func (s *openSet[V]) remove(score int64, member string) {
	if s.orderedSet.remove(score, member) {
		s.count[score>>bandShift]--
	}
}

// inBand is the number of members that share the band of score.
func (s *openSet[V]) inBand(score int64) int { return s.count[score>>bandShift] }

// oldest is, over the first members of all bands, the one with the lowest
// since; of equal ones the one with the higher priority.
func (s *openSet[V]) oldest() (oldest entry[V], ok bool) {
	for band, n := range s.count {
		if n == 0 {
			continue
		}
		e, _ := s.firstFrom(int64(band) << bandShift)
		if !ok || e.score&sinceMask < oldest.score&sinceMask {
			oldest, ok = e, true
		}
	}
	return oldest, ok
}
