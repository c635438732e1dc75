package redis_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/codec"
)

// TestMain finds goroutines that are left. One of go-redis that probes a server which is away sees after a second that its pool is closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// term is that of the owners in tests.
const term = 900 * time.Millisecond

const prefix = "w"

// owner uses a backend, with the memory that a store would have: queues by their names, in each shard.
type owner struct {
	*redis.Backend
	t    *testing.T
	term backend.Term

	mu       sync.Mutex // guards what follows
	memory   map[int]map[string]string
	leases   map[string]string // tokens by tasks, of shard 0
	gains    []backend.Gain
	unlocked []backend.Unlocked
	undo     func(*owner, backend.Unlocked) (backend.Commit, error)
	placing  func(shard int) error // called when a shard was loaded that was gained later
}

// newOwner makes one that owns nothing yet.
func newOwner(t *testing.T, url string, change ...func(*redis.Config)) *owner {
	t.Helper()
	config := redis.Config{URL: url, Prefix: prefix, Name: t.Name(), Address: "there:1", Logger: zaptest.NewLogger(t)}
	config.SetTerm(term)
	for _, change := range change {
		change(&config)
	}
	b, err := redis.New(config)
	if err != nil {
		t.Fatal(err)
	}
	o := &owner{Backend: b, t: t, memory: make(map[int]map[string]string), leases: make(map[string]string)}
	t.Cleanup(func() { _ = b.Kill() })
	return o
}

// own acquires the store and loads it.
func (o *owner) own(shards int) error {
	ctx := o.t.Context()
	var err error
	o.term, err = o.Acquire(ctx, backend.Owner{
		Shards: shards, Snapshot: o.snapshot, Leased: func() bool { return true }, Gained: o.gained, Unlocked: o.unlock,
		Follow: o.follow,
	})
	for _, gain := range o.term.Gained {
		if err == nil && !gain.Kept {
			err = o.Load(ctx, gain.Shard, &items{owner: o, shard: gain.Shard})
		}
	}
	return err
}

func (o *owner) mustOwn(shards int) *owner {
	o.t.Helper()
	if err := o.own(shards); err != nil {
		o.t.Fatal(err)
	}
	return o
}

// items take what is loaded into the memory of an owner.
type items struct {
	*owner
	shard int
}

func (i *items) Begin(shards int) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.memory, i.shard)
	if shards == 0 {
		return errors.New("there are no shards")
	}
	return nil
}

func (i *items) Add(piece []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(piece) > 0 {
		kind, shard, fields, rest, ok := codec.CutItem(piece)
		if !ok || shard != i.shard {
			return fmt.Errorf("an item of kind %d is of shard %d, or cut off", kind, shard)
		}
		piece = rest
		if kind == codec.Used || kind == codec.LockItem {
			continue
		}
		var name, value string
		c := codec.Reader(fields)
		codec.Text(c, 1, &name)
		codec.Text(c, 2, &value)
		if err := c.Known(); err != nil {
			return err
		}
		i.put(shard, name, value)
	}
	return nil
}

func (i *items) Ended() error { return errors.New("there is no end") }
func (i *items) Warm() error  { return nil }

func (i *items) Group(group []byte) error {
	if len(group) < 8 || binary.LittleEndian.Uint64(group) == 0 {
		return fmt.Errorf("a group of %d bytes has no instant", len(group))
	}
	return i.Add(group[8:])
}

// follow takes a shard of another owner into the memory.
func (o *owner) follow(of backend.Followed) (backend.Standby, error) {
	i := &items{owner: o, shard: of.Shard}
	err := i.Begin(of.Shards)
	return i, err
}

// put changes the memory; an empty value removes. The mutex is held.
func (o *owner) put(shard int, name, value string) {
	if o.memory[shard] == nil {
		o.memory[shard] = make(map[string]string)
	}
	if o.memory[shard][name] = value; value == "" {
		delete(o.memory[shard], name)
	}
}

func item(shard int, name, value string) []byte {
	if value == "" {
		return codec.RemovedText(nil, codec.Queue, shard, name)
	}
	return codec.AppendItem(nil, codec.Queue, shard, func(c *codec.Codec) {
		codec.Text(c, 1, &name)
		codec.Text(c, 2, &value)
	})
}

func (o *owner) snapshot(shard int, to backend.Snapshot) error {
	begun, write := to.Begun, to.Write
	o.mu.Lock()
	begun()
	memory := maps.Clone(o.memory[shard])
	o.mu.Unlock()
	for name, value := range memory {
		if err := write(item(shard, name, value)); err != nil {
			return err
		}
	}
	return write(codec.AppendItem(nil, codec.End, 0, func(*codec.Codec) {}))
}

