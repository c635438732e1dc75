package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// serves waits until the owner serves shard 0 again, after a term was lost.
func (o *owner) serves() {
	o.t.Helper()
	until(o.t, "the owner serves", func() bool { return o.Room(0, 1, false) == nil && o.Commit(0, nil, 1) == nil })
}

// TestTerm_Lost has Redis stand still for longer than a term, while groups are on their way: those that wait for them get an error, and
// the groups are kept once Redis goes on, under a new epoch, with the memory of before.
func TestTerm_Lost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(1)
	o.keeps("1", "before", grant("c/t/5"))
	server.Pause()
	var commits []backend.Commit
	for n := 0; ; n++ {
		c, err := o.set(0, fmt.Sprint(n%10), fmt.Sprint("value ", n))
		if err != nil {
			if !errors.Is(err, dispatch.ErrStoreUnavailable) {
				t.Errorf("without a term a group is refused by %v", err)
			}
			break
		}
		commits = append(commits, c)
		<-time.After(time.Millisecond)
	}
	for _, c := range commits {
		if err := c.Wait(t.Context()); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("a group without a term is answered: %v", err)
		}
	}
	if until, err := o.Until(t.Context(), 0); err == nil && time.Now().Before(until) {
		t.Error("reads may be answered without a term")
	}
	server.Resume()
	o.serves()
	until(t, "the owner knows that locks may be missing", func() bool {
		gains := o.takeGains()
		return len(gains) == 1 && gains[0].Kept && gains[0].Away > term/2
	})
	o.keeps("10", "after")
	o.same(client(t, server.Addr()))
	if s := o.Counts(); s.Rewrites != 0 {
		t.Errorf("counts are %+v", s)
	}
	of := o.Ownership()
	if of.Epoch <= o.term.Epoch || of.SelfFences != 1 || time.Since(of.SelfFenced) > time.Minute || of.OwnerlessTotal == 0 || of.Ownerless != 0 ||
		!of.Owning || of.Owner != t.Name() || of.Changes != 1 || len(of.Away) > 0 {
		t.Errorf("the ownership is %+v", of)
	}
}

// TestTerm_FailoverMeanwhile restarts Redis from an older state, without the last groups: the owner writes them again.
func TestTerm_FailoverMeanwhile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(1)
	c := client(t, server.Addr())
	o.keeps("1", "before")
	o.keeps("2", "before")
	if err := c.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	o.keeps("1", "")
	o.keeps("3", "later")
	server.Kill()
	last, err := o.set(0, "4", "on its way")
	<-time.After(2 * term)
	server.Restart()
	// A group on its way fails with the term, or is answered once it is written again.
	if err == nil && last.Wait(t.Context()) == nil {
		if has := kept(t, c); has["4"] != "on its way" {
			t.Errorf("a group is answered, and Redis has %v", has)
		}
	}
	o.serves()
	o.same(c)
	o.keeps("5", "after")
	o.same(c)
	if s := o.Counts(); s.Rewrites == 0 || s.Deleted != 1 {
		t.Errorf("counts are %+v", s)
	}
}

// TestTerm_EmptyRedis restarts Redis without data: it counts as a failover that has lost all.
func TestTerm_EmptyRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(2)
	for n := range 100 {
		o.keeps(fmt.Sprint(n), "value")
	}
	server.Restart()
	until(t, "what was lost is written again", func() bool { return o.Counts().Rewrites > 0 })
	o.serves()
	o.same(client(t, server.Addr()))
}

// TestTerm_Asleep does not renew for a while: no other dispatcher comes, and the owner goes on under a new epoch.
func TestTerm_Asleep(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(1)
	o.keeps("1", "before")
	o.Sleep(true)
	until(t, "the term ends", func() bool { until, err := o.Until(t.Context(), 0); return err != nil || !time.Now().Before(until) })
	if err := o.Room(0, 1, false); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("there is room without a term: %v", err)
	}
	o.Sleep(false)
	o.serves()
	o.keeps("1", "after")
	o.same(client(t, server.Addr()))
	if err := o.Err(); err != nil {
		t.Error(err)
	}
}

