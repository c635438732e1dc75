package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/redistest"
)

func TestShard_Locks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(1)
	c := client(t, server.Addr())
	for _, step := range []struct {
		what string
		by   codec.Lock
		want string
		bad  bool
	}{
		{"a grant", grant("c/t/5"), "c/t/5", false},
		{"the same grant", grant("c/t/5"), "c/t/5", false},
		{"a grant of a task that has a lock", grant("c/t/6"), "c/t/5", true},
		{"a release with another token", lock("c/t/6", codec.LockRelease), "c/t/5", false},
		{"a renewal", lock("c/t/7", codec.LockRenew), "c/t/7", false},
		{"a restore of an earlier lease", lock("c/t/6", codec.LockRestore), "c/t/7", false},
		{"a restore of a later lease", lock("c/t/8", codec.LockRestore), "c/t/8", false},
		{"a release", lock("c/t/8", codec.LockRelease), "", false},
		{"a restore of none", lock("c/t/8", codec.LockRestore), "c/t/8", false},
		{"another release", lock("c/t/8", codec.LockRelease), "", false},
		{"a renewal of none", lock("c/t/8", codec.LockRenew), "c/t/8", true},
		{"whatever it is", lock("c/t/1", codec.LockAgain), "c/t/1", false},
	} {
		o.keeps("1", step.what, step.by)
		if has := c.Get(t.Context(), redis.LockKey(prefix, 0, "1")).Val(); has != step.want {
			t.Errorf("%s: the lock is %q, want %q", step.what, has, step.want)
		}
		bad := o.takeUnlocked()
		if (len(bad) > 0) != step.bad {
			t.Errorf("%s: %v", step.what, bad)
		}
		if step.by.Write == codec.LockGrant && step.bad && (bad[0].Value != "c/t/5" || bad[0].TTL < 50*time.Second || bad[0].Token != "c/t/6") {
			t.Errorf("%s: %+v", step.what, bad)
		}
	}
	c.Set(t.Context(), redis.LockKey(prefix, 0, "1"), "by hand", 0)
	o.keeps("1", "restored", lock("c/t/9", codec.LockRestore))
	if has := c.Get(t.Context(), redis.LockKey(prefix, 0, "1")).Val(); has != "by hand" {
		t.Errorf("a foreign lock is %q", has)
	}
	o.keeps("1", "granted", grant("c/t/9"))
	if bad := o.takeUnlocked(); len(bad) != 1 || bad[0].Value != "by hand" || bad[0].TTL != 0 {
		t.Errorf("a foreign lock without end: %+v", bad)
	}
	// In one group what happens to a lock stays in order.
	o.keeps("1", "again", lock("by hand", codec.LockRelease), grant("c/t/10"), lock("c/t/10", codec.LockRelease), grant("c/t/11"))
	bad := o.takeUnlocked()
	if has := c.Get(t.Context(), redis.LockKey(prefix, 0, "1")).Val(); has != "c/t/11" || len(bad) > 0 {
		t.Errorf("after a release and a grant in one group the lock is %q, %v", has, bad)
	}
	o.same(c)
}

// TestShard_Unlocked has the owner undo a grant whose lock somebody else has: the grant is answered after that is kept.
func TestShard_Unlocked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(1)
	c := client(t, server.Addr())
	c.Set(t.Context(), redis.LockKey(prefix, 0, "1"), "by hand", 0)
	refused := false
	o.undo = func(o *owner, _ backend.Unlocked) (backend.Commit, error) {
		if !refused {
			refused = true
			return nil, dispatch.ErrStoreUnavailable // as of one whose term has just ended
		}
		return o.set(0, "1", "waits")
	}
	f, err := o.set(0, "1", "leased", grant("c/t/5"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Wait(t.Context()); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("a grant that met a lock and was not undone is answered: %v", err)
	}
	until(t, "the grant is undone", func() bool { return f.Wait(t.Context()) == nil })
	o.same(c)
	if has := kept(t, c)["1"]; has != "waits" {
		t.Errorf("when the grant is answered the task is %q", has)
	}
}

// TestShard_Takeover has a second process take over from one that does not renew. Nothing that this one sends later is kept.
func TestShard_Takeover(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server.Addr())
	follow := make(chan redis.Other, 10)
	a := newOwner(t, server.URL()).mustOwn(1)
	b := newOwner(t, server.URL(), func(c *redis.Config) { c.Follow = func(o redis.Other) { follow <- o } })
	a.keeps("1", "of a")
	if of := b.Ownership(); of.Owning || of.Changes != 0 {
		t.Errorf("before its begin the ownership is %+v", of)
	}
	a.Sleep(true)
	defer a.Sleep(false)
	began := time.Now()
	b.mustOwn(0)
	if took := time.Since(began); took < term {
		t.Errorf("b owns the shard after %v, before the term of a was over", took)
	}
	if other := <-follow; other.Address != "there:1" || other.Epoch != a.term.Epoch {
		t.Errorf("b has seen %+v", other)
	}
	if other := <-follow; other != (redis.Other{}) {
		t.Errorf("as owner b sees %+v", other)
	}
	if of := b.Ownership(); !of.Owning || of.Changes != 2 || of.Epoch != b.term.Epoch || of.Since.IsZero() || of.Ownerless != 0 || of.OwnerlessTotal < term/2 {
		t.Errorf("the ownership is %+v", of)
	}
	if b.term.Epoch <= a.term.Epoch || b.term.Gained[0].Away < term {
		t.Errorf("the term of b is %+v, that of a was %+v", b.term, a.term)
	}
	b.same(c)
	b.keeps("1", "of b")
	if f, err := a.set(0, "1", "of a again"); err == nil {
		err = f.Wait(t.Context())
		if err == nil {
			t.Error("a group of an owner of before was kept")
		}
	}
	if until, err := a.Until(t.Context(), 0); err == nil && time.Now().Before(until) {
		t.Error("a does not know that it has lost the shard")
	}
	b.same(c)
}

