package redis_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// acks has groups wait for so many replicas.
func acks(n int) func(*redis.Config) { return func(c *redis.Config) { c.AckReplicas = n } }

// slowItems take a while to load.
type slowItems struct{ items }

func (i *slowItems) Add(piece []byte) error {
	<-time.After(term / 2)
	return i.items.Add(piece)
}

// TestDoubt_Reload: a shard in doubt that must be loaded anew, for longer than the next try, comes back.
func TestDoubt_Reload(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d replicas", n), func(t *testing.T) {
			server := redistest.Start(t)
			o := newOwner(t, server.URL(), acks(n))
			var err error
			o.term, err = o.Acquire(t.Context(), backend.Owner{
				Shards: 2, Snapshot: o.snapshot, Leased: func() bool { return true }, Unlocked: o.unlock,
				Gained: func(ctx context.Context, gain backend.Gain) error {
					if gain.Kept {
						return nil
					}
					return o.Load(ctx, gain.Shard, &slowItems{items{owner: o, shard: gain.Shard}})
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			for shard := range 2 {
				if err := o.Load(t.Context(), shard, &items{owner: o, shard: shard}); err != nil {
					t.Fatal(err)
				}
			}
			c := client(t, server.Addr())
			for _, name := range []string{"a", "b", "c"} {
				kept, err := o.set(1, name, "value")
				if err == nil {
					err = kept.Wait(t.Context())
				}
				if (err != nil) != (n > 0) {
					t.Fatal(err)
				}
			}
			loads := o.Ownership().Loaded
			// Somebody else has written the shard: it is loaded anew.
			if err := c.Set(t.Context(), redis.HeadKey(prefix, 1), "77/00000000000000aa/1000", 0).Err(); err != nil {
				t.Fatal(err)
			}
			until(t, "the shard is loaded anew", func() bool { return o.Ownership().Loaded > loads })
			until(t, "the shard is back", func() bool {
				back := o.Room(1, 1, false) == nil
				if back {
					o.Commit(1, nil, 1)
				}
				return back
			})
		})
	}
}

// TestDoubt_Release: a release by plan while groups are in doubt is clean.
func TestDoubt_Release(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const shards, rounds = 3, 2
	for range rounds {
		c := client(t, server.Addr())
		_ = c.FlushAll(t.Context())
		o := newOwner(t, server.URL(), acks(1)).mustOwn(shards)
		for shard := range shards {
			kept, err := o.set(shard, "a", "value")
			if err == nil {
				err = kept.Wait(t.Context())
			}
			if err == nil {
				t.Fatal("no doubt")
			}
		}
		before := c.Get(t.Context(), redis.HeadKey(prefix, 0)).Val()
		until(t, "the owner writes a group of nothing", func() bool { return c.Get(t.Context(), redis.HeadKey(prefix, 0)).Val() != before })
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		for shard := range shards {
			if text := c.Get(t.Context(), redis.RecordKey(prefix, shard)).Val(); !strings.Contains(text, `"released":true`) {
				t.Errorf("shard %d is not released: %s", shard, text)
			}
		}
	}
}

// TestDoubt_AllShards: a change of all shards is in doubt as long as one of them is, also one that it has nothing of.
func TestDoubt_AllShards(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOwner(t, server.URL(), acks(1)).mustOwn(2)
	kept, err := o.set(1, "a", "value")
	if err == nil {
		err = kept.Wait(t.Context())
	}
	if !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Fatal(err)
	}
	for range 10 {
		group := append(binary.LittleEndian.AppendUint64(nil, 1), item(0, "x", "y")...)
		if err := o.Room(backend.AllShards, len(group), false); err != nil {
			t.Fatal(err)
		}
		all := o.Commit(backend.AllShards, group, len(group))
		part := all.Part(1)
		if part == nil {
			t.Fatal("the part of shard 1 says that all is kept, while no replica has it")
		}
		if err := part.Wait(t.Context()); err == nil {
			t.Fatal("the part of shard 1 is answered, while no replica has it")
		}
	}
}
