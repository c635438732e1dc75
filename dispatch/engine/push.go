package engine

import (
	"slices"
	"sync"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Push is what a dispatcher sends to a collector before its next beat.
type Push struct {
	// Cancel asks the holder of leases to stop.
	Cancel []CancelNotice
	// Held: a hold stops the collector.
	Held bool
	// Replaced: another session of the collector has begun. It may be an older one; only the answer to a beat is
	// reliable.
	Replaced bool
}

// CancelNotice asks the holder of a lease to stop.
type CancelNotice struct {
	ID     dispatch.TaskID
	Reason dispatch.CancelReason
}

// maxPushed limits the pending cancels of one stream. The others come with the next beat.
const maxPushed = 1000

// pushes are the open heartbeat streams of this dispatcher. A lost push is harmless: the answer to the next beat has
// the same.
type pushes struct {
	mu      sync.Mutex                      // guards streams, and what is pending in each
	streams map[string]map[*Stream]struct{} // by collector
}

// Stream is an open heartbeat stream of a collector.
type Stream struct {
	pushes  *pushes
	info    dispatch.CollectorInfo
	held    bool // as was pushed last
	pending Push
	ready   chan struct{}
}

// Ready has a value when there is something to take.
func (s *Stream) Ready() <-chan struct{} { return s.ready }

// Take returns what must be pushed now.
func (s *Stream) Take() Push {
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	pending := s.pending
	pending.Held = s.held
	s.pending = Push{}
	return pending
}

// Close ends the subscription; nil has none.
func (s *Stream) Close() {
	if s == nil {
		return
	}
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	of := s.pushes.streams[s.info.ID]
	if delete(of, s); len(of) == 0 {
		delete(s.pushes.streams, s.info.ID)
	}
}

// change calls pending for the streams of a collector, or for all if collector is empty. A stream has something to push
// if pending returns true.
func (p *pushes) change(collector string, pending func(*Stream) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := func(s *Stream) {
		if pending(s) {
			select {
			case s.ready <- struct{}{}:
			default:
			}
		}
	}
	if collector != "" {
		for s := range p.streams[collector] {
			changed(s)
		}
		return
	}
	for _, streams := range p.streams {
		for s := range streams {
			changed(s)
		}
	}
}

// endSessions pushes Replaced to all sessions of a collector except current.
func (p *pushes) endSessions(collector, current string) {
	p.change(collector, func(s *Stream) bool {
		s.pending.Replaced = s.pending.Replaced || s.info.Session != current
		return s.pending.Replaced
	})
}

// cancel pushes a request to stop to the holder of a lease.
func (p *pushes) cancel(collector string, notice CancelNotice) {
	p.change(collector, func(s *Stream) bool {
		if len(s.pending.Cancel) >= maxPushed || slices.Contains(s.pending.Cancel, notice) {
			return false
		}
		s.pending.Cancel = append(s.pending.Cancel, notice)
		return true
	})
}

// holdsChanged pushes to the streams with a change of Held.
func (p *pushes) holdsChanged(stops func(collector string, labels map[string]string) bool) {
	p.change("", func(s *Stream) bool {
		before := s.held
		s.held = stops(s.info.ID, s.info.Labels)
		return s.held != before
	})
}
