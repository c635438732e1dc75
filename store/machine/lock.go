package machine

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// The lock of a leased record is in its lease. A stray lock belongs to a task that is not leased: left by a failover,
// or set by hand. Where the backend has locks ([Shard.Keyed]), a lease has what the lock must be: the machine learns what it is when
// a grant or a renewal finds it otherwise ([Unlocked]).

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

// lock is what happens to the lock of a leased record.
func (r *record) lock(write codec.LockWrite, now int64) codec.Lock {
	return codec.Lock{Task: string(r.id()), Token: r.lease.token().String(), Write: write, TTL: r.lease.deadline - now}
}

// setLock notes what happens to the lock of a leased record.
func (s *Shard) setLock(r *record, write codec.LockWrite) {
	if s.Keyed {
		r.lease.lockTerm = s.lockTerm
		s.locks = append(s.locks, r.lock(write, s.now))
	}
}

// renewLock notes that a lock is renewed which would have ended then. If somebody has deleted it, the lease ends, unless it may have
// been lost otherwise.
func (s *Shard) renewLock(r *record, ends int64) {
	if !s.Keyed {
		return
	}
	write := codec.LockRenew
	if r.lease.lockTerm != s.lockTerm {
		write = codec.LockAgain
	}
	s.setLock(r, write)
	s.locks[len(s.locks)-1].Ends = ends
}

// lockSlack is how far the clock by which locks end may be from that of the shard, in ms: what differs more is taken for a step.
const lockSlack = 1000

// LocksLost notes that locks may have been lost: by a failover, an outage or a takeover.
func (s *Shard) LocksLost() { s.lockTerm++ }

// Unlocked undoes what a group could not do to locks. A grant that met the lock of somebody else never was: its task is an orphan
// until that lock ends. A lease whose lock somebody has deleted ends.
type Unlocked struct {
	Drains
	Locks []UnlockedLock

	// Changed: something was undone.
	Changed bool
}

// UnlockedLock is what a group has found: a grant the lock of somebody else, with the time that it lasts, 0 for without end; a
// renewal nothing.
type UnlockedLock struct {
	Task, Token string
	Value       string
	TTL         time.Duration
	Ends        int64 // when the lock that a renewal has not found would have ended
}

// Run implements [Command].
func (c *Unlocked) Run(s *Shard) {
	for i := range c.Locks {
		lock := &c.Locks[i]
		r := s.find(dispatch.TaskID(lock.Task))
		if r == nil || r.lease == nil || r.lease.token().String() != lock.Token {
			continue
		}
		if lock.Value == "" && lock.Ends != 0 && lock.Ends <= s.now+lockSlack {
			continue // it has run out, and the renewal has set it again
		}
		s.Undone++
		c.Changed = true
		if lock.Value == "" {
			s.setLock(r, codec.LockRelease)
			s.moveDeadline(r, s.now)
			r.lease.lockDeleted = true
			continue
		}
		stray := strayLock{value: lock.Value, until: ms.Infinite}
		if lock.TTL > 0 {
			stray.until = s.now + ms.Span(lock.TTL)
		}
		s.undoGrant(r, stray)
	}
}
