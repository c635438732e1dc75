package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap/zaptest"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// process is one that wants to own shard 0 of a server, with the memory that it would have.
type process struct {
	*shard
	t    *testing.T
	ends context.CancelFunc
	lost chan error // of the writer
	// asleep: it does not renew.
	asleep bool

	mu     sync.Mutex
	memory map[dispatch.TaskID]string
}

func newProcess(t *testing.T, addr string, me protocol.Process) *process {
	t.Helper()
	options := goredis.Options{Addr: addr, MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true, ReadTimeout: time.Second}
	client := goredis.NewClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	p := &process{t: t, memory: make(map[dispatch.TaskID]string), lost: make(chan error, 1)}
	p.shard = &shard{
		config: &config{shards: 1, term: 600 * time.Millisecond, name: fmt.Sprint(me)}, me: me, keys: keysOf("w", 0), client: client,
		options: func(context.Context) (goredis.Options, error) { return options, nil },
		log:     zaptest.NewLogger(t), awake: make(chan struct{}, 1), snapshot: p.all,
	}
	return p
}

// task is the item of a task.
func task(id dispatch.TaskID, value string) []byte {
	return codec.AppendItem(nil, codec.Task, 0, func(c *codec.Codec) {
		codec.Text(c, 1, &id)
		codec.Text(c, 2, &value)
	})
}

// all gives the memory as a snapshot.
func (p *process) all(begun func(), page func([]byte, []lock) error) error {
	p.mu.Lock()
	begun()
	memory := maps.Clone(p.memory)
	p.mu.Unlock()
	for id, value := range memory {
		var locks []lock
		if token, leased := strings.CutPrefix(value, "leased "); leased {
			locks = []lock{{task: id, token: token, ttl: time.Minute, write: lockRestore}}
		}
		if err := page(task(id, value), locks); err != nil {
			return err
		}
	}
	return nil
}

// own makes the process the owner, with what is kept.
func (p *process) own() {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	if err := p.campaign(ctx); err != nil {
		p.t.Fatal(err)
	}
	p.memory = p.kept()
	if err := p.load(ctx, func([]byte) error { return nil }); err != nil {
		p.t.Fatal(err)
	}
	var loops sync.WaitGroup
	if !p.asleep {
		loops.Go(func() { _ = p.renewing(ctx) })
	}
	loops.Go(func() { p.lost <- p.writing(ctx) })
	p.ends = func() { cancel(); loops.Wait() }
	p.t.Cleanup(p.ends)
}