func (o *owner) gained(ctx context.Context, gain backend.Gain) error {
	if !gain.Kept {
		o.mu.Lock()
		delete(o.memory, gain.Shard)
		o.mu.Unlock()
		if err := o.Load(ctx, gain.Shard, &items{owner: o, shard: gain.Shard}); err != nil {
			return err
		}
		if o.placing != nil {
			if err := o.placing(gain.Shard); err != nil {
				return err
			}
		}
	} else if gain.Shard == 0 {
		o.mu.Lock()
		var locks []byte
		for task, token := range o.leases {
			locks = codec.AppendLock(locks, codec.Writer(nil), 0, &codec.Lock{Task: task, Token: token, Write: codec.LockRestore, TTL: 60_000})
		}
		o.mu.Unlock()
		if len(locks) > 0 {
			if c, err := o.send(0, locks); err != nil {
				return err
			} else if err := c.Wait(ctx); err != nil {
				return err
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gains = append(o.gains, gain)
	return nil
}

func (o *owner) unlock(shard int, locks []backend.Unlocked) (backend.Commit, error) {
	o.mu.Lock()
	o.unlocked = append(o.unlocked, locks...)
	undo := o.undo
	o.mu.Unlock()
	if undo == nil {
		return nil, nil
	}
	return undo(o, locks[0])
}

// takeUnlocked are the locks that were not as they must be, since it was asked last.
func (o *owner) takeUnlocked() []backend.Unlocked {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.unlocked
	o.unlocked = nil
	return taken
}

// takeGains are the shards that were gained since it was asked last.
func (o *owner) takeGains() []backend.Gain {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.gains
	o.gains = nil
	return taken
}

// send commits a group of items.
func (o *owner) send(shard int, items []byte) (backend.Commit, error) {
	group := append(binary.LittleEndian.AppendUint64(nil, 1), items...)
	if err := o.Room(shard, len(group), false); err != nil {
		return nil, err
	}
	return o.Commit(shard, group, len(group)), nil
}

// set changes a value in memory and commits that; empty removes it.
func (o *owner) set(shard int, name, value string, locks ...codec.Lock) (backend.Commit, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	items := item(shard, name, value)
	for _, l := range locks {
		items = codec.AppendLock(items, codec.Writer(nil), shard, &l)
	}
	c, err := o.send(shard, items)
	if err == nil {
		o.put(shard, name, value)
	}
	return c, err
}

// keeps changes a value and waits until that is kept.
func (o *owner) keeps(name, value string, locks ...codec.Lock) {
	o.t.Helper()
	c, err := o.set(0, name, value, locks...)
	if err == nil {
		err = c.Wait(o.t.Context())
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// soon changes a value, again and again until that is kept.
func (o *owner) soon(name, value string, locks ...codec.Lock) {
	o.t.Helper()
	until(o.t, "a group is kept", func() bool {
		c, err := o.set(0, name, value, locks...)
		return err == nil && c.Wait(o.t.Context()) == nil
	})
}

// client is a client of a server, for what the test does itself.
func client(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// kept is what Redis has of shard 0.
func kept(t *testing.T, c goredis.Cmdable) map[string]string {
	t.Helper()
	has := make(map[string]string)
	for n := range 64 {
		values, err := c.HGetAll(t.Context(), fmt.Sprintf("%s:{0}:items:%d", prefix, n)).Result()
		if err != nil {
			t.Fatal(err)
		}
		for field, value := range values {
			var name, of string
			r := codec.Reader([]byte(field[1:] + value))
			codec.Text(r, 1, &name)
			codec.Text(r, 2, &of)
			has[name] = of
		}
	}
	return has
}

// same fails unless Redis has what memory has.
func (o *owner) same(c goredis.Cmdable) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if has := kept(o.t, c); !maps.Equal(has, o.memory[0]) {
		o.t.Errorf("Redis has %v, memory %v", has, o.memory[0])
	}
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for !is() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			t.Fatalf("after 20 s still not: %s", what)
		}
	}
}

func grant(token string) codec.Lock {
	return codec.Lock{Task: "1", Token: token, Write: codec.LockGrant, TTL: 60_000}
}

func lock(token string, write codec.LockWrite) codec.Lock {
	return codec.Lock{Task: "1", Token: token, Write: write, TTL: 60_000}
}