// TestShard_Outdone: an owner that another one has replaced is over for good.
func TestShard_Outdone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := newOwner(t, server.URL()).mustOwn(3), newOwner(t, server.URL())
	a.keeps("1", "of a")
	a.Sleep(true)
	b.mustOwn(0)
	a.Sleep(false)
	select {
	case <-a.Done():
	case <-time.After(10 * term):
		t.Fatal("it goes on")
	}
	if err := a.Err(); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("it is over: %v", err)
	}
	if err := a.Room(0, 100, false); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("it gives room: %v", err)
	}
	if len(b.term.Gained) != 3 || b.term.Shards != 3 {
		t.Errorf("the next owner has %+v", b.term)
	}
	if err := a.Release(t.Context()); err != nil {
		t.Error(err)
	}
	b.keeps("2", "of b")
}

// TestShard_Release hands over: the next owner need not wait.
func TestShard_Release(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := newOwner(t, server.URL()).mustOwn(2), newOwner(t, server.URL())
	a.keeps("1", "of a")
	owned := make(chan error, 1)
	go func() { owned <- b.own(0) }()
	var last backend.Commit
	for n := range 100 {
		last, _ = a.set(0, "1", fmt.Sprint(n))
	}
	began := time.Now()
	if err := a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := last.Wait(t.Context()); err != nil {
		t.Errorf("a group before the release: %v", err)
	}
	if err := <-owned; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > term/2 {
		t.Errorf("b owns the shard %v after a has released it", took)
	}
	b.same(client(t, server.Addr()))
	b.keeps("1", "of b")
}

// TestShard_LostAnswers cuts the connections again and again: each group is kept once and in order, whatever was lost.
func TestShard_LostAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o := newOwner(t, proxy.URL(), func(c *redis.Config) { c.SetTerm(3 * time.Second) }).mustOwn(1)
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		if n%3 == 0 {
			proxy.ResetAfter(random.IntN(200))
		}
		o.keeps(fmt.Sprint(random.IntN(20)), fmt.Sprint("value ", n))
		proxy.Pass()
	}
	o.same(client(t, server.Addr()))
	if proxy.Faults() < 20 {
		t.Errorf("there were %d faults", proxy.Faults())
	}
}

// TestShard_Full keeps groups while Redis takes no more data, and refuses what grows.
func TestShard_Full(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(1)
	c := client(t, server.Addr())
	o.keeps("1", "leased c/t/5", grant("c/t/5"))
	if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	o.keeps("1", "done", lock("c/t/5", codec.LockRelease))
	if err := o.Room(0, 100, true); !errors.Is(err, dispatch.ErrStoreFull) {
		t.Errorf("after a refusal there is room: %v", err)
	}
	o.keeps("1", "leased c/t/6", grant("c/t/6"))
	if has := c.Get(t.Context(), redis.LockKey(prefix, 0, "1")).Val(); has != "c/t/6" {
		t.Errorf("the lock of a grant while Redis is full is %q", has)
	}
	o.keeps("1", "leased c/t/5", grant("c/t/5"))
	if bad := o.takeUnlocked(); len(bad) != 1 || bad[0].Value != "c/t/6" {
		t.Errorf("a grant of a task that has a lock, while Redis is full: %v", bad)
	}
	<-time.After(2 * term) // renewals go on
	o.keeps("2", "")
	if err := c.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	until(t, "there is room again", func() bool { return o.Room(0, 100, true) == nil })
	o.keeps("3", "waits")
	o.same(c)
}