// kept is what Redis has.
func (p *process) kept() map[dispatch.TaskID]string {
	p.t.Helper()
	items := make(map[dispatch.TaskID]string)
	err := p.eachPage(p.t.Context(), func(_ string, fields []string) error {
		for i := 0; i < len(fields); i += 2 {
			c := codec.Reader([]byte(fields[i+1]))
			var id dispatch.TaskID
			var value string
			codec.Text(c, 1, &id)
			codec.Text(c, 2, &value)
			items[id] = value
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return items
}

// set changes a task in memory, and gives the flight of its group; empty removes it.
func (p *process) set(id dispatch.TaskID, value string, locks ...lock) (*flight, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if value == "" {
		delete(p.memory, id)
		return p.commit(codec.RemovedText(nil, codec.Task, 0, string(id)), locks)
	}
	p.memory[id] = value
	return p.commit(task(id, value), locks)
}

// keeps changes a task and waits until that is kept.
func (p *process) keeps(id dispatch.TaskID, value string, locks ...lock) *flight {
	p.t.Helper()
	f, err := p.set(id, value, locks...)
	if err == nil {
		err = f.Wait(p.t.Context())
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// same fails unless Redis has what memory has.
func (p *process) same() {
	p.t.Helper()
	if kept := p.kept(); !maps.Equal(kept, p.memory) {
		p.t.Errorf("Redis has %v, memory %v", kept, p.memory)
	}
}

func TestShard_Locks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newProcess(t, server.Addr(), 1)
	p.own()
	lockOf := func() string { return p.client.Get(t.Context(), p.keys.lock("1")).Val() }
	grant := func(token string) lock { return lock{task: "1", token: token, ttl: time.Minute} }
	if f := p.keeps("1", "leased c/t/5", grant("c/t/5")); len(f.bare) > 0 || lockOf() != "c/t/5" {
		t.Errorf("a grant: %v, the lock is %q", f.bare, lockOf())
	}
	if f := p.keeps("1", "leased c/t/6", grant("c/t/6")); !slices.Equal(f.bare, []dispatch.TaskID{"1"}) || lockOf() != "c/t/5" {
		t.Errorf("a grant of a task that has a lock: %v, the lock is %q", f.bare, lockOf())
	}
	p.keeps("1", "waits", lock{task: "1", token: "c/t/6", write: lockRelease})
	if lockOf() != "c/t/5" {
		t.Errorf("a release with another token: the lock is %q", lockOf())
	}
	p.keeps("1", "leased c/t/7", lock{task: "1", token: "c/t/7", ttl: time.Minute, write: lockRenew})
	if lockOf() != "c/t/7" {
		t.Errorf("a renewal: the lock is %q", lockOf())
	}
	p.keeps("1", "done", lock{task: "1", token: "c/t/7", write: lockRelease})
	if lockOf() != "" {
		t.Errorf("a release: the lock is %q", lockOf())
	}
	p.same()
}

// TestShard_Takeover has a second process take over from one that does not renew. Nothing that this one sends later is kept.
func TestShard_Takeover(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := newProcess(t, server.Addr(), 1), newProcess(t, server.Addr(), 2)
	a.asleep = true
	a.own()
	a.keeps("1", "of a")
	began := time.Now()
	b.own()
	if took := time.Since(began); took < b.config.term {
		t.Errorf("b owns the shard after %v, before the term of a was over", took)
	}
	if !maps.Equal(b.memory, a.memory) {
		t.Errorf("b has %v, a had %v", b.memory, a.memory)
	}
	b.keeps("1", "of b")
	f, err := a.set("1", "of a again")
	if err == nil {
		err = f.Wait(t.Context())
	}
	if err == nil {
		t.Error("a group of an owner of before was kept")
	}
	if err := <-a.lost; !errors.Is(err, errNotOwner) {
		t.Errorf("the writer of a ended with %v", err)
	}
	if _, err := a.until(); err == nil {
		t.Error("a does not know that it has lost the shard")
	}
	b.same()
}

// TestShard_LostAnswers cuts the connections again and again: each group is kept once and in order, whatever was lost.
func TestShard_LostAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	p := newProcess(t, proxy.Addr(), 1)
	p.own()
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		if n%3 == 0 {
			proxy.ResetAfter(random.IntN(200))
		}
		p.keeps(dispatch.TaskID(fmt.Sprint(random.IntN(20))), fmt.Sprint("value ", n))
		proxy.Pass()
	}
	p.same()
	if proxy.Faults() < 20 {
		t.Errorf("there were %d faults", proxy.Faults())
	}
}

// TestShard_Full keeps groups while Redis takes no more data.
func TestShard_Full(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newProcess(t, server.Addr(), 1)
	p.own()
	p.keeps("1", "leased c/t/5", lock{task: "1", token: "c/t/5", ttl: time.Minute})
	if err := p.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	p.keeps("1", "done", lock{task: "1", token: "c/t/5", write: lockRelease})
	p.keeps("2", "leased c/t/6", lock{task: "2", token: "c/t/6", ttl: time.Minute})
	if n := p.client.Exists(t.Context(), p.keys.lock("1")).Val(); n != 0 {
		t.Error("a release while Redis is full has left the lock")
	}
	beats := func() uint64 { p.shard.mu.Lock(); defer p.shard.mu.Unlock(); return p.record.Beat }
	first := beats()
	until(t, "renewals go on", func() bool { return beats() > first+beatsOfTerm })
	p.keeps("2", "")
	if err := p.client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	p.keeps("3", "waits")
	p.same()
}

// TestShard_Failover puts a server back to an earlier state, as a replica that takes over with a part of what was written. What the
// owner has is written again, what it had deleted is deleted again, and locks are those of its leases.
func TestShard_Failover(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newProcess(t, server.Addr(), 1)
	p.own()
	p.keeps("1", "waits")
	p.keeps("2", "leased c/t/5", lock{task: "2", token: "c/t/5", ttl: time.Minute})
	p.keeps("3", "waits")
	before := dumped(t, p)
	p.keeps("1", "")
	p.keeps("2", "done", lock{task: "2", token: "c/t/5", write: lockRelease})
	p.keeps("3", "leased c/t/6", lock{task: "3", token: "c/t/6", ttl: time.Minute})
	p.keeps("4", "waits")
	restore(t, p, before)
	p.keeps("5", "waits")
	p.same()
	if has := p.client.Get(t.Context(), p.keys.lock("3")).Val(); has != "c/t/6" {
		t.Errorf("the lock of a lease that a failover has lost is %q", has)
	}
	before = dumped(t, p)
	p.keeps("6", "waits")
	restore(t, p, before) // while nothing is written: a renewal notices
	until(t, "what a failover has lost is written again", func() bool { return p.kept()["6"] != "" })
	p.keeps("7", "waits")
	p.same()
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for !is() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			t.Fatalf("after 10 s still not: %s", what)
		}
	}
}

