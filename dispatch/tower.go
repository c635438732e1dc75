package dispatch

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
	limit int // of items in one flight

	mu   sync.Mutex // guards what follows, and what the mergers hold
	load int        // of flights under way
	line []*flight
}

// flight is about to make a call of the store, or makes one.
type flight struct {
	waiting func() int    // what it would carry now
	started chan struct{} // closed once it can start
	load    int           // for how many items it counts
	slow    *time.Timer   // nil while it does not count
}

// clear reports whether what comes now starts at once.
func (t *tower) clear() bool { return len(t.line) == 0 && t.load < t.limit }

// enter lets a flight start, or lines it up.
func (t *tower) enter(waiting func() int, atOnce bool) *flight {
	f := &flight{waiting: waiting, started: make(chan struct{})}
	switch {
	case waiting() >= t.limit/worthPart:
		close(f.started)
	case atOnce:
		t.start(f)
	default:
		t.line = append(t.line, f)
	}
	return f
}

// start counts a flight; one that gathered much in line for no more than what need
// not stand there, so that some are under way in any case.
func (t *tower) start(f *flight) {
	f.load = min(f.waiting(), t.limit/worthPart)
	t.load += f.load
	f.slow = time.AfterFunc(slowFlight, func() { t.land(f) })
	close(f.started)
}

// land lets those start for which a flight makes room.
func (t *tower) land(f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.slow == nil {
		return
	}
	f.slow.Stop()
	f.slow = nil
	t.load -= f.load
	n := 0
	for ; n < len(t.line) && t.load < t.limit; n++ {
		t.start(t.line[n])
	}
	t.line = slices.Delete(t.line, 0, n)
}
