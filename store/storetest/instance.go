package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Factory makes an empty store for one test, and whatever ends it when the test
// ends. It may call t.Parallel first when its instances have a clock each.
type Factory func(t *testing.T, opts Options) Instance

// Options say what kind of store a test needs.
type Options struct {
	// Shards of the store, at least 1.
	Shards int
}

// Instance is an empty store under test, and what the tests need to reach
// around the contract. All fields but Restart are required, in the model test SetLock and DeleteLock neither.
type Instance struct {
	Store dispatch.Store
	// Clock is the store's clock, which stands still but for its methods.
	Clock Clock
	// DeleteLock removes the lock of a task, as an operator might by hand.
	DeleteLock func(id dispatch.TaskID)
	// SetLock sets a lock as a failover might leave it behind, or somebody by hand; with a
	// ttl of 0 it has no end; nil: the model test neither sets nor deletes locks.
	SetLock func(id dispatch.TaskID, value string, ttl time.Duration)
	// LockValue reads the lock of a task and its time left, 0 = it has no end; empty = none.
	LockValue func(id dispatch.TaskID) (value string, ttl time.Duration)
	// Undoes: a grant is made and undone when it meets a lock that was set by hand. So the store knows only of locks that it has met,
	// as they were then.
	Undoes bool
	// Restart ends the store as the death of its process would, or a shutdown, and opens it again at the same instant: what
	// was acknowledged is there, nobody leads, and collectors were seen up to an hour earlier. nil: the model test makes no
	// restarts.
	Restart func() error
	// Copied: Restart copies the store into another one ([dispatch.Portable]) with as many shards. Leases have
	// [dispatch.OutageGrace] there.
	Copied bool
}

// Clock is a clock that stands still unless it is moved.
type Clock interface {
	// Now is what the clock shows, to the microsecond.
	Now() time.Time
	// Advance moves the clock, back when d is negative.
	Advance(d time.Duration)
	// Set moves the clock to now, which may be earlier than what it shows.
	Set(now time.Time)
}

// start is where every test begins. A whole second keeps failures readable.
var start = time.Date(2026, time.March, 2, 10, 0, 0, 0, time.UTC)

// StillClock is a [Clock] of a store in the test's process.
type StillClock struct {
	mu  sync.Mutex
	now time.Time
}

// NewStillClock makes a clock that stands at an instant.
func NewStillClock(now time.Time) *StillClock { return &StillClock{now: now} }

// Now implements [Clock].
func (c *StillClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance implements [Clock].
func (c *StillClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Set implements [Clock].
func (c *StillClock) Set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}