// TestTerm_Swallowed has the answers of Redis get lost while what is sent takes effect.
func TestTerm_Swallowed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o := newOwner(t, proxy.URL()).mustOwn(1)
	random := rand.New(rand.NewPCG(1, 3))
	for round := range 6 {
		before := proxy.Faults()
		proxy.Blackhole()
		c, err := o.set(0, fmt.Sprint(round), "swallowed", grant(fmt.Sprint("c/t/", round)))
		until(t, "an answer is swallowed", func() bool { return proxy.Faults() > before })
		<-time.After(time.Duration(random.IntN(int(term))))
		proxy.Pass()
		if err == nil {
			_ = c.Wait(t.Context()) // it may be known or not
		}
		o.soon("1", fmt.Sprint(round), lock(fmt.Sprint("c/t/", round), codec.LockRelease))
		o.same(client(t, server.Addr()))
	}
	if bad := o.takeUnlocked(); len(bad) > 0 {
		t.Errorf("grants whose own lock was there: %v", bad)
	}
}

// TestTerm_Replicas answers a group once a replica has it.
func TestTerm_Replicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica := redistest.Start(t, redistest.WithConfig("replicaof", "127.0.0.1 "+portOf(server.Addr())), redistest.WithConfig("repl-diskless-sync-delay", "0"))
	o := newOwner(t, server.URL(), func(c *redis.Config) { c.AckReplicas = 1 }).mustOwn(1)
	o.soon("1", "value")
	if has := kept(t, client(t, replica.Addr())); has["1"] != "value" {
		t.Errorf("the replica has %v", has)
	}
	replica.Pause()
	c, err := o.set(0, "1", "alone")
	if err == nil {
		err = c.Wait(t.Context())
	}
	if !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("a group that no replica has: %v", err)
	}
	replica.Resume()
	until(t, "the replica has the group, and who asks again is answered", func() bool { return c.Wait(t.Context()) == nil })
	if has := kept(t, client(t, replica.Addr())); has["1"] != "alone" {
		t.Errorf("the replica has %v", has)
	}
	o.soon("2", "value")
	o.same(client(t, server.Addr()))
}

// TestTerm_ReadOnly has Redis refuse writes for longer than a term, as one does that has too few replicas or a full disk. Nothing is
// answered meanwhile.
func TestTerm_ReadOnly(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(1)
	c := client(t, server.Addr())
	o.keeps("1", "before")
	if err := c.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	last, err := o.set(0, "1", "meanwhile")
	if err == nil {
		err = last.Wait(t.Context())
	}
	if !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("a group that Redis refuses: %v", err)
	}
	if err := c.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err(); err != nil {
		t.Fatal(err)
	}
	o.serves()
	o.keeps("2", "after")
	o.same(c)
}

// TestTerm_Random meets one fault after the other: whatever was answered is kept, in the end Redis has what memory has.
func TestTerm_Random(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o := newOwner(t, proxy.URL()).mustOwn(1)
	c := client(t, server.Addr())
	random := rand.New(rand.NewPCG(4, 5))
	before := dumped(t, c)
	for round := range 40 {
		switch random.IntN(6) {
		case 0:
			proxy.ResetAfter(random.IntN(400))
		case 1:
			proxy.Blackhole()
		case 2:
			proxy.Delay(time.Duration(random.IntN(int(term))))
		case 3:
			if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
				t.Fatal(err)
			}
		case 4:
			restore(t, c, before)
		case 5:
			before = dumped(t, c)
		}
		for range random.IntN(50) {
			value := fmt.Sprint(round)
			if random.IntN(3) == 0 {
				value = ""
			}
			if _, err := o.set(0, fmt.Sprint(random.IntN(30)), value); err != nil {
				break
			}
		}
		<-time.After(time.Duration(random.IntN(int(term / 2))))
		proxy.Pass()
		if err := c.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
			t.Fatal(err)
		}
	}
	o.soon("last", "value")
	// What a failover has lost since then is found by the next renewal.
	if err := o.RenewNow(t.Context(), 0); err != nil {
		t.Log(err)
	}
	o.soon("end", "value")
	o.same(c)
	t.Logf("%+v", o.Counts())
}

// TestTerm_LostInLoad has the term end while the store is loaded: it is loaded again in the next one.
func TestTerm_LostInLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := newOwner(t, server.URL()).mustOwn(1)
	a.keeps("1", "value")
	if err := a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := newOwner(t, server.URL())
	term, err := o.Acquire(t.Context(), backend.Owner{Shards: 1, Snapshot: o.snapshot, Gained: o.gained, Unlocked: o.unlock})
	if err != nil {
		t.Fatal(err)
	}
	o.Saw(term.Epoch + 10) // ends it
	if err := o.Load(t.Context(), 0, &items{owner: o}); err != nil {
		t.Fatal(err)
	}
	o.same(client(t, server.Addr()))
	o.keeps("2", "value")
}
