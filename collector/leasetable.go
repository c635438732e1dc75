package collector

import (
	"sync"
	"time"
)

// idleBeat is the time between heartbeats while nothing is held.
const idleBeat = 15 * time.Second

// leaseTable holds the leases of a run.
type leaseTable struct {
	slots int

	mu      sync.Mutex        // guards everything below
	byToken map[string]*lease // until the report is answered
	working int               // handlers that have not returned
}

func newLeaseTable(slots int) *leaseTable {
	return &leaseTable{slots: slots, byToken: make(map[string]*lease)}
}

// add takes a lease up. A task that is granted anew proves that an earlier lease of it is gone; that one is returned.
func (t *leaseTable) add(l *lease) (stale *lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.byToken {
		if other.task.ID == l.task.ID && other.token != l.token {
			stale = other
		}
	}
	t.byToken[l.token] = l
	t.working++
	return stale
}

// returned notes that a handler has returned.
func (t *leaseTable) returned() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.working--
}

// forget drops a lease that is over.
func (t *leaseTable) forget(l *lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byToken, l.token)
}

// held counts the leases.
func (t *leaseTable) held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byToken)
}

// beaten are the leases to name in a heartbeat.
func (t *leaseTable) beaten() []*lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	leases := make([]*lease, 0, len(t.byToken))
	for _, l := range t.byToken {
		if l.beaten() {
			leases = append(leases, l)
		}
	}
	return leases
}

// beatInterval is the longest time between heartbeats: a third of the shortest lease.
func (t *leaseTable) beatInterval() time.Duration {
	interval := idleBeat
	for _, l := range t.beaten() {
		interval = min(interval, l.duration/3)
	}
	return interval
}

// running counts the handlers that have not returned, and those of them that are stuck.
func (t *leaseTable) running() (working, stuck int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.byToken {
		if l.isStuck() {
			stuck++
		}
	}
	return t.working, stuck
}

// free is how many tasks can be started at once: the free slots, while the leases held stay within twice the slots. A lease is
// held until its report is answered, so that fetching stops when no report is taken.
func (t *leaseTable) free() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return min(t.slots-t.working, 2*t.slots-len(t.byToken))
}

// full reports whether each slot has a handler that has not returned.
func (t *leaseTable) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.working >= t.slots
}

// find finds a lease by its token, or, when that is empty, the one of a task that still stands.
func (t *leaseTable) find(token, taskID string) *lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token != "" {
		return t.byToken[token]
	}
	for _, l := range t.byToken {
		if l.task.ID == taskID && l.beaten() {
			return l
		}
	}
	return nil
}