// TestShard_Failover puts a server back to an earlier state, as a replica that takes over with a part of what was written. What the
// owner has is written again, what it had deleted is deleted again, and locks are those of its leases.
func TestShard_Failover(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(1)
	c := client(t, server.Addr())
	o.keeps("1", "waits")
	before := dumped(t, c)
	o.keeps("1", "")
	o.leases["1"] = "c/t/6"
	o.keeps("3", "leased c/t/6", grant("c/t/6"))
	o.keeps("4", "waits")
	restore(t, c, before)
	if f, err := o.set(0, "5", "waits"); err == nil {
		if err := f.Wait(t.Context()); err != nil {
			t.Errorf("a group that a rewrite has: %v", err)
		}
	}
	lockOf := func() string { return c.Get(t.Context(), redis.LockKey(prefix, 0, "1")).Val() }
	until(t, "the lock is set again", func() bool { return lockOf() == "c/t/6" })
	until(t, "the owner knows that locks may be missing", func() bool { gains := o.takeGains(); return len(gains) == 1 && gains[0].Kept })
	o.same(c)
	before = dumped(t, c)
	o.keeps("6", "waits")
	restore(t, c, before) // while nothing is written: a renewal notices
	until(t, "what a failover has lost is written again", func() bool { return kept(t, c)["6"] != "" })
	until(t, "the owner serves again", func() bool { _, err := o.Until(t.Context(), 0); return err == nil })
	o.keeps("7", "waits")
	o.same(c)
	if s := o.Counts(); s.Rewrites < 2 || s.Rewritten < 6 || s.Deleted != 1 {
		t.Errorf("counts are %+v", s)
	}
}

// TestShard_AcquireLost has a failover lose that the owner has acquired the store, and all that it has written since: the dispatcher before
// does not live, so this one acquires the store anew, under an epoch past its own, and writes all again.
func TestShard_AcquireLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server.Addr())
	a := newOwner(t, server.URL()).mustOwn(1)
	a.keeps("1", "of a")
	if err := c.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	b := newOwner(t, server.URL()).mustOwn(0)
	b.keeps("1", "of b")
	b.keeps("2", "of b")
	server.Restart()
	b.soon("3", "of b")
	b.same(c)
	if s := b.Counts(); s.Rewrites == 0 || s.Epoch <= int64(b.term.Epoch) {
		t.Errorf("counts are %+v", s)
	}
}

// TestShard_Emptied empties the store of an owner that has loaded it, while another one waits: the owner writes all again.
func TestShard_Emptied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server.Addr())
	before := newOwner(t, server.URL()).mustOwn(1)
	before.keeps("1", "before")
	if err := before.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := newOwner(t, server.URL()).mustOwn(0)
	o.keeps("2", "of the owner")
	other := newOwner(t, server.URL())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := other.Acquire(ctx, backend.Owner{})
		ended <- err
	}()
	until(t, "the candidate has seen the last group", func() bool { return other.Latest(0) == o.Latest(0) })
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	o.soon("3", "after")
	if has := kept(t, c); has["1"] != "before" || has["2"] != "of the owner" || has["3"] != "after" {
		t.Errorf("the store has %v", has)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the candidate got the store: %v", err)
	}
}

// TestShard_LostWithOwner has a server come back with an older state while the owner is dead: the next one counts what is lost.
func TestShard_LostWithOwner(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := newOwner(t, server.URL()).mustOwn(1)
	a.keeps("1", "saved")
	if err := client(t, server.Addr()).Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	b := newOwner(t, server.URL())
	owned := make(chan error, 1)
	go func() { owned <- b.own(0) }()
	a.keeps("1", "lost")
	a.keeps("2", "lost")
	a.keeps("3", "lost")
	until(t, "the candidate has seen the last group", func() bool { return b.Latest(0) == a.Latest(0) })
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	if err := <-owned; err != nil {
		t.Fatal(err)
	}
	if lost := b.Ownership().LostTasks; lost != 3 {
		t.Errorf("%d changes of tasks are counted as lost, want 3", lost)
	}
}

// TestShard_WatchBroken breaks the connection of a candidate again and again: it must not take over before it has watched the record
// for a whole term on one.
func TestShard_WatchBroken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := newOwner(t, server.URL()).mustOwn(1)
	a.Sleep(true)
	defer a.Sleep(false)
	proxy := redistest.NewProxy(t, server.Addr())
	b := newOwner(t, proxy.URL())
	owned := make(chan error, 1)
	go func() { owned <- b.own(0) }()
	var last time.Time
	tick := time.NewTicker(term / 4)
	defer tick.Stop()
	for range 10 {
		<-tick.C
		proxy.ResetAfter(0)
		last = time.Now()
		<-tick.C
		proxy.Pass()
	}
	if err := <-owned; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(last); took < term {
		t.Errorf("b owns the shard %v after its connection broke", took)
	}
}

// dumped is all that the server has but who owns the shard.
func dumped(t *testing.T, c *goredis.Client) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, key := range c.Keys(t.Context(), "*").Val() {
		if value := c.Dump(t.Context(), key).Val(); value != "" && !owning(key) { // else it was removed meanwhile
			all[key] = value
		}
	}
	return all
}

func owning(key string) bool {
	return slices.Contains([]string{redis.EpochKey(prefix, 0), redis.RecordKey(prefix, 0)}, key)
}

// restore makes the server what it was, at once.
func restore(t *testing.T, c *goredis.Client, all map[string]string) {
	t.Helper()
	pipe := c.TxPipeline()
	for _, key := range c.Keys(t.Context(), "*").Val() {
		if !owning(key) {
			pipe.Del(t.Context(), key)
		}
	}
	for key, value := range all {
		pipe.RestoreReplace(t.Context(), key, 0, value)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}
