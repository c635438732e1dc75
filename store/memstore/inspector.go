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

// on calls a function with the shard and the record of the task; nil: no record.
func (i Inspector) on(id dispatch.TaskID, work func(*shard, *record)) {
	if sh := i.store.shardOfTask(id); sh != nil {
		sh.run(func(sh *shard) { work(sh, sh.records.get(keyOf(id))) })
	}
}

// LockValue is the lease token in the lock of the task, and its TTL, 0 = no end; empty if there is no lock.
func (i Inspector) LockValue(id dispatch.TaskID) (token string, left time.Duration) {
	i.on(id, func(sh *shard, _ *record) {
		lock, stands := sh.lockOf(id)
		if stands {
			token = lock.value
		}
		if stands && lock.until != infinite {
			left = duration(lock.until - sh.now)
		}
	})
	return token, left
}

// DeleteLock deletes the lock of the task.
func (i Inspector) DeleteLock(id dispatch.TaskID) {
	i.on(id, func(sh *shard, r *record) {
		if r != nil && r.lease != nil {
			r.lease.lockedUntil = 0
		}
		sh.dropStray(id)
	})
}

// SetLock sets the lock of the task, as a failover might leave it, or somebody by hand; with a ttl of 0 it has no end.
func (i Inspector) SetLock(id dispatch.TaskID, value string, ttl time.Duration) {
	i.on(id, func(sh *shard, r *record) {
		lock := strayLock{value: value, until: infinite}
		if ttl > 0 {
			lock.until = sh.now + span(ttl)
		}
		if r != nil && r.lease != nil {
			r.lease.byHand, r.lease.lockedUntil = lock.value, lock.until
		} else {
			sh.setStray(id, lock)
		}
	})
}

// DeleteRecord deletes the record of the task and nothing else: indexes, locks and counts keep it until they are next
// read.
func (i Inspector) DeleteRecord(id dispatch.TaskID) {
	i.on(id, func(sh *shard, r *record) {
		if r == nil {
			return
		}
		if lock, stands := sh.lockOf(id); stands && r.lease != nil {
			sh.setStray(id, lock)
		}
		r.gone = true
		sh.records.remove(keyOf(id))
		sh.ghosts[id] = r
	})
}
