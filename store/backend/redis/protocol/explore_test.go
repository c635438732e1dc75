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

// explore visits every state that is reachable from the first within b, nearest first, so that a counterexample is the shortest. It
// stops at the first one.
func explore(m mutant, b bounds, first state) result {
	all, seed := events(), maphash.MakeSeed()
	visited := map[uint64]struct{}{}
	key := func(s *state) uint64 {
		swapped := s.swap()
		return min(maphash.Comparable(seed, *s), maphash.Comparable(seed, swapped))
	}
	visited[key(&first)] = struct{}{}
	// Each state is known by its number; how it was reached is enough to build it again.
	from, by := []uint32{0}, []event{{}}
	var waits queue
	waits.push(&first)
	r := result{}
	for at, level := 0, 1; at < len(by); at++ {
		if at == level {
			r.depth++
			level = len(by)
		}
		before := waits.pop()
		for _, e := range all {
			if !before.can(m, b, e) {
				continue
			}
			s := *before
			s.do(m, e)
			s.canonical(m, b)
			r.transitions++
			h := key(&s)
			if _, ok := visited[h]; ok {
				continue
			}
			visited[h] = struct{}{}
			n := uint32(len(by))
			from, by = append(from, uint32(at)), append(by, e)
			r.wrong = s.check(m)
			if r.wrong == "" && n%recoverEvery == 0 {
				if r.wrong = s.recovers(m, all, false); r.wrong == "" && s.full {
					r.wrong = s.recovers(m, all, true)
				}
			}
			if r.wrong != "" {
				var way string // that a recovery took beyond this state
				r.wrong, way, _ = strings.Cut(r.wrong, "\n")
				r.states, r.trace = len(by), trace(m, b, first, path(from, by, n))+way
				return r
			}
			waits.push(&s)
		}
	}
	r.states = len(by)
	return r
}

// queue has states in the order of their numbers, in pages that are freed once all of their states were taken.
type queue struct {
	pages [][]state
	taken int // of the first page
}

func (q *queue) push(s *state) {
	const page = 128
	last := len(q.pages) - 1
	if last < 0 || len(q.pages[last]) == page {
		q.pages = append(q.pages, make([]state, 0, page))
		last++
	}
	q.pages[last] = append(q.pages[last], *s)
}

func (q *queue) pop() *state {
	page := q.pages[0]
	s := &page[q.taken]
	if q.taken++; q.taken == cap(page) {
		q.pages[0], q.pages, q.taken = nil, q.pages[1:], 0
	}
	return s
}

// path returns the events that lead to state n.
func path(from []uint32, by []event, n uint32) (events []event) {
	for ; n != 0; n = from[n] {
		events = append(events, by[n])
	}
	slices.Reverse(events)
	return events
}

