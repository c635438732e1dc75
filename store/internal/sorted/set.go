// Package sorted has sets that are ordered by a score.
package sorted

import (
	"iter"
	"slices"
	"sort"

	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// Member is what a sorted set can hold.
type Member[V any] interface {
	comparable
	// Before orders members of one score: it compares what names them.
	Before(other V) bool
}

// Entry is a member of a sorted set and its score.
type Entry[V Member[V]] struct {
	Score int64
	Value V
}

// Before orders entries by their scores, then by their members.
func Before[V Member[V]](a, b Entry[V]) bool {
	if a.Score != b.Score {
		return a.Score < b.Score
	}
	return a.Value.Before(b.Value)
}

// Set holds members ordered by score, then as they order themselves. Whoever inserts a member keeps its score, to remove it
// again. The zero value is empty.
type Set[V Member[V]] struct {
	// only is the member where there are no blocks; its zero value is none. Most sets, such as
	// the tasks of a lane that are due, never have more than one.
	only   Entry[V]
	blocks *blocks[V]
}

// Insert adds the member, or replaces the one of the same score and name.
func (s *Set[V]) Insert(score int64, value V) {
	e := Entry[V]{score, value}
	switch {
	case s.blocks != nil:
		s.blocks.insert(e)
	case s.Len() == 0 || !Before(e, s.only) && !Before(s.only, e):
		s.only = e
	default:
		s.blocks = &blocks[V]{list: [][]Entry[V]{{s.only}}, size: 1}
		s.blocks.insert(e)
		s.only = Entry[V]{}
	}
}

// Remove takes the member with exactly that score out and reports whether it was in.
func (s *Set[V]) Remove(score int64, value V) (found bool) {
	e := Entry[V]{score, value}
	if s.blocks == nil {
		if found = s.Len() > 0 && s.only == e; found {
			s.only = Entry[V]{}
		}
		return found
	}
	found = s.blocks.remove(e)
	if s.blocks.size == 0 {
		s.blocks = nil
	}
	return found
}

// Len is the number of members.
func (s *Set[V]) Len() int {
	var none V
	switch {
	case s.blocks != nil:
		return s.blocks.size
	case s.only.Value == none:
		return 0
	default:
		return 1
	}
}

// First is the member of the lowest score; ok is false where there is none.
func (s *Set[V]) First() (first Entry[V], ok bool) {
	if s.blocks == nil {
		return s.only, s.Len() > 0
	}
	return s.blocks.list[0][0], true
}

// Last is the member of the highest score; ok is false where there is none.
func (s *Set[V]) Last() (last Entry[V], ok bool) {
	if s.blocks == nil {
		return s.only, s.Len() > 0
	}
	return s.blocks.last(), true
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
	return s.behind(func(e Entry[V]) bool { return e.Score >= score })
}

// FirstFrom is the first member at or after the score.
func (s *Set[V]) FirstFrom(score int64) (found Entry[V], ok bool) {
	for e := range s.From(score) {
		return e, true
	}
	return found, false
}

// After gives the members behind a place, ascending: those of higher scores, and those of the score that are behind. The set
// must not be changed meanwhile.
func (s *Set[V]) After(score int64, behind func(V) bool) iter.Seq[Entry[V]] {
	return s.behind(func(e Entry[V]) bool { return e.Score > score || e.Score == score && behind(e.Value) })
}

// behind gives the members from the first on that is behind a place.
func (s *Set[V]) behind(is func(Entry[V]) bool) iter.Seq[Entry[V]] {
	return func(yield func(Entry[V]) bool) {
		if s.blocks != nil {
			s.blocks.behind(is, yield)
		} else if s.Len() > 0 && is(s.only) {
			yield(s.only)
		}
	}
}

// UpTo counts the members of at most that score.
func (s *Set[V]) UpTo(score int64) int {
	behind := func(e Entry[V]) bool { return e.Score > score }
	switch {
	case s.blocks != nil:
		return s.blocks.before(behind)
	case s.Len() == 0 || behind(s.only):
		return 0
	default:
		return 1
	}
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

// blockSize bounds the members of a block. A list of blocks costs 16 bytes a member where members come in order, a tree
// 32: the half of a node that was split stays empty. What a block in the middle of the list costs is to move the heads of those behind it:
// of 5,000,000 members 40,000 heads, once in 64 insertions.
const blockSize = 128

// blocks are the members of a set in ascending order, in slices, none of which is empty.
type blocks[V Member[V]] struct {
	list [][]Entry[V]
	size int
}

func (t *blocks[V]) last() Entry[V] {
	block := t.list[len(t.list)-1]
	return block[len(block)-1]
}

// find is the block, and the place in it, of the first member that is not before e. One behind all is at the end of the last
// block.
func (t *blocks[V]) find(e Entry[V]) (at, i int) {
	if Before(t.last(), e) { // most members come in order
		return len(t.list) - 1, len(t.list[len(t.list)-1])
	}
	if first := t.list[0][0]; !Before(first, e) { // and most go so
		return 0, 0
	}
	at = sort.Search(len(t.list)-1, func(n int) bool { return !Before(t.list[n][len(t.list[n])-1], e) })
	block := t.list[at]
	return at, sort.Search(len(block), func(n int) bool { return !Before(block[n], e) })
}

func (t *blocks[V]) insert(e Entry[V]) {
	at, i := t.find(e)
	block := t.list[at]
	switch {
	case i < len(block) && !Before(e, block[i]):
		block[i] = e
		return
	case len(block) < blockSize:
		t.list[at] = slices.Insert(block, i, e)
	case i == len(block): // behind all
		t.list = append(t.list, []Entry[V]{e})
	default:
		half := slices.Clone(block[blockSize/2:])
		clear(block[blockSize/2:])
		t.list[at] = block[:blockSize/2]
		t.list = slices.Insert(t.list, at+1, half)
		if n := i - blockSize/2; n > 0 {
			t.list[at+1] = slices.Insert(half, n, e)
		} else {
			t.list[at] = slices.Insert(t.list[at], i, e)
		}
	}
	t.size++
}

func (t *blocks[V]) remove(e Entry[V]) bool {
	at, i := t.find(e)
	block := t.list[at]
	if i == len(block) || block[i] != e {
		return false
	}
	t.size--
	switch {
	case len(block) == 1:
		t.drop(at)
	case i == 0:
		block[0] = Entry[V]{}
		t.list[at] = block[1:]
	default:
		t.list[at] = slices.Delete(block, i, i+1)
	}
	if len(block) <= blockSize/4 && at+1 < len(t.list) {
		t.join(at)
	}
	return true
}

// join joins a block with the next, if they are small together.
func (t *blocks[V]) join(at int) {
	if block, next := t.list[at], t.list[at+1]; len(block)+len(next) <= blockSize/2 {
		t.list[at+1] = slices.Concat(block, next)
		t.drop(at)
	}
}

// drop takes a block out of the list. Mostly it is the first.
func (t *blocks[V]) drop(at int) {
	if at == 0 {
		t.list[0] = nil
		t.list = t.list[1:]
		return
	}
	t.list = slices.Delete(t.list, at, at+1)
}

// place finds the first member that is behind a place, as find does.
func (t *blocks[V]) place(behind func(Entry[V]) bool) (at, i int) {
	at = sort.Search(len(t.list)-1, func(n int) bool { return behind(t.list[n][len(t.list[n])-1]) })
	block := t.list[at]
	return at, sort.Search(len(block), func(n int) bool { return behind(block[n]) })
}

// behind gives the members from the first on that is behind a place.
func (t *blocks[V]) behind(is, yield func(Entry[V]) bool) {
	at, i := t.place(is)
	for ; at < len(t.list); at, i = at+1, 0 {
		for _, e := range t.list[at][i:] {
			if !yield(e) {
				return
			}
		}
	}
}

// before counts the members before the first that is behind a place.
func (t *blocks[V]) before(behind func(Entry[V]) bool) int {
	at, n := t.place(behind)
	for _, block := range t.list[:at] {
		n += len(block)
	}
	return n
}
