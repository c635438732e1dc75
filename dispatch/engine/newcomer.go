package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	// NewcomerMemory is how long a newcomer is remembered after its last call, here and in the store.
	NewcomerMemory = 5 * time.Minute
	newcomerSweep  = 30 * time.Second
	newcomerPage   = 500 // newcomers that one sweep step asks the store about
	// newcomerPlace is how many bytes of what a newcomer sends about itself take one place.
	newcomerPlace = 2 << 10
)

// Newcomer is a collector id that calls, as [Dispatcher.Meet] counts it.
type Newcomer struct {
	Peer      string // the identity or address that uses the id
	Collector string
	Size      int         // bytes that it sends about itself
	Leases    []LeaseBeat // some that the call names
}

// newcomers are the collector ids that called lately. Ids cost nothing to invent, and each has a record in the store: so
// those that this dispatcher has granted nothing are bounded by peer, and forgotten soon.
type newcomers struct {
	mu    sync.Mutex // guards the rest
	met   map[string]*newcomer
	taken map[string]int // places by peer
}

type newcomer struct {
	peer        string
	places      int // 0: it is none any more
	first, last time.Time
}

// Meet reports whether a collector may call: it has been granted something, it holds a lease, or its peer has at most most
// places for newcomers. A newcomer takes a place for each 2 KiB that it sends about itself. Meet comes before anything of
// the id is kept.
func (d *Dispatcher) Meet(ctx context.Context, n Newcomer, most int) bool {
	if d.newcomers.meet(&n, most) {
		return true
	}
	held, err := d.holdsLease(ctx, n.Collector, n.Leases)
	if held {
		d.newcomers.granted(n.Collector)
	}
	return held || err != nil && ctx.Err() == nil // while its shard is away nobody can know
}

// IsNewcomer reports whether this dispatcher has granted nothing to a collector id that it has met lately.
func (d *Dispatcher) IsNewcomer(collector string) bool {
	d.newcomers.mu.Lock()
	defer d.newcomers.mu.Unlock()
	found := d.newcomers.met[collector]
	return found != nil && found.places > 0
}

// holdsLease reports whether one of the leases is the collector's.
func (d *Dispatcher) holdsLease(ctx context.Context, collector string, leases []LeaseBeat) (held bool, err error) {
	for _, lease := range leases {
		token, malformed := dispatch.ParseLeaseToken(lease.Token)
		if malformed != nil || token.Collector != collector || lease.ID.Slot() < 0 {
			continue
		}
		found, _, failed := d.store.Tasks(ctx, []dispatch.TaskID{lease.ID}, false)
		if failed != nil {
			err = failed
		} else if t := found[0]; t != nil && t.Lease != nil && t.Lease.Digest == token.Digest() {
			return true, nil
		}
	}
	return false, err
}

// meet notes a call, unless its peer has too many newcomers.
func (s *newcomers) meet(n *Newcomer, most int) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.met[n.Collector]
	switch {
	case found == nil:
		found = &newcomer{peer: n.Peer, first: now}
	case found.places == 0:
		found.last = now
		return true
	}
	more := max(1+n.Size/newcomerPlace-found.places, 0)
	if s.taken[found.peer]+more > most {
		return more == 0
	}
	s.taken[found.peer] += more
	found.places += more
	found.last = now
	s.met[n.Collector] = found
	return true
}

// granted notes that a collector is no newcomer any more.
func (s *newcomers) granted(collector string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.met[collector]
	if found == nil {
		found = &newcomer{last: time.Now()}
		s.met[collector] = found
	}
	s.free(found)
}

// free frees the places of a newcomer.
func (s *newcomers) free(n *newcomer) {
	if s.taken[n.peer] -= n.places; s.taken[n.peer] <= 0 {
		delete(s.taken, n.peer)
	}
	n.places = 0
}

// silent drops collectors that were granted something and have not called lately, and returns the newcomers that have not.
func (s *newcomers) silent() map[string]newcomer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]newcomer)
	for id, n := range s.met {
		switch {
		case time.Since(n.last) < NewcomerMemory:
		case n.places == 0:
			delete(s.met, id)
		default:
			out[id] = *n
		}
	}
	return out
}

// seen notes when a collector called another dispatcher; if it has not lately, it is dropped.
func (s *newcomers) seen(id string, ago time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.met[id]
	if last := time.Now().Add(-ago); last.After(n.last) {
		n.last = last
	}
	if time.Since(n.last) >= NewcomerMemory {
		s.free(n)
		delete(s.met, id)
	}
}

// forgetNewcomers has the store forget newcomers that are silent, until ctx ends.
func (d *Dispatcher) forgetNewcomers(ctx context.Context) {
	failing := false
	for pause(ctx, newcomerSweep) {
		silent := d.newcomers.silent()
		var err error
		for page := range slices.Chunk(slices.Collect(maps.Keys(silent)), newcomerPage) {
			if err = d.forgetSilent(ctx, page, silent); err != nil {
				break
			}
		}
		if err != nil && !failing && ctx.Err() == nil {
			d.log.Warn("failed to forget collectors that were granted nothing", zap.Error(err))
		}
		failing = err != nil
	}
}

// forgetSilent forgets those of a page that have called no dispatcher lately. Those that hold leases, or were known before
// this dispatcher met them, are remembered as all others are.
func (d *Dispatcher) forgetSilent(ctx context.Context, page []string, silent map[string]newcomer) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	now, err := d.store.Now(ctx)
	if err != nil {
		return err
	}
	records, err := d.store.ListCollectors(ctx, dispatch.CollectorFilter{IDs: page, Held: true}, "", 0)
	if err != nil {
		return err
	}
	var forgotten []string
	for i, r := range records {
		knownBefore := r != nil && now.Sub(r.First) > time.Since(silent[page[i]].first)+newcomerSweep
		if r != nil && r.Held == 0 && !knownBefore && now.Sub(r.Seen) >= NewcomerMemory {
			forgotten = append(forgotten, page[i])
		}
	}
	if len(forgotten) > 0 {
		before := now.Add(time.Millisecond - NewcomerMemory) // also those seen just then
		if _, err = d.store.Forget(ctx, forgotten, before, len(forgotten)); err != nil {
			return err
		}
	}
	for i, id := range page {
		ago := NewcomerMemory
		if records[i] != nil {
			ago = now.Sub(records[i].Seen)
		}
		d.newcomers.seen(id, ago)
	}
	return nil
}
