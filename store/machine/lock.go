package machine

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// The lock of a leased record is in its lease. A stray lock belongs to a task that is not leased: left by a failover,
// or set by hand.

// lockOf returns the lock of a task by its id; ok is false if there is none.
func (s *Shard) lockOf(id dispatch.TaskID) (found strayLock, ok bool) {
	r := s.find(id)
	switch {
	case r == nil || r.lease == nil:
		found = s.strays[id]
	case r.lease.byHand != "":
		found = strayLock{value: r.lease.byHand, until: r.lease.lockedUntil}
	default:
		found = strayLock{value: r.lease.token().String(), until: r.lease.lockedUntil}
	}
	return found, found.until > s.now
}

// strayUntil reports whether a task that is not leased has a lock, and until when.
func (s *Shard) strayUntil(r *record) (int64, bool) {
	if len(s.strays) == 0 {
		return 0, false
	}
	until := s.strays[r.id()].until
	return until, until > s.now
}

// nextLook is when an orphan is checked again, given the end of its lock.
func (s *Shard) nextLook(ends int64) int64 { return min(ends, s.now+ms.Span(dispatch.OrphanLook)) }

// tellStray returns the stray lock of a waiting record; nil: none.
func (s *Shard) tellStray(r *record) *dispatch.StrayLock {
	until, stands := s.strayUntil(r)
	switch {
	case stands:
		value := s.strays[r.id()].value
		told := &dispatch.StrayLock{Value: value[:min(len(value), bounds.MaxLockValue)]}
		if until != ms.Infinite {
			told.Ends = ms.Time(until)
		}
		return told
	case r.stands == inLeases:
		return &dispatch.StrayLock{Ends: ms.Time(r.score)}
	}
	return nil
}

// setStray keeps a lock that no lease has, until it ends.
func (s *Shard) setStray(id dispatch.TaskID, lock strayLock) {
	s.dropStray(id)
	s.changeNamed(codec.Stray, string(id))
	s.strays[id] = lock
	s.forgetStrays.Insert(lock.until, strayTask(id))
}

// dropStray forgets the stray lock of the task, if there is one.
func (s *Shard) dropStray(id dispatch.TaskID) {
	if old, ok := s.strays[id]; ok {
		s.changeNamed(codec.Stray, string(id))
		s.forgetStrays.Remove(old.until, strayTask(id))
		delete(s.strays, id)
	}
}

// dropStrayOf is dropStray of a record. There are mostly none, and then no id is needed.
func (s *Shard) dropStrayOf(r *record) {
	if len(s.strays) > 0 {
		s.dropStray(r.id())
	}
}
