package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// homeAway counts the calls that tell home shards of what is held for long, and while away
// is set fails them.
type homeAway struct {
	told atomic.Int64
	away atomic.Bool
}

func (*homeAway) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *homeAway) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "fcall" && strings.HasPrefix(fmt.Sprint(cmd.Args()[1]), "waggle_prolong") {
			h.told.Add(1)
			if h.away.Load() {
				err := errors.New("ERR the home shard is away") // which is not tried again
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (*homeAway) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// polledWorld is a store of several shards with a lease of a collector whose home is
// another one.
type polledWorld struct {
	*testing.T
	clock  *redistest.Clock
	client *redis.Client
	store  *redisstore.Store
	away   homeAway
	home   int
	poll   dispatch.Poll
	grant  dispatch.Grant
}

func newPolledWorld(t *testing.T) *polledWorld {
	t.Helper()
	const shards = 4
	shardOf := func(name string) int { return dispatch.ShardOf(dispatch.SlotOf(name), shards) }
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Freeze()
	ask, host := want(1), "host.example"
	ask.Noted = true
	w := &polledWorld{T: t, clock: server.Clock(), client: redisClient(t, server.URL()), poll: ask.Poll, home: shardOf(ask.Collector)}
	for shardOf(host) == w.home {
		host = "a-" + host
	}
	w.store = open(t, redisstore.Config{URL: server.URL(), Shards: shards})
	redisstore.AddHook(w.store, &w.away)
	openRule(t, w.store)
	gate := sourceGate("source")
	gate.MaxHold = bounds.MaxHold
	submit(t, w.store, gate, submissions(&gate, host, 1)...)
	w.polls(false)
	reply, err := w.store.Claim(t.Context(), shardOf(host), pool, 0, []dispatch.Want{ask})
	if err != nil || len(reply.Grants[0]) != 1 {
		t.Fatalf("Claim: %+v, %v", reply, err)
	}
	w.grant = reply.Grants[0][0]
	return w
}

// polls polls, and checks whether the client token was used.
func (w *polledWorld) polls(used bool) {
	w.Helper()
	states, err := w.store.BeginPolls(w.Context(), []dispatch.Poll{w.poll})
	if err != nil || states[0].Used != used || used != (len(states[0].Replay) == 1) {
		w.Fatalf("BeginPolls: %+v, %v, used should be %v", states, err, used)
	}
}

// renews renews the lease for so long, each ten seconds.
func (w *polledWorld) renews(long time.Duration) {
	w.Helper()
	for ; long > 0; long -= 10 * time.Second {
		w.clock.Advance(10 * time.Second)
		results, err := w.store.Renew(w.Context(), []dispatch.Renewal{{ID: w.grant.Task.ID, Token: w.grant.Token}})
		if err != nil || results[0].Lost != dispatch.LostNone || results[0].Remaining != dispatch.DefaultLeaseDuration || results[0].Duration != dispatch.DefaultLeaseDuration {
			w.Fatalf("Renew: %+v, %v", results, err)
		}
	}
}

// TestRenew_TellsTheHome renews a lease for hours: its collector's home shard is told of it
// once a minute, and not at all in the first minutes, as most leases last.
func TestRenew_TellsTheHome(t *testing.T) {
	t.Parallel()
	w := newPolledWorld(t)
	w.renews(5 * time.Minute)
	if n := w.away.told.Load(); n != 0 {
		t.Errorf("the home shard was told %d times of a young lease", n)
	}
	w.renews(2 * time.Hour)
	if n := w.away.told.Load(); n < 110 || n > 120 {
		t.Errorf("the home shard was told %d times in two hours", n)
	}
	w.polls(true)
}

// TestRenew_HomeAway renews while the home shard does not hear of it: renewals go on, for
// the twenty minutes of a note nothing is forgotten, and a minute after it is back it knows.
func TestRenew_HomeAway(t *testing.T) {
	t.Parallel()
	w := newPolledWorld(t)
	w.renews(30 * time.Minute)
	w.away.away.Store(true)
	w.renews(19 * time.Minute)
	w.polls(true)
	w.away.away.Store(false)
	w.renews(time.Minute)
	w.away.away.Store(true)
	w.renews(18 * time.Minute)
	w.polls(true)
}

// TestPolled_Forgotten polls in step after step: sweeps leave the sets of the last two.
func TestPolled_Forgotten(t *testing.T) {
	t.Parallel()
	w := newPolledWorld(t)
	home := key.Prefix("waggle").Shard(w.home)
	for range 5 {
		w.clock.Advance(redisstore.PollStep)
		if _, err := w.store.Expired(t.Context(), w.home, 1); err != nil {
			t.Fatal(err)
		}
		w.poll = want(1).Poll
		w.polls(false)
	}
	step := w.clock.Now().UnixMilli() / redisstore.PollStep.Milliseconds()
	found, err := w.client.Keys(t.Context(), string(home)+"polled:*").Result()
	if err != nil || len(found) != 2 || w.client.Exists(t.Context(), home.Polled(step), home.Polled(step-1)).Val() != 2 {
		t.Errorf("polls are noted in %q, %v, want steps %d and the one before", found, err, step)
	}
	for _, key := range found {
		if n := w.client.SCard(t.Context(), key).Val(); n != 1 {
			t.Errorf("%s has %d polls", key, n)
		}
	}
}
