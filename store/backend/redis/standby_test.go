package redis_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// owns acquires the store in the background; the channel gets what came of it.
func (o *owner) owns() <-chan error {
	owned := make(chan error, 1)
	go func() { owned <- o.own(0) }()
	return owned
}

// names reports whether the records of all shards name a standby.
func names(t *testing.T, c goredis.Cmdable, standby string, shards int) bool {
	t.Helper()
	for shard := range shards {
		if !strings.Contains(c.Get(t.Context(), redis.RecordKey(prefix, shard)).Val(), fmt.Sprintf(`"standby_name":%q`, standby)) {
			return false
		}
	}
	return true
}

// named waits until the records of all shards name a standby; "" is none.
func named(t *testing.T, c goredis.Cmdable, standby string, shards int) {
	t.Helper()
	until(t, "the record names the standby "+standby, func() bool {
		if standby != "" {
			return names(t, c, standby, shards)
		}
		return !strings.Contains(c.Get(t.Context(), redis.RecordKey(prefix, 0)).Val(), "standby_name")
	})
}

// has is what memory has of a shard.
func (o *owner) has(shard int) map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.memory[shard])
}

// mustTake waits until a candidate owns the store, and returns how long that took.
func mustTake(t *testing.T, owned <-chan error) time.Duration {
	t.Helper()
	began := time.Now()
	select {
	case err := <-owned:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nobody owns the store")
	}
	return time.Since(began)
}

// wantWarm fails unless the owner has taken the shards over without a load.
func (o *owner) wantWarm(shards, forced int) {
	o.t.Helper()
	if of := o.Ownership(); of.Warm != int64(shards) || of.Loaded != 0 || of.Forced != int64(forced) {
		o.t.Errorf("it has %d shards from its memory, %d forced, %d loaded; want %d and %d", of.Warm, of.Forced, of.Loaded, shards, forced)
	}
	for _, gain := range o.term.Gained {
		if !gain.Kept {
			o.t.Errorf("shard %d was to be loaded", gain.Shard)
		}
	}
}

// wantTakeover has the owner die, and wants the standby to take over at once, with what it has in memory.
func (p *pair) wantTakeover() {
	p.t.Helper()
	p.die(p.a.Backend, "a", true)
	mustTake(p.t, p.owned)
	p.b.wantWarm(1, 1)
	p.b.same(p.c)
}

// pair is an owner a with a standby b.
type pair struct {
	*network

	server *redistest.Server
	c      *goredis.Client
	a, b   *owner
	owned  <-chan error // by b
}

// newPair waits until the standby is named.
func newPair(t *testing.T, shards int) *pair {
	t.Helper()
	p := newPairAt(t, redistest.Start(t), "", shards)
	named(t, p.c, "b", shards)
	return p
}

// newPairAt has the owner at another URL than that of the server, if it is given.
func newPairAt(t *testing.T, server *redistest.Server, url string, shards int) *pair {
	t.Helper()
	p := &pair{network: newNetwork(t), server: server, c: client(t, server.Addr())}
	if url == "" {
		url = server.URL()
	}
	p.a = p.join("a", url).mustOwn(shards)
	p.a.keeps("first", "of a")
	p.b = p.join("b", server.URL())
	p.owned = p.b.owns()
	return p
}

// TestStandby_Follows has a standby load a store that changes all the time, and then follow it: it has each group when the next one comes.
// When the process of the owner ends it takes over at once, and loads nothing.
func TestStandby_Follows(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n, c := newNetwork(t), client(t, server.Addr())
	a := n.join("a", server.URL()).mustOwn(1)
	for i := range 300 {
		if _, err := a.set(0, fmt.Sprint("item ", i), "of before"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			value := fmt.Sprint(i)
			if i%3 == 0 {
				value = ""
			}
			if f, err := a.set(0, fmt.Sprint("item ", i%100), value, grant("c/t/5")); err == nil {
				_ = f.Wait(ctx)
			}
		}
	}()
	b := n.join("b", server.URL())
	owned := b.owns()
	named(t, c, "b", 1)
	stop()
	<-ended
	a.keeps("1", "the last one is kept")
	for i := range 20 {
		before := a.has(0)
		a.keeps("1", fmt.Sprint(i))
		until(t, "the standby has the group before", func() bool { return maps.Equal(b.has(0), before) })
	}
	if of := a.Ownership(); of.Standby != "b" || of.WithoutStandby != 0 {
		t.Errorf("the ownership is %+v", of)
	}
	until(t, "the standby sees both", func() bool { of := b.Ownership(); return of.Owner == "a" && of.Standby == "b" })
	n.die(a.Backend, "a", true)
	if took := mustTake(t, owned); took > term/2 {
		t.Errorf("the standby owns the store after %v", took)
	}
	b.wantWarm(1, 1)
	b.same(c)
	b.keeps("2", "of b")
	b.same(c)
}

