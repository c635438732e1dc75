package store

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Inspector is for tests. It does to the locks of a [Store] what an operator can do in Redis with redis-cli: read, set and delete
// them.
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
	sh.look(func(sh *machine.Shard) {
		token, left = sh.LockValue(id)
	})
	return token, left
}

// DeleteLock deletes the lock of the task.
func (i Inspector) DeleteLock(id dispatch.TaskID) { i.do(&machine.Hand{ID: id, DeleteLock: true}) }

// SetLock sets the lock of the task, as a failover might leave it, or somebody by hand; with a ttl of 0 it has no end.
func (i Inspector) SetLock(id dispatch.TaskID, value string, ttl time.Duration) {
	i.do(&machine.Hand{ID: id, SetLock: true, Value: value, TTL: ms.Span(ttl)})
}

func (i Inspector) do(c *machine.Hand) {
	if sh := i.store.shardOfTask(c.ID); sh != nil {
		_, _ = sh.perform(c) // a test whose backend fails learns it by its next call
	}
}
