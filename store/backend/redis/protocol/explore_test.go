package protocol_test

import (
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// recoverEvery is how many states there are to one that is tried for recovery, which costs as much as many others.
const recoverEvery = 16

// result is what an exploration found.
type result struct {
	states, transitions, depth int
	wrong                      string
	trace                      string
}

// explore visits every state that is reachable within b, nearest first, so that a counterexample is the shortest. It stops at the
// first one.
func explore(m mutant, b bounds) result {
	all, seed := events(), maphash.MakeSeed()
	first := initial()
	visited := map[uint64]struct{}{}
	key := func(s *state) uint64 {
		swapped := s.swap()
		return min(maphash.Comparable(seed, *s), maphash.Comparable(seed, swapped))
	}
	visited[key(&first)] = struct{}{}
	// Each state is known by its number; how it was reached is enough to build it again.
	from, by := []uint32{0}, []event{{}}
	type entry struct {
		s state
		n uint32
	}
	r := result{states: 1}
	for frontier := []entry{{s: first}}; len(frontier) > 0; r.depth++ {
		var next []entry
		for _, at := range frontier {
			for _, e := range all {
				if !at.s.can(m, b, e) {
					continue
				}
				s := at.s
				s.do(m, e)
				s.canonical(b)
				r.transitions++
				h := key(&s)
				if _, ok := visited[h]; ok {
					continue
				}
				visited[h] = struct{}{}
				from, by = append(from, at.n), append(by, e)
				n := uint32(len(by) - 1)
				r.wrong = s.check(m)
				if r.wrong == "" && n%recoverEvery == 0 {
					if r.wrong = s.recovers(m, all, false); r.wrong == "" && s.full {
						r.wrong = s.recovers(m, all, true)
					}
				}
				if r.wrong != "" {
					var way string // that a recovery took beyond this state
					r.wrong, way, _ = strings.Cut(r.wrong, "\n")
					r.states, r.trace = len(by), trace(m, b, from, by, n)+way
					return r
				}
				next = append(next, entry{s, n})
			}
		}
		frontier = next
	}
	r.states = len(by)
	return r
}

// trace tells how state n was reached, one event a line, each with the store and the processes after it.
func trace(m mutant, b bounds, from []uint32, by []event, n uint32) string {
	var path []event
	for ; n != 0; n = from[n] {
		path = append(path, by[n])
	}
	slices.Reverse(path)
	s := initial()
	var text strings.Builder
	for i, e := range path {
		s.do(m, e)
		s.canonical(b)
		fmt.Fprintf(&text, "%3d. %-58s %s\n", i+1, e.text(), s.line())
	}
	return text.String()
}

// line shows a state on one line.
func (s *state) line() string {
	own, last := s.primary.epoch, s.primary.head
	text := fmt.Sprintf("epoch %d%s head %d%s/%d", own.number, names[own.process-1], last.number, names[last.process-1], last.seq)
	for k, it := range s.primary.items {
		text += fmt.Sprintf(" %d:%s", k, [...]string{"-", "waiting", "leased", "gone"}[it.state])
		if it.state == leased {
			text += fmt.Sprintf("(%d)", it.fence)
		}
	}
	if last.rewriting {
		text += " rewriting"
	}
	return text
}

// canonical clears what cannot matter any more and numbers the beats anew, so that equal situations are equal states.
func (s *state) canonical(b bounds) {
	if s.faults >= b.faults {
		s.once, s.replica, s.lagging = 0, store{}, false
	}
	if !s.lagging {
		s.replica = store{}
	}
	if !s.late.valid {
		s.late = message{}
	}
	beats := [2 + processes]*uint8{&s.primary.beat, &s.replica.beat}
	for p := range s.procs {
		o := &s.procs[p]
		beats[2+p] = &o.watchBeat
		if !o.watching || s.acquires >= b.acquires { // nobody can act on what is watched any more
			o.watching = false
			o.watched, o.watchBeat = 0, 0
		}
		if !o.renewing {
			o.renewAge = 0
		}
		if o.phase == candidate {
			o.age, o.epoch, o.lost, o.doubt = 3, epoch{}, false, false
		} else {
			o.watching, o.watched, o.watchBeat = false, 0, 0
		}
		if !o.line.loaded && o.phase != loading {
			o.kept, o.mem, o.fence, o.group, o.undo, o.rewrite = [tasks]item{}, [tasks]item{}, 0, group{}, 0, 0
			o.line = line{}
		}
	}
	var rank uint8
	for last := -1; ; rank++ {
		low := -1
		for _, b := range beats {
			if int(*b) > last && (low < 0 || int(*b) < low) {
				low = int(*b)
			}
		}
		if low < 0 {
			return
		}
		for _, b := range beats {
			if int(*b) == low {
				*b = rank
			}
		}
		last = low
	}
}

// swap returns the state with B and C exchanged.
func (s *state) swap() state {
	o := *s
	o.procs[1], o.procs[2] = o.procs[2], o.procs[1]
	swap := func(epochs ...*epoch) {
		for _, e := range epochs {
			if e.process > 1 {
				e.process = 5 - e.process
			}
		}
	}
	swap(&o.primary.epoch, &o.primary.head.epoch, &o.replica.epoch, &o.replica.head.epoch)
	swap(&o.late.epoch, &o.late.group.after.epoch, &o.late.group.head.epoch)
	if o.late.from > 0 {
		o.late.from = 3 - o.late.from
	}
	for p := range o.procs {
		q := &o.procs[p]
		swap(&q.epoch, &q.line.base.epoch, &q.line.kept.epoch, &q.line.sent.epoch, &q.group.after.epoch, &q.group.head.epoch)
	}
	if o.torn > 1 && o.torn != nobody {
		o.torn = 5 - o.torn
	}
	return o
}

// TestExplore_Protocol wants no invariant broken in any state within the bounds. WAGGLE_EXPLORE=long takes the larger ones.
func TestExplore_Protocol(t *testing.T) {
	runs := []bounds{ // seconds, under the race detector too
		{faults: 1, commands: 2, acquires: 1},
		{faults: 1, commands: 1, acquires: 2},
		{faults: 2, commands: 1, acquires: 1, only: 1<<failover | 1<<sendLate | 1<<loseReply | 1<<pause},
	}
	if os.Getenv("WAGGLE_EXPLORE") == "long" {
		runs = []bounds{
			{faults: 1, commands: 4, acquires: 2},
			{faults: 2, commands: 2, acquires: 2},
			{faults: 2, commands: 3, acquires: 2, only: 1<<failover | 1<<sendLate},
			{faults: 3, commands: 2, acquires: 1},
			{faults: 3, commands: 1, acquires: 2, only: 1<<failover | 1<<pause},
			{faults: 3, commands: 2, acquires: 2, only: 1<<sendLate | 1<<pause | 1<<expire},
			{faults: 3, commands: 3, acquires: 1, only: 1<<failover | 1<<sendLate | 1<<pause | 1<<expire},
		}
	}
	for _, b := range runs {
		begin := time.Now()
		r := explore(mutant{}, b)
		t.Logf("%d faults, %d commands, %d acquires: %d states, depth %d, %d transitions in %v",
			b.faults, b.commands, b.acquires, r.states, r.depth, r.transitions, time.Since(begin).Round(time.Millisecond))
		if r.wrong != "" {
			t.Fatalf("%s\n%s", r.wrong, r.trace)
		}
	}
}

// TestExplore_Mutants wants the explorer to find what is wrong in each mutant, and logs how.
func TestExplore_Mutants(t *testing.T) {
	const rewrites = 1 << failover
	for _, c := range []struct {
		name string
		m    mutant
		b    bounds
	}{
		{"head not watched", mutant{headNotWatched: true}, bounds{1, 2, 1, 1 << sendLate}},
		{"epoch not compared", mutant{epochNotCompared: true}, bounds{1, 1, 1, 1 << sendLate}},
		{"script without compare", mutant{scriptNotCompared: true}, bounds{2, 2, 1, 1<<fill | 1<<sendLate}},
		{"resend without reading", mutant{resendsBlindly: true}, bounds{2, 3, 1, rewrites | 1<<loseReply}},
		{"acquire not conditional on the record", mutant{acquiresBlindly: true}, bounds{0, 0, 2, 0}},
		{"no margin at two thirds", mutant{noMargin: true}, bounds{1, 0, 1, 1 << slowTick}},
		{"term counted from the answer", mutant{countsFromAnswer: true}, bounds{1, 0, 1, 1 << slowTick}},
		{"record watched across a failover", mutant{watchesAcrossFailover: true}, bounds{2, 0, 1, rewrites | 1<<slowTick}},
		{"answer before the group", mutant{answersEarly: true}, bounds{1, 2, 1, 1 << loseReply}},
		{"grant answered without its lock", mutant{answersFailedLock: true}, bounds{1, 1, 1, 1 << lockByHand}},
		{"requeue before the deadline", mutant{requeuesEarly: true}, bounds{0, 2, 1, 0}},
		{"renewal kept in the lock only", mutant{renewsLockOnly: true}, bounds{1, 3, 1, 1 << expire}},
		{"read of what is not kept", mutant{readsMemory: true}, bounds{0, 1, 1, 0}},
		{"fallen epoch accepted", mutant{fallenEpoch: true}, bounds{1, 0, 2, rewrites}},
		{"fence from the clock only", mutant{clockFence: true}, bounds{1, 3, 1, 1 << stepBack}},
		{"sequence used again", mutant{reusesSequence: true}, bounds{2, 3, 0, rewrites | 1<<sendLate}},
		{"rewrite without deletes", mutant{rewriteWithoutDeletes: true}, bounds{1, 2, 1, rewrites}},
		{"rewrite deletes first", mutant{rewriteDeletesFirst: true}, bounds{1, 2, 1, rewrites}},
		{"rewrite without locks", mutant{rewriteOmitsLocks: true}, bounds{1, 3, 1, rewrites}},
		{"rewrite follows the last confirmed head", mutant{rewriteFollowsKept: true}, bounds{1, 1, 1, rewrites}},
		{"loss not noticed without work", mutant{renewsBlindly: true}, bounds{1, 1, 1, rewrites}},
		{"full store without script", mutant{neverScripts: true}, bounds{1, 1, 1, 1 << fill}},
		{"answer after the term", mutant{answersLate: true}, bounds{2, 2, 1, 1<<pause | 1<<expire}},
		{"epoch without process", mutant{epochWithoutProcess: true}, bounds{1, 2, 2, rewrites}},
		{"memory loaded before the check", mutant{loadedEarly: true}, bounds{0, 0, 2, 0}},
		{"load not verified", mutant{loadsUnverified: true}, bounds{1, 2, 2, rewrites}},
		{"memory kept whatever the head", mutant{keepsMemory: true}, bounds{0, 1, 2, 0}},
		{"base forgotten", mutant{forgetsBase: true}, bounds{1, 2, 2, rewrites}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := explore(c.m, c.b)
			t.Logf("%d states, depth %d: %s\n%s", r.states, r.depth, r.wrong, r.trace)
			if r.wrong == "" {
				t.Errorf("not found in %d states", r.states)
			}
		})
	}
}