// TestStandby_Missing: an owner that is alone misses no standby. One that was there, and the owner before that died, are missed.
func TestStandby_Missing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := newNetwork(t)
	a := n.join("a", server.URL()).mustOwn(1)
	want := func(o *owner, missing bool) {
		t.Helper()
		until(t, fmt.Sprintf("a standby is missing: %v", missing), func() bool {
			of := o.Ownership()
			return of.WithoutStandby == 1 && of.WithoutStandbyFor > 0 == missing
		})
	}
	want(a, false)
	b := n.join("b", server.URL())
	b.owns()
	named(t, client(t, server.Addr()), "b", 1)
	if of := a.Ownership(); of.WithoutStandbyFor != 0 {
		t.Errorf("with a standby the ownership is %+v", of)
	}
	n.die(b.Backend, "b", true)
	want(a, true)
	c := n.join("c", server.URL())
	owned := c.owns()
	named(t, client(t, server.Addr()), "c", 1)
	n.die(a.Backend, "a", true)
	mustTake(t, owned)
	want(c, true)
}

// TestStandby_NotWarm: who has not reported that it has all is not named, and waits for a term like all others.
func TestStandby_NotWarm(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := &pair{network: newNetwork(t), c: client(t, server.Addr())}
	p.a = p.join("a", server.URL()).mustOwn(1)
	p.a.keeps("1", "of a")
	p.holds = true
	p.b = p.join("b", server.URL())
	p.owned = p.b.owns()
	until(t, "the standby is fed", func() bool { return p.a.HasFeed(0) })
	p.a.keeps("2", "of a")
	p.a.keeps("3", "of a")
	until(t, "it has all but the last group", func() bool { return len(p.b.has(0)) > 1 })
	if names(t, p.c, "b", 1) {
		t.Error("it is named")
	}
	p.die(p.a.Backend, "a", true)
	if took := mustTake(t, p.owned); took < term*3/4 {
		t.Errorf("it owns the store after %v", took)
	}
	if of := p.b.Ownership(); of.Forced != 0 {
		t.Errorf("the ownership is %+v", of)
	}
	p.b.same(p.c)
}

// TestStandby_NotRefused: the owner may live behind a port that takes connections, or answers nothing.
func TestStandby_NotRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	p.die(p.a.Backend, "a", false)
	if took := mustTake(t, p.owned); took < term*3/4 {
		t.Errorf("it owns the store after %v", took)
	}
	p.b.wantWarm(1, 0)
	p.b.same(p.c)
}

// TestStandby_Unkept drops a group that was sent to the standby, and that Redis never got.
func TestStandby_Unkept(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	p := newPairAt(t, server, proxy.URL(), 1)
	named(t, p.c, "b", 1)
	p.a.keeps("1", "kept")
	before := p.a.has(0)
	proxy.Withhold()
	if _, err := p.a.set(0, "1", "not kept"); err != nil {
		t.Fatal(err)
	}
	until(t, "the standby has the group before", func() bool { return maps.Equal(p.b.has(0), before) })
	proxy.Cut()
	p.wantTakeover()
	if has := p.b.has(0)["1"]; has != "kept" {
		t.Errorf("it has %q", has)
	}
	p.b.keeps("2", "of b")
	p.b.same(p.c)
}

// TestStandby_Gap loses a group on its way to the standby: it loads the shard again, and then has all.
func TestStandby_Gap(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	p.change("b", func(w *wire) { w.lose = 1 })
	p.a.keeps("1", "lost")
	p.a.keeps("2", "behind it")
	named(t, p.c, "", 1)
	named(t, p.c, "b", 1)
	p.a.keeps("3", "of a")
	p.wantTakeover()
}

