package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestTakeover_Random has owners follow each other, by the death of the one before, its sleep or a hand-over, while callers write to all
// shards. What was answered is loaded by the next owner, and nothing of a sleeper is kept after that.
func TestTakeover_Random(t *testing.T) {
	t.Parallel()
	const shards, rounds = 3, 8
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	random := rand.New(rand.NewPCG(6, 7))
	answered := new(counters)
	var sleepers []*owner
	for round := range rounds {
		o := newOwner(t, proxy.URL()).mustOwn(shards)
		for shard := range shards {
			o.mu.Lock()
			for name, least := range answered.of(shard) {
				if has, _ := strconv.Atoi(o.memory[shard][name]); has < least {
					t.Errorf("round %d: shard %d has %d of %s, and %d was answered", round, shard, has, name, least)
				}
			}
			o.mu.Unlock()
		}
		for _, s := range sleepers {
			if err := o.RenewNow(t.Context(), 0); err != nil {
				t.Log(err)
			}
			s.Sleep(false)
		}
		sleepers = nil
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for shard := range shards {
			callers.Go(func() { o.count(ctx, shard, fmt.Sprint("of ", shard), answered) })
		}
		for range random.IntN(4) {
			proxy.ResetAfter(random.IntN(500))
			<-time.After(time.Duration(random.IntN(int(term / 3))))
		}
		switch random.IntN(3) {
		case 0:
			if err := o.Kill(); err != nil {
				t.Error(err)
			}
		case 1:
			o.Sleep(true)
			sleepers = append(sleepers, o)
		default:
			if err := o.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		cancel()
		callers.Wait()
	}
	for _, s := range sleepers {
		s.Sleep(false)
	}
}

// counters are the highest numbers that were answered, by shards and names.
type counters struct {
	mu  sync.Mutex // guards what follows
	all map[int]map[string]int
}

func (c *counters) of(shard int) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[shard]
}

func (c *counters) answered(shard int, name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[int]map[string]int)
	}
	if c.all[shard] == nil {
		c.all[shard] = make(map[string]int)
	}
	c.all[shard][name] = max(c.all[shard][name], n)
}

// count writes rising numbers until ctx ends or the owner refuses.
func (o *owner) count(ctx context.Context, shard int, name string, answered *counters) {
	o.mu.Lock()
	n, _ := strconv.Atoi(o.memory[shard][name])
	o.mu.Unlock()
	for ctx.Err() == nil {
		n++
		c, err := o.set(shard, name, fmt.Sprint(n))
		if err != nil {
			<-time.After(10 * time.Millisecond)
			continue
		}
		if c.Wait(ctx) == nil {
			answered.answered(shard, name, n)
		}
	}
}

// TestTakeover_Placing has another owner change a shard, and release it. Who gains it then is asked nothing of it before it has taken in
// what it has loaded, and loads it again if it could not.
func TestTakeover_Placing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server.Addr())
	o := newOwner(t, server.URL())
	placed, failed := make(chan struct{}), false
	o.placing = func(shard int) error {
		if err := o.Room(shard, 1, false); err == nil {
			t.Error("there is room for what memory of before has changed")
			o.Commit(shard, nil, 1)
		}
		if _, err := o.Until(t.Context(), shard); err == nil {
			t.Error("what memory of before has may be answered")
		}
		if !failed {
			failed = true
			return errors.New("it cannot be taken in")
		}
		close(placed)
		return nil
	}
	o.mustOwn(2)
	if f, err := o.set(1, "1", "old"); err != nil || f.Wait(t.Context()) != nil {
		t.Fatal("a group is not kept")
	}
	// As another dispatcher does it.
	const epoch = "77/00000000000000aa"
	for key, value := range map[string]string{
		redis.EpochKey(prefix, 1):  epoch,
		redis.RecordKey(prefix, 1): `{"name":"other","epoch":"` + epoch + `","beat":9,"released":true,"format":1,"shards":2}`,
		redis.HeadKey(prefix, 1):   epoch + "/5",
	} {
		if err := c.Set(t.Context(), key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	<-placed
	until(t, "the shard serves", func() bool { _, err := o.Until(t.Context(), 1); return err == nil })
	o.same(c)
}