// trace lists events, one a line, each with the store after it.
func trace(m mutant, b bounds, s state, path []event) string {
	var text strings.Builder
	for i, e := range path {
		s.do(m, e)
		s.canonical(m, b)
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
func (s *state) canonical(m mutant, b bounds) {
	if s.faults >= b.faults {
		s.once, s.replica, s.lagging = 0, store{}, false
	}
	if !s.lagging {
		s.replica = store{}
	}
	if !s.late.valid {
		s.late = message{}
	}
	s.canonicalFeed(m, b)
	beats := [3 + processes]*uint8{&s.primary.beat, &s.replica.beat, &s.script.beat}
	for p := range s.procs {
		o := &s.procs[p]
		beats[3+p] = &o.watchBeat
		if !o.watching || s.acquires >= b.acquires { // nobody can act on what is watched any more
			o.watching = false
			o.watched, o.watchBeat = 0, 0
		}
		if !o.renewing {
			o.renewAge = 0
		}
		if o.phase == candidate {
			o.age, o.epoch, o.lost, o.doubt, o.broken, o.outdated = 3, epoch{}, false, false, false, false
		} else {
			o.watching, o.watched, o.watchBeat = false, 0, 0
		}
		if !o.line.loaded && o.phase != loading {
			o.kept, o.mem, o.fence, o.group, o.undo, o.rewrite = [tasks]item{}, [tasks]item{}, 0, group{}, 0, 0
			o.line = line{}
		}
		for k, it := range o.mem {
			o.spares[k] = o.spares[k] && o.phase == ready && it.state == leased && past(it, s.over[k])
		}
	}
	for k, it := range s.primary.items {
		s.gap[k] = s.gap[k] && it.state == leased && past(it, s.over[k])
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
		swap(&q.follower.has.epoch, &q.follower.next.epoch, &q.follower.gone)
		swap(&q.follower.held.after.epoch, &q.follower.held.head.epoch)
	}
	swap(&o.script.epoch, &o.script.own, &o.feed.epoch)
	for i := range o.feed.groups {
		swap(&o.feed.groups[i].after.epoch, &o.feed.groups[i].head.epoch)
	}
	for _, p := range []*uint8{&o.script.from, &o.feed.from, &o.feed.to} {
		if *p > 0 {
			*p = 3 - *p
		}
	}
	for _, p := range []*uint8{&o.primary.standby, &o.replica.standby, &o.script.standby} {
		if *p > 1 {
			*p = 5 - *p
		}
	}
	if o.torn > 1 && o.torn != nobody {
		o.torn = 5 - o.torn
	}
	return o
}

// TestExplore_Protocol wants no invariant broken in any state within the bounds. WAGGLE_EXPLORE=long takes the larger ones.
func TestExplore_Protocol(t *testing.T) {
	const (
		plain  = 1<<breakStream - 1 // without delayed scripts
		breaks = 1<<breakStream | 1<<kill | 1<<failover | 1<<handOver
	)
	type run struct {
		b     bounds
		first state
		m     mutant // what is allowed to be different
	}
	late := mutant{standbyMutant: standbyMutant{feedsAfter: true}}
	runs := []run{ // seconds
		{b: bounds{faults: 1, commands: 2, acquires: 1}, first: initial()},
		{b: bounds{faults: 1, commands: 1, acquires: 2}, first: initial()},
		{b: bounds{faults: 2, commands: 1, acquires: 1, only: 1<<failover | 1<<sendLate | 1<<loseReply | 1<<pause}, first: initial()},
		{b: bounds{faults: 1, commands: 2, acquires: 1, only: breaks | 1<<sendLate | 1<<expire}, first: initial().warmed(1)},
		{b: bounds{faults: 1, commands: 1, acquires: 2, only: 1 << sendLate}, first: initial().warmed(1)},
		{b: bounds{faults: 1, commands: 1, acquires: 1, only: breaks}, first: initial().following(1)},
		{b: bounds{faults: 2, commands: 1, acquires: 1, only: 1<<breakStream | 1<<failover}, first: initial().warmed(0)},
		{b: bounds{faults: 1, commands: 2, acquires: 1, only: breaks}, first: initial().warmed(0), m: late},
	}
	if os.Getenv("WAGGLE_EXPLORE") == "long" {
		runs = []run{
			{b: bounds{faults: 1, commands: 4, acquires: 2}, first: initial()},
			{b: bounds{faults: 2, commands: 2, acquires: 2, only: plain}, first: initial()},
			{b: bounds{faults: 2, commands: 3, acquires: 2, only: 1<<failover | 1<<sendLate}, first: initial()},
			{b: bounds{faults: 3, commands: 2, acquires: 1, only: plain}, first: initial()},
			{b: bounds{faults: 3, commands: 1, acquires: 2, only: 1<<failover | 1<<pause}, first: initial()},
			{b: bounds{faults: 3, commands: 2, acquires: 2, only: 1<<sendLate | 1<<pause | 1<<expire}, first: initial()},
			{b: bounds{faults: 3, commands: 3, acquires: 1, only: 1<<failover | 1<<sendLate | 1<<pause | 1<<expire}, first: initial()},
			{b: bounds{faults: 2, commands: 2, acquires: 1}, first: initial().warmed(1)},
			{b: bounds{faults: 1, commands: 2, acquires: 2}, first: initial().warmed(1)},
			{b: bounds{faults: 2, commands: 1, acquires: 2, only: breaks}, first: initial().warmed(1)},
			{b: bounds{faults: 3, commands: 1, acquires: 1, only: breaks | 1<<renewLate | 1<<acquireLate}, first: initial().warmed(1)},
			{b: bounds{faults: 3, commands: 1, acquires: 1, only: breaks | 1<<sendLate | 1<<pause}, first: initial().warmed(1)},
			{b: bounds{faults: 2, commands: 2, acquires: 1, only: breaks | 1<<sendLate}, first: initial().following(1)},
			{b: bounds{faults: 2, commands: 2, acquires: 1, only: breaks | 1<<sendLate}, first: initial().warmed(1), m: late},
		}
	}
	for _, r := range runs {
		begin := time.Now()
		found := explore(r.m, r.b, r.first)
		t.Logf("%d faults, %d commands, %d acquires, %d streams: %d states, depth %d, %d transitions in %v", r.b.faults, r.b.commands,
			r.b.acquires, r.first.streams, found.states, found.depth, found.transitions, time.Since(begin).Round(time.Millisecond))
		if found.wrong != "" {
			t.Fatalf("%s\n%s", found.wrong, found.trace)
		}
	}
}
