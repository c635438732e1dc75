package memstore

import (
	"math"
	"slices"
	"sort"
)

// infinite is the score +inf: no instant, until someone lifts a gate.
const infinite = math.MaxInt64

// A run of an ordered set has runLength members at most, and longLength in one of so many
// runs that it is their list that takes long to change. An empty set keeps the memory
// for keptLength members.
const (
	runLength  = 64
	longLength = 256
	manyRuns   = 1000
	keptLength = 8
)

// setMember is what an ordered set can hold: member is its name in the set.
type setMember interface{ member() string }

// entry is a member of an ordered set and its score.
type entry[V setMember] struct {
	score int64
	value V
}

// before reports whether the entry comes before where a member with that score stands.
func (e *entry[V]) before(score int64, member string) bool {
	return e.score < score || e.score == score && e.value.member() < member
}

// is reports whether the entry is the member of that score.
func (e *entry[V]) is(score int64, member string) bool {
	return e.score == score && e.value.member() == member
}

// orderedSet holds members ordered by score, then by the bytes of their names,
// as a Redis ZSET does. Whoever puts a member in keeps its score, to take it
// out again. The zero value is empty.
//
// The members stand in runs, which are short, so that little moves when one comes or
// goes, and least at either end, where nearly all of them do. Most sets have one run.
type orderedSet[V setMember] struct {
	lowest []entry[V]   // the run of the lowest members; empty in an empty set alone
	higher [][]entry[V] // those that follow, of which none is empty
	size   int
}

// run is the i-th run.
func (s *orderedSet[V]) run(i int) *[]entry[V] {
	if i == 0 {
		return &s.lowest
	}
	return &s.higher[i-1]
}

// find is where a member stands or, if it is not in, would stand: the run, and the
// place in it.
func (s *orderedSet[V]) find(score int64, member string) (run, at int, in bool) {
	starts := func(i int) bool { return !s.higher[i][0].before(score, member) }
	switch n := len(s.higher); {
	case n == 0 || starts(0):
	case !starts(n - 1):
		run = n
	default:
		run = sort.Search(n, starts)
	}
	if run < len(s.higher) && s.higher[run][0].is(score, member) {
		return run + 1, 0, true
	}
	at, in = search(*s.run(run), score, member)
	return run, at, in
}

// search is where in a run a member stands, or would.
func search[V setMember](run []entry[V], score int64, member string) (at int, in bool) {
	switch n := len(run); {
	case n == 0 || run[n-1].before(score, member):
		return n, false
	case run[0].before(score, member):
		at = sort.Search(n, func(i int) bool { return !run[i].before(score, member) })
	}
	return at, run[at].is(score, member)
}

// insert adds the member, or replaces the one of the same score and name.
func (s *orderedSet[V]) insert(score int64, value V) {
	e := entry[V]{score: score, value: value}
	i, at, in := s.find(score, value.member())
	run := s.run(i)
	if in {
		(*run)[at] = e
		return
	}
	s.size++
	n, most := len(*run), s.mostInRun()
	if n < most {
		*run = slices.Insert(*run, at, e)
		return
	}
	half := n / 2
	if at == n {
		half = n // most members come in at the end: what they fill up stays full
	}
	next := append(make([]entry[V], 0, most), (*run)[half:]...)
	clear((*run)[half:])
	if *run = (*run)[:half]; at < half {
		*run = slices.Insert(*run, at, e)
	} else {
		next = slices.Insert(next, at-half, e)
	}
	s.higher = slices.Insert(s.higher, i, next)
}

// mostInRun is how many members a run has at most.
func (s *orderedSet[V]) mostInRun() int {
	if len(s.higher) < manyRuns {
		return runLength
	}
	return longLength
}

// remove takes the member with exactly that score out and reports whether it
// was in.
func (s *orderedSet[V]) remove(score int64, value V) bool {
	i, at, in := s.find(score, value.member())
	if !in {
		return false
	}
	s.size--
	run := s.run(i)
	*run = without(*run, at)
	switch n := len(*run); {
	case n == 0 && i > 0:
		s.higher = without(s.higher, i-1)
	case n == 0 && len(s.higher) > 0:
		s.lowest = s.higher[0]
		s.higher = without(s.higher, 0)
	case n == 0 && cap(*run) > keptLength:
		*run = nil
	case n < runLength/4 && i < len(s.higher) && n+len(s.higher[i]) <= runLength/2:
		*run = append(*run, s.higher[i]...)
		s.higher = without(s.higher, i)
	}
	if len(s.higher) == 0 {
		s.higher = nil // the list of them is long after a peak
	}
	return true
}

// without takes the i-th out, by moving those before it or those behind it, whichever
// are fewer.
func without[E any](all []E, i int) []E {
	last := len(all) - 1
	if i < last/2 {
		copy(all[1:], all[:i])
		clear(all[:1])
		return all[1:]
	}
	copy(all[i:], all[i+1:])
	clear(all[last:])
	return all[:last]
}

func (s *orderedSet[V]) len() int { return s.size }

// upTo counts the members of at most that score, which is not infinite.
func (s *orderedSet[V]) upTo(score int64) int {
	run, n, _ := s.find(score+1, "")
	for i := range run {
		n += len(*s.run(i))
	}
	return n
}

func (s *orderedSet[V]) first() (first entry[V], ok bool) {
	if s.size == 0 {
		return first, false
	}
	return s.lowest[0], true
}

func (s *orderedSet[V]) last() (last entry[V], ok bool) {
	if s.size == 0 {
		return last, false
	}
	run := *s.run(len(s.higher))
	return run[len(run)-1], true
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
	i, at, _ := s.find(score, member)
	for ; i <= len(s.higher); i, at = i+1, 0 {
		for _, e := range (*s.run(i))[at:] {
			if !yield(e) {
				return
			}
		}
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
type openSet[V setMember] struct {
	orderedSet[V]
	count [bands]int
}

func (s *openSet[V]) insert(score int64, value V) {
	s.count[score>>bandShift]++
	s.orderedSet.insert(score, value)
}

func (s *openSet[V]) remove(score int64, value V) {
	if s.orderedSet.remove(score, value) {
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