// TestStandby_Behind loses the last group before the owner dies: what the standby has is not what is kept, and is loaded.
func TestStandby_Behind(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	p.change("b", func(w *wire) { w.lose = 1 })
	p.a.keeps("1", "lost")
	p.die(p.a.Backend, "a", true)
	mustTake(t, p.owned)
	if of := p.b.Ownership(); of.Warm != 0 || of.Loaded != 1 {
		t.Errorf("the ownership is %+v", of)
	}
	p.b.same(p.c)
}

// TestStandby_Unconfirmed breaks the stream of a standby while its owner lives: the owner answers nothing until its record does not name
// the standby any more, and then goes on.
func TestStandby_Unconfirmed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	p := newPairAt(t, server, proxy.URL(), 1)
	named(t, p.c, "b", 1)
	p.close("a", false)
	proxy.Withhold()
	p.cut("b")
	until(t, "the owner has noticed", func() bool { return p.a.Unconfirmed(0) })
	ctx, cancel := context.WithTimeout(t.Context(), term/9)
	defer cancel()
	if _, err := p.a.Until(ctx, 0); err == nil {
		t.Error("the owner answers while the standby may have taken over")
	}
	proxy.Pass()
	if _, err := p.a.Until(t.Context(), 0); err != nil {
		t.Errorf("the owner does not go on: %v", err)
	}
	named(t, p.c, "", 1)
	p.a.keeps("2", "of a")
	p.open("a")
	named(t, p.c, "b", 1)
	p.a.keeps("3", "of a")
	p.wantTakeover()
}

// TestStandby_ConfirmedLate has a standby come again before the owner could renew its record without it.
func TestStandby_ConfirmedLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	p := newPairAt(t, server, proxy.URL(), 1)
	named(t, p.c, "b", 1)
	proxy.Delay(term / 5)
	p.cut("b")
	until(t, "the owner has noticed", func() bool { return p.a.Unconfirmed(0) })
	until(t, "the standby is back", func() bool { return p.a.HasWarm(0) })
	proxy.Pass()
	if _, err := p.a.Until(t.Context(), 0); err != nil {
		t.Error(err)
	}
	named(t, p.c, "b", 1)
}

