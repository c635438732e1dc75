package machine

import (
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
)

// turnsPerOldest: every eighth pick of a queue in a pool, and of a lane in a queue, goes to
// the longest wait whatever its priority.
const turnsPerOldest = 8

// where is the set of a schedule that a member is in.
type where uint8

const (
	nowhere where = iota
	open
	wait
	// A queue that waits for no instant is in no set: its pool counts it, as held without an end, or as full (its leases
	// in flight are at the limit), with tasks that are due or only for later.
	countedHeld
	countedFull
	countedLater
)

// place is where a member stands in a schedule: in open by band and since, in wait by the
// instant from which it can be picked, or counted at no instant.
type place struct {
	stands where
	score  int64
}

// schedule holds the members that can be picked now, and those that wait. Whoever puts a
// member in keeps its place.
type schedule[V sorted.Member[V]] struct {
	open  openSet[V]
	wait  sorted.Set[V]
	picks uint64
}

func (s *schedule[V]) len() int { return s.open.Len() + s.wait.Len() }

// move takes a member from one place to another. It comes in first: a set that gets empty
// gives its memory back.
func (s *schedule[V]) move(v V, from, to place) {
	if from == to {
		return
	}
	switch to.stands {
	case open:
		s.open.insert(to.score, v)
	case wait:
		s.wait.Insert(to.score, v)
	case nowhere, countedHeld, countedFull, countedLater:
	}
	switch from.stands {
	case open:
		s.open.remove(from.score, v)
	case wait:
		s.wait.Remove(from.score, v)
	case nowhere, countedHeld, countedFull, countedLater:
	}
}

// pick is the first that can be picked; every eighth pick is the one that waits longest. There must be one.
func (s *schedule[V]) pick() (picked sorted.Entry[V]) {
	if s.picks++; s.picks%turnsPerOldest == 0 {
		picked, _ = s.open.oldest()
	} else {
		picked, _ = s.open.First()
	}
	return picked
}

// since is when a member of this place could first be picked, or the end of its last turn if that has just ended.
func (p place) since(now int64, turnEnded bool) int64 {
	switch {
	case turnEnded:
		return now
	case p.stands == open:
		return p.score & sinceMask
	case p.stands == wait && p.score <= now:
		return p.score
	default:
		return now
	}
}

// soonest is when a member of this place can be picked.
func (p place) soonest() int64 {
	switch p.stands {
	case open:
		return 0
	case wait:
		return p.score
	default:
		return ms.Infinite
	}
}

// The score of an open set is band * 2^44 + since: the band is 9 - priority, or behindBand for a lane whose head is
// behind; since is in milliseconds.
const (
	bandShift  = 44
	sinceMask  = 1<<bandShift - 1
	behindBand = 10
)

// openSet is a sorted set of what can be picked now: it counts its members by priority band.
type openSet[V sorted.Member[V]] struct {
	sorted.Set[V]
	counts *[behindBand + 1]int32 // nil: there is one member at most, as in most queues
}

func (s *openSet[V]) insert(score int64, value V) {
	if only, ok := s.First(); ok && s.counts == nil {
		s.counts = new([behindBand + 1]int32)
		s.counts[only.Score>>bandShift]++
	}
	if s.Set.Insert(score, value); s.counts != nil {
		s.counts[score>>bandShift]++
	}
}

func (s *openSet[V]) remove(score int64, value V) {
	if !s.Set.Remove(score, value) || s.counts == nil {
		return
	}
	if s.counts[score>>bandShift]--; s.Len() == 0 {
		s.counts = nil
	}
}

// inBand is the number of members that share the band of score.
func (s *openSet[V]) inBand(score int64) int {
	if s.counts != nil {
		return int(s.counts[score>>bandShift])
	}
	if only, ok := s.First(); ok && only.Score>>bandShift == score>>bandShift {
		return 1
	}
	return 0
}

// oldest is the oldest of the first members of all bands.
func (s *openSet[V]) oldest() (oldest sorted.Entry[V], ok bool) {
	if s.counts == nil {
		return s.First()
	}
	for band, n := range s.counts {
		if n == 0 {
			continue
		}
		e, _ := s.FirstFrom(int64(band) << bandShift)
		if !ok || older(e, oldest) {
			oldest, ok = e, true
		}
	}
	return oldest, ok
}

// older reports whether a goes before b in an eighth pick: by since, but what is behind goes last.
func older[V sorted.Member[V]](a, b sorted.Entry[V]) bool {
	if behind := a.Score>>bandShift == behindBand; behind != (b.Score>>bandShift == behindBand) {
		return !behind
	}
	if byA, byB := a.Score&sinceMask, b.Score&sinceMask; byA != byB {
		return byA < byB
	}
	return sorted.Before(a, b)
}
