package machine

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// LockValue is what the lock of a task has, and for how long; 0: without end.
func (s *Shard) LockValue(id dispatch.TaskID) (token string, left time.Duration) {
	lock, stands := s.lockOf(id)
	switch {
	case !stands:
		return "", 0
	case lock.until == ms.Infinite:
		return lock.value, 0
	}
	return lock.value, ms.Duration(lock.until - s.now)
}

// Hand sets or deletes the lock of a task, as somebody can by hand in Redis: it is for tests.
type Hand struct {
	Drains
	ID                  dispatch.TaskID
	DeleteLock, SetLock bool
	Value               string
	TTL                 int64
}

// Run implements [Command].
func (c *Hand) Run(s *Shard) {
	switch r := s.find(c.ID); {
	case c.DeleteLock:
		s.deleteLock(c.ID, r)
	case c.SetLock:
		s.replaceLock(c.ID, r, c)
	}
}

func (s *Shard) deleteLock(id dispatch.TaskID, r *record) {
	if r != nil && r.lease != nil {
		s.change(r, partState)
		r.lease.lockedUntil = 0
	}
	s.dropStray(id)
}

func (s *Shard) replaceLock(id dispatch.TaskID, r *record, c *Hand) {
	lock := strayLock{value: c.Value, until: ms.Infinite}
	if c.TTL > 0 {
		lock.until = s.now + c.TTL
	}
	if r == nil || r.lease == nil {
		s.setStray(id, lock)
		return
	}
	s.change(r, partState)
	r.lease.byHand, r.lease.lockedUntil = lock.value, lock.until
}