// TestStandby_Back has a standby whose owner's port has refused it come back: it must not force a takeover then.
func TestStandby_Back(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	asked := make(chan struct{})
	p.mu.Lock()
	p.asked = asked
	p.mu.Unlock()
	p.close("a", true)
	p.cut("b")
	named(t, p.c, "", 1) // before the standby can force
	close(asked)
	until(t, "the standby has found out that the port refuses it", func() bool { return p.b.Gone(0) })
	p.open("a")
	for range 5 {
		named(t, p.c, "b", 1)
		if err := p.a.RenewNow(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		p.b.LookSoon()
		select {
		case err := <-p.owned:
			t.Fatalf("the standby has taken over from an owner that lives and feeds it: %v", err)
		case <-time.After(term / 5):
		}
	}
	p.a.keeps("1", "of a")
}

// TestStandby_Forces has the stream and the port of an owner break while it lives, and cannot reach Redis: the standby takes over. The owner
// of before answers nothing after that, and nothing that it sends is kept.
func TestStandby_Forces(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	p := newPairAt(t, server, proxy.URL(), 1)
	named(t, p.c, "b", 1)
	proxy.Withhold()
	p.close("a", true)
	p.cut("b")
	until(t, "the owner has noticed", func() bool { return p.a.Unconfirmed(0) })
	answered := make(chan bool, 1)
	go func() {
		until, err := p.a.Until(t.Context(), 0)
		answered <- err == nil && time.Now().Before(until)
	}()
	late, err := p.a.set(0, "1", "late")
	if err != nil {
		t.Fatal(err)
	}
	if took := mustTake(t, p.owned); took > term/2 {
		t.Errorf("it owns the store after %v", took)
	}
	p.b.wantWarm(1, 1)
	p.b.keeps("1", "of b")
	proxy.Pass()
	if err := late.Wait(t.Context()); err == nil {
		t.Error("a group of the owner before is answered")
	}
	if <-answered {
		t.Error("the owner before answers")
	}
	p.b.same(p.c)
	<-p.a.Done()
}

// TestStandby_HandOver moves the store by plan: the standby inherits it, at once and without a load. Others do not take it.
func TestStandby_HandOver(t *testing.T) {
	t.Parallel()
	const shards = 3
	p := newPair(t, shards)
	third := p.join("c", p.server.URL())
	thirdOwned := third.owns()
	if _, err := p.b.HandOver(t.Context()); err == nil {
		t.Error("a standby hands the store over")
	}
	select {
	case <-p.a.Moving():
		t.Error("the store moves already")
	default:
	}
	to, err := p.a.HandOver(t.Context())
	if err != nil || to != "b" {
		t.Fatalf("the store moves to %q: %v", to, err)
	}
	<-p.a.Moving()
	p.a.keeps("1", "while it moves")
	if err := p.a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := mustTake(t, p.owned); took > term/3 {
		t.Errorf("it owns the store after %v", took)
	}
	p.b.wantWarm(shards, 0)
	p.b.same(p.c)
	p.b.keeps("2", "of b")
	named(t, p.c, "c", shards)
	p.die(p.b.Backend, "b", true)
	mustTake(t, thirdOwned)
	third.wantWarm(shards, shards)
	third.same(p.c)
}

// TestStandby_HeirDead has the heir of a hand-over die: another dispatcher takes the store after a term.
func TestStandby_HeirDead(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	third := p.join("c", p.server.URL())
	thirdOwned := third.owns()
	p.mu.Lock()
	p.lingers = true
	p.mu.Unlock()
	if err := p.b.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.a.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := mustTake(t, thirdOwned); took < term*3/4 {
		t.Errorf("it owns the store after %v", took)
	}
	third.same(p.c)
}

// TestStandby_Second has a second dispatcher wait until the first one does not stand by any more.
func TestStandby_Second(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	third := p.join("c", p.server.URL())
	thirdOwned := third.owns()
	p.a.keeps("1", "of a")
	if !names(t, p.c, "b", 1) {
		t.Error("the first standby is not named")
	}
	if err := p.b.Kill(); err != nil {
		t.Fatal(err)
	}
	named(t, p.c, "c", 1)
	p.a.keeps("2", "of a")
	p.die(p.a.Backend, "a", true)
	if took := mustTake(t, thirdOwned); took > term/2 {
		t.Errorf("it owns the store after %v", took)
	}
	third.wantWarm(1, 1)
	third.same(p.c)
}

// TestStandby_Moves has an owner fall silent with its streams open: who waits to stand by for it stands by for the next owner.
func TestStandby_Moves(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	third := p.join("c", p.server.URL())
	thirdOwned := third.owns()
	p.mu.Lock()
	p.lingers = true
	p.mu.Unlock()
	p.a.Sleep(true)
	defer p.a.Sleep(false)
	next, name, last, lastName, lastOwned := p.b, "b", third, "c", thirdOwned
	select {
	case err := <-p.owned:
		if err != nil {
			t.Fatal(err)
		}
		p.b.wantWarm(1, 0)
	case err := <-thirdOwned:
		if err != nil {
			t.Fatal(err)
		}
		next, name, last, lastName, lastOwned = third, "c", p.b, "b", p.owned
	}
	named(t, p.c, lastName, 1)
	p.die(next.Backend, name, true)
	mustTake(t, lastOwned)
	last.wantWarm(1, 1)
	last.same(p.c)
}

// TestStandby_DoesNotRead has the owner go on without a standby that takes no more groups. What waits for it is bounded.
func TestStandby_DoesNotRead(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	p.change("b", func(w *wire) { w.stuck = true })
	large := strings.Repeat("x", 250<<10)
	groups, began := 0, time.Now()
	for ; names(t, p.c, "b", 1); groups++ {
		p.a.keeps(fmt.Sprint(groups%4), large+fmt.Sprint(groups))
		if groups > 400 {
			t.Fatal("100 MB may wait for a standby that does not read")
		}
	}
	t.Logf("%d groups in %v", groups, time.Since(began))
	p.a.same(p.c)
	named(t, p.c, "b", 1) // by another stream
}

// TestStandby_Rewrite has a failover lose what the standby has: it has the store again when the owner has written it again.
func TestStandby_Rewrite(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	p.a.keeps("1", "kept")
	before := dumped(t, p.c)
	p.a.keeps("1", "lost")
	p.a.keeps("2", "lost")
	restore(t, p.c, before)
	p.a.soon("3", "after")
	if p.a.Counts().Rewrites == 0 {
		t.Fatal("nothing was lost")
	}
	until(t, "the standby is warm again", func() bool { return p.a.HasWarm(0) })
	named(t, p.c, "b", 1)
	p.a.keeps("4", "of a")
	p.wantTakeover()
}

// TestStandby_Term has the owner lose a term, and own the store again: the standby goes on.
func TestStandby_Term(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	p := newPairAt(t, server, proxy.URL(), 2)
	named(t, p.c, "b", 2)
	p.a.Saw(41)
	p.a.serves()
	p.a.keeps("1", "of the next term")
	named(t, p.c, "b", 2)
	p.die(p.a.Backend, "a", true)
	mustTake(t, p.owned)
	p.b.wantWarm(2, 2)
	p.b.same(p.c)
}

// TestStandby_Silent has the owner lose Redis, with a group on its way, and not the standby: that takes over with what it has, when the
// term is over.
func TestStandby_Silent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	p := newPairAt(t, server, proxy.URL(), 2)
	named(t, p.c, "b", 2)
	p.a.keeps("1", "kept")
	proxy.Cut()
	if _, err := p.a.set(0, "2", "perhaps kept"); err != nil {
		t.Fatal(err)
	}
	mustTake(t, p.owned)
	p.b.wantWarm(2, 0)
	p.b.same(p.c)
}

