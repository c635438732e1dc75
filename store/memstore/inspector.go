package memstore

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Inspector is for tests. It does to a [Store] what an operator can do to Redis with redis-cli: read, set and delete
// locks and records.
type Inspector struct {
	store *Store
}

// Inspect gives the store's inspector.
func (s *Store) Inspect() Inspector { return Inspector{store: s} }

// LockValue is the lease token in the lock of the task, and its TTL, 0 = no end; empty if there is no lock.
func (i Inspector) LockValue(id dispatch.TaskID) (token string, left time.Duration) {
	sh := i.store.shardOfTask(id)
	if sh == nil {
		return "", 0
	}
	sh.look(func(sh *shard) {
		token, left = sh.lockValue(id)
	})
	return token, left
}

// lockValue is what the lock of a task has, and for how long; 0: without end.
func (s *shard) lockValue(id dispatch.TaskID) (token string, left time.Duration) {
	lock, stands := s.lockOf(id)
	switch {
	case !stands:
		return "", 0
	case lock.until == infinite:
		return lock.value, 0
	}
	return lock.value, duration(lock.until - s.now)
}

// DeleteLock deletes the lock of the task.
func (i Inspector) DeleteLock(id dispatch.TaskID) { i.do(&handCommand{id: id, deleteLock: true}) }

// SetLock sets the lock of the task, as a failover might leave it, or somebody by hand; with a ttl of 0 it has no end.
func (i Inspector) SetLock(id dispatch.TaskID, value string, ttl time.Duration) {
	i.do(&handCommand{id: id, setLock: true, value: value, ttl: span(ttl)})
}

// DeleteRecord deletes the record of the task and nothing else: indexes, locks and counts keep it until they are next
// read.
func (i Inspector) DeleteRecord(id dispatch.TaskID) { i.do(&handCommand{id: id, deleteRecord: true}) }

func (i Inspector) do(c *handCommand) {
	if sh := i.store.shardOfTask(c.id); sh != nil {
		_, _ = sh.perform(c) // a test that cannot write the journal fails by its next call
	}
}

// handCommand is one change of an [Inspector].
type handCommand struct {
	drains
	id                                dispatch.TaskID
	deleteLock, setLock, deleteRecord bool
	value                             string
	ttl                               int64
}

func (c *handCommand) run(s *shard) {
	switch r := s.records.get(keyOf(c.id)); {
	case c.deleteLock:
		s.deleteLock(c.id, r)
	case c.setLock:
		s.setLock(c.id, r, c)
	case c.deleteRecord && r != nil:
		s.deleteRecord(r)
	}
}

func (s *shard) deleteLock(id dispatch.TaskID, r *record) {
	if r != nil && r.lease != nil {
		s.change(r, partState)
		r.lease.lockedUntil = 0
	}
	s.dropStray(id)
}

func (s *shard) setLock(id dispatch.TaskID, r *record, c *handCommand) {
	lock := strayLock{value: c.value, until: infinite}
	if c.ttl > 0 {
		lock.until = s.now + c.ttl
	}
	if r == nil || r.lease == nil {
		s.setStray(id, lock)
		return
	}
	s.change(r, partState)
	r.lease.byHand, r.lease.lockedUntil = lock.value, lock.until
}

func (s *shard) deleteRecord(r *record) {
	s.change(r, partState)
	if lock, stands := s.lockOf(r.id); stands && r.lease != nil {
		s.setStray(r.id, lock)
	}
	r.gone = true
	s.records.remove(keyOf(r.id))
	s.ghosts[r.id] = r
}
