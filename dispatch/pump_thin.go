package dispatch

import "time"

// Over many shards, what is submitted falls apart into a task or two of each, and a claim
// costs the store as much by itself as several tasks, as do the calls of the fetch that
// gets no more. So where fetches come and go quickly, thin outlets are claimed from one
// after the other: more gathers in each before it has its turn again. While others wait
// for long, or nothing is under way, none waits.
const (
	// thinCounts is how long a claim from a thin outlet keeps others waiting: a shard that
	// hangs holds up no other for longer.
	thinCounts = 5 * time.Millisecond
	// thinPatience is how long the first of those in line has waited when the others are
	// claimed from as well: half of what a fetch may wait beside a task.
	thinPatience = 50 * time.Millisecond
)

// isThin reports whether a claim from the outlet is likely to give little: the last one
// has left nothing. What has to be asked everywhere, or by itself, is not kept waiting.
func (o *outlet) isThin() bool { return o.emptied && len(o.awaiting)+len(o.looks) == 0 }

// roomForThin is how many claims from thin outlets may begin now, and when more may if
// none comes back before.
func (ps *pool) roomForThin(now time.Time) (room int, until time.Time) {
	room, until = 1, now.Add(never)
	if len(ps.outlets) == 1 {
		return room, until
	}
	first := ps.firstInLine()
	if first != nil {
		until = first.since.Add(thinPatience)
	}
	if first == nil || !until.After(now) {
		return len(ps.outlets), now.Add(never)
	}
	for _, o := range ps.outlets {
		if counts := o.began.Add(thinCounts); o.flights > 0 && o.isThin() && counts.After(now) {
			room, until = 0, earlier(until, counts)
		}
	}
	return room, until
}

// firstInLine is the plain waiter that has waited for longest of those that are offered to
// no outlet.
func (ps *pool) firstInLine() *waiter {
	for e := ps.plain.Front(); e != nil && ps.busy < ps.plain.Len(); e = e.Next() {
		if w := e.Value.(*waiter); !w.busy {
			return w
		}
	}
	return nil
}

// isOverdue reports whether the outlet has been open for as long as one may be kept waiting.
func (o *outlet) isOverdue(now time.Time) bool {
	return o.flights == 0 && !now.Before(o.retryAt) && !o.until.Add(thinPatience).After(now)
}

// overdue is the one of those that opened first: it is claimed from before any other.
func (ps *pool) overdue(now time.Time) (first *outlet) {
	for _, o := range ps.outlets {
		if o.isOverdue(now) && (first == nil || o.until.Before(first.until)) {
			first = o
		}
	}
	return first
}