// TestShard_RewriteLost has another process acquire the shard while its owner writes again what a failover has lost: nothing is
// answered, and the owner stops.
func TestShard_RewriteLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newProcess(t, server.Addr(), 1)
	p.snapshot = func(begun func(), page func([]byte, []lock) error) error {
		other := protocol.Epoch{Number: 9, Process: 2}
		if err := p.client.Set(t.Context(), p.keys.epoch(), epochText(other), 0).Err(); err != nil {
			return err
		}
		return p.all(begun, page)
	}
	p.own()
	p.keeps("1", "waits")
	before := dumped(t, p)
	p.keeps("2", "waits")
	restore(t, p, before)
	var flights []*flight
	for _, id := range []dispatch.TaskID{"3", "4"} {
		if f, err := p.set(id, "waits"); err == nil {
			flights = append(flights, f)
		}
	}
	if err := <-p.lost; !errors.Is(err, errNotOwner) {
		t.Errorf("the writer ended with %v", err)
	}
	for _, f := range flights {
		if err := f.Wait(t.Context()); err == nil {
			t.Error("a group of an owner that was replaced is answered")
		}
	}
}

// TestShard_WatchBroken breaks the connection of a candidate again and again: it must not take over before it has watched the record
// for a whole term on one.
func TestShard_WatchBroken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := newProcess(t, server.Addr(), 1)
	a.asleep = true
	a.own()
	proxy := redistest.NewProxy(t, server.Addr())
	b := newProcess(t, proxy.Addr(), 2)
	owned := make(chan error, 1)
	go func() { owned <- b.campaign(t.Context()) }()
	var last time.Time
	tick := time.NewTicker(a.config.term / 4)
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
	if took := time.Since(last); took < a.config.term {
		t.Errorf("b owns the shard %v after its connection broke", took)
	}
}

// dumped is all that the server has but who owns the shard.
func dumped(t *testing.T, p *process) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, key := range p.client.Keys(t.Context(), "*").Val() {
		if key != p.keys.epoch() && key != p.keys.record() {
			all[key] = p.client.Dump(t.Context(), key).Val()
		}
	}
	return all
}

// restore makes the server what it was, at once.
func restore(t *testing.T, p *process, all map[string]string) {
	t.Helper()
	pipe := p.client.TxPipeline()
	for _, key := range p.client.Keys(t.Context(), "*").Val() {
		if key != p.keys.epoch() && key != p.keys.record() {
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