// TestStandby_Shards follows groups of several shards, and of all.
func TestStandby_Shards(t *testing.T) {
	t.Parallel()
	const shards = 4
	p := newPair(t, shards)
	for round := range 10 {
		group := binary.LittleEndian.AppendUint64(nil, 1)
		for shard := range shards {
			group = append(group, item(shard, "all", fmt.Sprint(round))...)
			if _, err := p.a.set(shard, fmt.Sprint(round), "of one"); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.a.Room(backend.AllShards, len(group), true); err != nil {
			t.Fatal(err)
		}
		if err := p.a.Commit(backend.AllShards, group, len(group)).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.die(p.a.Backend, "a", true)
	if took := mustTake(t, p.owned); took > term/2 {
		t.Errorf("it owns the store after %v", took)
	}
	p.b.wantWarm(shards, shards)
	for shard := range shards {
		if has := p.b.has(shard); has["all"] != "9" || has["9"] != "of one" || len(has) < 11 {
			t.Errorf("shard %d has %v", shard, has)
		}
	}
	p.b.same(p.c)
}

// TestStandby_NewInQueue has a standby come while groups wait that were made without one.
func TestStandby_NewInQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	p := newPairAt(t, server, proxy.URL(), 1)
	named(t, p.c, "b", 1)
	proxy.Delay(term / 9)
	large := strings.Repeat("x", 300<<10)
	last, err := p.a.set(0, "1", "on its way")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 6 { // each is a group of its own
		if n == 2 {
			p.close("a", false)
			p.cut("b")
			until(t, "the standby has gone", func() bool { return !p.a.HasFeed(0) })
		}
		if last, err = p.a.set(0, fmt.Sprint(n), large); err != nil {
			t.Fatal(err)
		}
	}
	p.open("a")
	until(t, "the standby is back", func() bool { return p.a.HasFeed(0) })
	proxy.Pass()
	if err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	named(t, p.c, "b", 1)
	p.a.keeps("3", "small")
	p.a.keeps("4", "small")
	p.wantTakeover()
}

// TestStandby_Loading has the owner die while shards are loaded by the standby. What it reads late does not disturb the owner that it is then.
func TestStandby_Loading(t *testing.T) {
	t.Parallel()
	const shards = 6
	server := redistest.Start(t)
	n, c := newNetwork(t), client(t, server.Addr())
	a := n.join("a", server.URL()).mustOwn(shards)
	large := strings.Repeat("x", 1<<10)
	for i := range 2000 {
		c, err := a.set(i%shards, fmt.Sprint(i), large)
		if err == nil && i >= 2000-shards { // and all before it
			err = c.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	proxy := redistest.NewProxy(t, server.Addr())
	b := n.join("b", proxy.URL())
	owned := b.owns()
	until(t, "the standby is reached", func() bool { return a.HasFeed(0) })
	n.die(a.Backend, "a", true)
	mustTake(t, owned)
	for shard := range shards {
		until(t, "the shard serves", func() bool { _, err := b.Until(t.Context(), shard); return err == nil })
	}
	b.same(c)
	want := 2000/shards - 1
	for range 20 {
		for shard := range shards {
			if has := len(b.has(shard)); has < want {
				t.Fatalf("shard %d has %d items", shard, has)
			}
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestStandby_Random has owners and standbys follow each other, while streams and connections break: by deaths that a port shows or not,
// sleeps, hand-overs and releases. What was answered is there after each, and nobody answers what is older.
func TestStandby_Random(t *testing.T) {
	t.Parallel()
	const shards, rounds = 2, 14
	server, n := redistest.Start(t), newNetwork(t)
	random := rand.New(rand.NewPCG(8, 9))
	type process struct {
		*owner
		name  string
		proxy *redistest.Proxy
		err   error
	}
	owned, begun := make(chan *process, rounds+3), 0
	begin := func() {
		begun++
		p := &process{name: fmt.Sprint("d", begun), proxy: redistest.NewProxy(t, server.Addr())}
		p.owner = n.join(p.name, p.proxy.URL())
		go func() {
			p.err = p.own(shards)
			owned <- p
		}()
	}
	begin()
	begin()
	begin()
	answered := new(counters)
	var asleep *process
	endSleep := func() {}
	warm := int64(0)
	for round := range rounds {
		p := <-owned
		if p.err != nil {
			t.Fatal(p.err)
		}
		for shard := range shards {
			until(t, "the shard serves", func() bool { _, err := p.Until(t.Context(), shard); return err == nil })
			if has, least := p.number(shard), answered.least(shard); has < least {
				t.Errorf("round %d: shard %d has %d, and %d was answered", round, shard, has, least)
			}
		}
		warm += p.Ownership().Warm
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for shard := range shards {
			callers.Go(func() { p.count(ctx, shard, "n", answered) })
			callers.Go(func() { p.reads(ctx, shard, answered) })
		}
		for range random.IntN(5) {
			switch random.IntN(4) {
			case 0:
				p.proxy.ResetAfter(random.IntN(500))
			case 1:
				n.cut(p.name)
			case 2:
				n.close(p.name, random.IntN(2) == 0)
				n.cut(p.name)
				<-time.After(time.Duration(random.IntN(int(term / 4))))
				n.open(p.name)
			default:
				n.change(p.name, func(w *wire) { w.lose = 1 })
			}
			<-time.After(time.Duration(random.IntN(int(term / 2))))
		}
		endSleep()
		endSleep = func() {}
		if p.Err() == nil && p.proxy != nil {
			switch random.IntN(5) {
			case 0, 1:
				n.die(p.Backend, p.name, true)
			case 2:
				n.die(p.Backend, p.name, false)
			case 3:
				p.Sleep(true)
				asleep = p
			default:
				if _, err := p.HandOver(t.Context()); err != nil {
					t.Log(err)
				}
				if err := p.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		if asleep != p {
			cancel()
			callers.Wait()
		} else { // it is asked while the next one serves
			endSleep = func() {
				asleep.Sleep(false)
				cancel()
				callers.Wait()
				asleep = nil
			}
		}
		begin()
	}
	sleeper := asleep
	endSleep()
	if sleeper != nil {
		if err := sleeper.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for range begun - rounds { // none is ended in its begin
		p := <-owned
		if err := errors.Join(p.err, p.Release(t.Context())); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d shards were taken over without a load", warm)
	if warm < rounds/3 {
		t.Error("hardly a takeover was warm")
	}
}

// number is the value of "n" in memory.
func (o *owner) number(shard int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, _ := strconv.Atoi(o.memory[shard]["n"])
	return n
}

// least is the highest value of "n" that was answered.
func (c *counters) least(shard int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[shard]["n"]
}

// reads answers what is in memory again and again. It must not be older than what was answered before.
func (o *owner) reads(ctx context.Context, shard int, answered *counters) {
	for ctx.Err() == nil {
		least, has := answered.least(shard), o.number(shard)
		if until, err := o.Until(ctx, shard); err == nil && time.Now().Before(until) && has < least {
			o.t.Errorf("shard %d: %d is read after %d was answered", shard, has, least)
		}
		<-time.After(time.Millisecond)
	}
}
