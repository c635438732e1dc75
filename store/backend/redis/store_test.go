package redis_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_Copy marks a store as unfinished until its copy ends.
func TestStore_Copy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	as := func(copyOf string, existing bool) *owner {
		return newOwner(t, server.URL(), func(c *redis.Config) { c.CopyOf, c.Existing = copyOf, existing })
	}
	refused := func(what string, o *owner) {
		t.Helper()
		if err := o.own(0); !errors.Is(err, dispatch.ErrStoreMismatch) {
			t.Errorf("%s: %v", what, err)
		}
	}
	release := func(o *owner) {
		t.Helper()
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refused("a store that is not there", as("", true))
	o := as("a", false).mustOwn(1)
	o.keeps("1", "copied")
	release(o)
	refused("an unfinished copy as a store", as("", false))
	refused("a copy of another one into an unfinished copy", as("b", false))
	o = as("a", false).mustOwn(1)
	if err := errors.Join(o.EndCopy(t.Context()), o.EndCopy(t.Context())); err != nil {
		t.Fatal(err)
	}
	release(o)
	refused("a copy into a store", as("a", false))
	o = as("", true).mustOwn(0)
	o.same(client(t, server.Addr()))
}

// TestStore_Secret gives all dispatchers of a store the same secret.
func TestStore_Secret(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, err := newOwner(t, server.URL()).Secret(t.Context(), nil)
	b, bErr := newOwner(t, server.URL()).Secret(t.Context(), nil)
	if err := errors.Join(err, bErr); err != nil || len(a) != 32 || !bytes.Equal(a, b) {
		t.Errorf("%x and %x, %v", a, b, err)
	}
	if err := client(t, server.Addr()).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if c, err := newOwner(t, server.URL()).Secret(t.Context(), a); err != nil || !bytes.Equal(a, c) {
		t.Errorf("after a loss: %x and %x, %v", a, c, err)
	}
}

// TestStore_Saw has the owner hear of a higher epoch: it goes on under one past that.
func TestStore_Saw(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(1)
	o.keeps("1", "before")
	o.Saw(o.term.Epoch)
	o.keeps("1", "the same epoch")
	o.Saw(41)
	if err := o.Room(0, 1, false); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("an owner that has heard of a higher epoch gives room: %v", err)
	}
	o.serves()
	o.keeps("1", "after")
	if epoch := o.Counts().Epoch; epoch != 42 {
		t.Errorf("the epoch is %d", epoch)
	}
}

// TestStore_Before gives a process that follows itself the counts that it had, and an epoch past all that it has seen.
func TestStore_Before(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(1)
	o.keeps("1", "value")
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Saw(77)
	next := newOwner(t, server.URL(), func(c *redis.Config) { c.Before = o.Backend }).mustOwn(0)
	if of := next.Ownership(); next.term.Epoch != 78 || of.Groups != 1 || of.Changes != 2 || of.LoadedItems != 1 {
		t.Errorf("the term is %+v, the ownership %+v", next.term, of)
	}
}

// TestStore_Canceled ends a candidate by its context. It owns nothing then.
func TestStore_Canceled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := newOwner(t, server.URL()).mustOwn(1), newOwner(t, server.URL())
	ctx, cancel := context.WithTimeout(t.Context(), 2*term)
	defer cancel()
	if _, err := b.Acquire(ctx, backend.Owner{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a candidate whose time is over: %v", err)
	}
	a.keeps("1", "value")
	if err := a.Err(); err != nil {
		t.Error(err)
	}
}

// TestStore_AllShards cuts a group by the shards of its items.
func TestStore_AllShards(t *testing.T) {
	t.Parallel()
	const shards = 5
	server := redistest.Start(t)
	o := newOwner(t, server.URL()).mustOwn(shards)
	group := binary.LittleEndian.AppendUint64(nil, 1)
	name := "rule"
	group = codec.AppendItem(group, codec.Rule, 0, func(c *codec.Codec) { codec.Text(c, 1, &name) })
	for shard := range shards - 1 {
		group = append(group, item(shard, "all", "value")...)
	}
	if err := o.Room(backend.AllShards, len(group), true); err != nil {
		t.Fatal(err)
	}
	if err := o.Commit(backend.AllShards, group, len(group)).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := o.Room(backend.AllShards, 8, false); err != nil {
		t.Fatal(err)
	}
	if err := o.Commit(backend.AllShards, group[:8], 8).Wait(t.Context()); err != nil {
		t.Errorf("a group of nothing, which is later than all: %v", err)
	}
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := newOwner(t, server.URL()).mustOwn(0)
	for shard := range shards {
		if has := next.memory[shard]["all"]; (has == "value") != (shard < shards-1) {
			t.Errorf("shard %d has %q", shard, has)
		}
	}
	if next.memory[0]["rule"] != "" || len(next.memory[0]) != 1 {
		t.Errorf("shard 0 has %v", next.memory[0])
	}
}

// TestStore_Used keeps used client tokens for as long as they can matter.
func TestStore_Used(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server.Addr())
	o := newOwner(t, server.URL()).mustOwn(1)
	step := dispatch.TokenStep(time.Now())
	send := func(kind codec.Kind, step int64, digest uint64) {
		t.Helper()
		commit, err := o.send(0, codec.AppendItem(nil, kind, 0, func(c *codec.Codec) {
			codec.Int(c, 1, &step)
			c.Fixed64(2, &digest)
		}))
		if err == nil {
			err = commit.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	send(codec.Used, step, 7)
	send(codec.Used, step, 1<<63)
	send(codec.Used, step-1, 8)
	send(codec.Used, step-2, 9)
	send(codec.Used|codec.Removed, step-2, 0)
	keys := c.Keys(t.Context(), prefix+":{0}:used:*").Val()
	if len(keys) != 2 || c.PTTL(t.Context(), keys[0]).Val() < dispatch.TokenMemory {
		t.Errorf("there are %v", keys)
	}
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	o = newOwner(t, server.URL()).mustOwn(0)
	if n := o.Ownership().LoadedItems; n != 3 {
		t.Errorf("%d items are loaded", n)
	}
}

// TestStore_Clock is that of Redis. A small difference is made up for slowly, a large one at once.
func TestStore_Clock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Offset(time.Hour)
	o := newOwner(t, server.URL()).mustOwn(1)
	behind := func() time.Duration { return server.Clock().Now().Sub(o.term.Now()) }
	if d := behind(); d.Abs() > 200*time.Millisecond {
		t.Errorf("at first it is %v behind", d)
	}
	server.Clock().Offset(2 * time.Hour)
	until(t, "a step is followed", func() bool { return behind().Abs() < 200*time.Millisecond })
	server.Clock().Offset(2*time.Hour - 500*time.Millisecond)
	last := o.term.Now()
	for limit := time.Now().Add(2 * time.Second); time.Now().Before(limit); {
		now := o.term.Now()
		if now.Before(last) {
			t.Fatalf("it goes back by %v", last.Sub(now))
		}
		last = now
	}
	if d := behind(); d.Abs() > 450*time.Millisecond {
		t.Errorf("after 2 s it is still %v behind", d)
	}
}
