package engine

import (
	"slices"
	"sync"
	"time"
)

const (
	// worthPart of what a flight can carry is worth a call of the store: with that many
	// items the call itself costs a fifth of them, and waiting for more gains little.
	worthPart = 4
	// slowFlight is how long a flight keeps others from starting: a shard that hangs
	// does so no longer, and one that is only busy has mostly answered by then.
	slowFlight = 20 * time.Millisecond
)

// tower lets the flights of one kind start, to all shards. A call of the store costs
// as much as several items, and callers who bring many items to many shards bring one
// or two to each. So of flights with few items, no more are under way than carry
// together what one could; the others wait in line, shard after shard, and what comes
// for the same shard meanwhile goes along. While there is room, all that a caller
// brings starts at once, however much it is.
type tower struct {
	limit int        // of items in one flight
	late  lateTimers // of who waits for one

	mu      sync.Mutex // guards what follows, and what the mergers hold
	load    int        // of those in the air
	air     []*flight  // that count, in the order in which they started
	line    []*flight
	watched bool // it will be looked for slow ones
}

// flight is about to make a call of the store, or makes one.
type flight struct {
	waiting *int          // items that it would carry now
	started chan struct{} // closed once it can start; nil when it could at once
	load    int           // for how many items it counts; 0 = it does not
	since   time.Time     // when it started
}

// clear reports whether what comes now starts at once.
func (t *tower) clear() bool { return len(t.line) == 0 && t.load < t.limit }

// enter lets a flight start, or lines it up.
func (t *tower) enter(waiting *int, atOnce bool) *flight {
	f := &flight{waiting: waiting}
	switch {
	case *waiting >= t.limit/worthPart:
	case atOnce:
		t.start(f)
	default:
		f.started = make(chan struct{})
		t.line = append(t.line, f)
		t.watch()
	}
	return f
}

// start counts a flight; one that gathered much in line for no more than what need
// not stand there, so that some are under way in any case.
func (t *tower) start(f *flight) {
	if f.load = min(*f.waiting, t.limit/worthPart); f.load > 0 {
		f.since = time.Now()
		t.load, t.air = t.load+f.load, append(t.air, f)
	}
}

// land lets those start for which a flight makes room.
func (t *tower) land(f *flight) {
	if f.load > 0 {
		t.leave(f)
		t.next()
	}
}

// leave ends that a flight counts.
func (t *tower) leave(f *flight) {
	t.load, f.load = t.load-f.load, 0
	i := slices.Index(t.air, f)
	t.air = slices.Delete(t.air, i, i+1)
}

func (t *tower) next() {
	n := 0
	for ; n < len(t.line) && t.load < t.limit; n++ {
		t.start(t.line[n])
		close(t.line[n].started)
	}
	t.line = slices.Delete(t.line, 0, n)
}

// watch lets slow flights count no longer while others wait.
func (t *tower) watch() {
	if t.watched || len(t.line) == 0 {
		return
	}
	t.watched = true
	time.AfterFunc(slowFlight-time.Since(t.air[0].since), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for len(t.air) > 0 && time.Since(t.air[0].since) >= slowFlight {
			t.leave(t.air[0])
		}
		t.next()
		t.watched = false
		t.watch()
	})
}
