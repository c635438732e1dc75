package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_ScriptsForgotten flushes the functions, as a restart without a file
// does, before one script and before several in a pipeline (T32).
func TestStore_ScriptsForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 4})
	gate := sourceGate("source")
	forget := func() {
		t.Helper()
		if err := client.FunctionFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	var items []dispatch.Submission
	for i := range 20 {
		items = append(items, submissions(&gate, fmt.Sprintf("host-%d.example", i), 3)...)
	}
	submit(t, s, gate, items...)
	forget()
	if stats, err := s.Stats(t.Context()); err != nil || stats.Counts.Ready != 60 {
		t.Errorf("Stats: %+v, %v, want 60 ready", stats.Counts, err)
	}
	forget()
	if _, err := s.Now(t.Context()); err != nil {
		t.Errorf("Now: %v", err)
	}
}

// TestStore_Claim_ScriptsForgotten flushes them before claims that carry what frees the
// queue for them: that is settled first, also where both are sent again.
func TestStore_Claim_ScriptsForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MaxInFlight: 1, MaxBlock: time.Hour}}
	if _, err := s.SetRule(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	gate := sourceGate("source")
	gate.Remember = time.Hour
	submit(t, s, gate, submissions(&gate, "a.example", rounds+1)...)
	held := claimOne(t, s)
	for i := range rounds {
		if err := client.FunctionFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		w := want(1)
		w.Done = []dispatch.Success{{ID: held.Task.ID, Token: held.Token}}
		grants := claim(t, s, w)
		if len(grants) != 1 {
			t.Fatalf("claim %d: %d tasks, want the next", i, len(grants))
		}
		held = grants[0]
	}
}

// TestStore_ConnectionsKilled kills all connections between calls (T40).
func TestStore_ConnectionsKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 5)...)
	for range 5 {
		if err := client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
		g := claimOne(t, s)
		settle(t, s, done(&g))
	}
}

// TestStore_Restart kills the server and starts it again from its append-only
// file: what was granted is still held, and nothing of it is lost (T31).
func TestStore_Restart(t *testing.T) {
	t.Parallel()
	// By the second Redis puts off writing while the disk is busy with what came before.
	server := redistest.Start(t, redistest.WithAOF(redistest.FsyncAlways))
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 10)...)
	before := claimOne(t, s)

	server.Kill()
	if _, err := s.Now(t.Context()); !errors.Is(err, dispatch.ErrStoreUnavailable) || !strings.Contains(fmt.Sprint(err), "read time") {
		t.Errorf("Now without a server: %v, want ErrStoreUnavailable that names the operation", err)
	}
	server.Restart()

	results, err := s.Renew(t.Context(), []dispatch.Renewal{{ID: before.Task.ID, Token: before.Token}})
	if err != nil || results[0].Lost != dispatch.LostNone {
		t.Errorf("Renew after the restart: %+v, %v", results, err)
	}
	after := claimOne(t, s)
	if after.Token.Fence <= before.Token.Fence {
		t.Errorf("fence %d after the restart is not above %d (P4)", after.Token.Fence, before.Token.Fence)
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.Counts.Ready != 8 || stats.Counts.Leased != 2 {
		t.Errorf("Stats: %+v, %v, want 8 ready and 2 leased", stats.Counts, err)
	}
}

// TestStore_Full fills the server: submits are refused, and what is in the store
// is still handed out, renewed and settled (T36).
func TestStore_Full(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	items := submissions(&gate, "host.example", 40)
	submit(t, s, gate, items[:20]...)
	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}

	_, err := s.Submit(t.Context(), 1, []dispatch.SourceGate{gate}, items[20:])
	if !errors.Is(err, dispatch.ErrStoreFull) {
		t.Errorf("Submit: %v, want ErrStoreFull", err)
	}
	if err := s.CreateSource(t.Context(), &dispatch.Source{ID: "new", UID: "new", Version: 1}); !errors.Is(err, dispatch.ErrStoreFull) {
		t.Errorf("CreateSource: %v, want ErrStoreFull", err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	for n := range 20 {
		if _, err := s.BeginPolls(t.Context(), []dispatch.Poll{want(1).Poll}); err != nil {
			t.Fatalf("BeginPolls %d: %v", n, err)
		}
		g := claimOne(t, s)
		renewed, err := s.Renew(t.Context(), []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token, Cursor: []byte("here")}})
		if err != nil || renewed[0].Lost != dispatch.LostNone {
			t.Fatalf("Renew %d: %+v, %v", n, renewed, err)
		}
		settle(t, s, done(&g))
	}
	if _, err := s.Expired(t.Context(), 0, 10); err != nil {
		t.Errorf("Expired: %v", err)
	}
	if ok, err := s.Campaign(t.Context(), "keeper", "me", time.Second); !ok || err != nil {
		t.Errorf("Campaign: %v, %v", ok, err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	submit(t, s, gate, items[20:]...)
}

// TestStore_ReadOnly makes the server a replica under the store (T37).
func TestStore_ReadOnly(t *testing.T) {
	t.Parallel()
	server, primary := redistest.Start(t), redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	gate := sourceGate("source")
	host, port, _ := strings.Cut(primary.Addr(), ":")
	if err := client.ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, submissions(&gate, "host.example", 1))
	// A replica may answer LOADING while it copies, and then that it is read-only.
	if !errors.Is(err, dispatch.ErrStoreReadOnly) && !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("Submit: %v, want ErrStoreReadOnly", err)
	}
	if err := client.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	submit(t, s, gate, submissions(&gate, "host.example", 1)...)
}

// TestStore_Claim_ReplyLost loses the reply of a claim: it is repeated under the
// same client token and has taken effect once (T8).
func TestStore_Claim_ReplyLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := open(t, redisstore.Config{URL: proxy.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 10)...)
	proxy.ResetAfter(0)
	grants := claim(t, s, want(3))
	if proxy.Faults() == 0 {
		t.Fatal("no reply was lost")
	}
	if len(grants) != 3 || grants[0].Task.Counters.Attempt != 1 {
		t.Errorf("granted %d tasks, attempt %d, want 3 in their first attempt", len(grants), grants[0].Task.Counters.Attempt)
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.Granted != 3 || stats.Counts.Leased != 3 {
		t.Errorf("Stats: granted %d, leased %d, %v, want 3 and 3", stats.Granted, stats.Counts.Leased, err)
	}
}

// TestStore_RepliesLost loses the reply of each kind of change once (P7).
func TestStore_RepliesLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := open(t, redisstore.Config{URL: proxy.URL()})
	openRule(t, s)
	gate := sourceGate("source")

	proxy.ResetAfter(0)
	results, err := s.Submit(t.Context(), 1, []dispatch.SourceGate{gate}, submissions(&gate, "host.example", 2))
	if err != nil || results[0].Code != dispatch.SubmitExists {
		t.Errorf("Submit: %+v, %v, want EXISTS", results, err)
	}
	g := claimOne(t, s)
	proxy.ResetAfter(0)
	renewed, err := s.Renew(t.Context(), []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token}})
	if err != nil || renewed[0].Lost != dispatch.LostNone {
		t.Errorf("Renew: %+v, %v", renewed, err)
	}
	proxy.ResetAfter(0)
	applied, err := s.Apply(t.Context(), []dispatch.Transition{done(&g)})
	if err != nil || applied[0].Code != dispatch.ApplyAlready || applied[0].Prior != dispatch.ResultSucceeded {
		t.Errorf("Apply: %+v, %v, want ALREADY, succeeded", applied, err)
	}
	if proxy.Faults() != 3 {
		t.Errorf("%d replies were lost, not 3", proxy.Faults())
	}
}

// TestStore_Claim_CallerGone cancels the caller while the claim is under way: it
// takes effect, and its client token finds it (T9).
func TestStore_Claim_CallerGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := open(t, redisstore.Config{URL: proxy.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 2)...)

	proxy.Delay(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	w := want(1)
	var reply dispatch.ClaimReply
	var err error
	var wait sync.WaitGroup
	wait.Go(func() { reply, err = s.Claim(ctx, 0, pool, []dispatch.Want{w}) })
	client := redisClient(t, server.URL())
	await(t, "the claim to run", func() bool {
		n, err := client.Exists(t.Context(), redisstore.ShardKeys("waggle", 0).Grant(w.Collector, w.ClientToken)).Result()
		return err == nil && n == 1
	})
	cancel()
	proxy.Pass()
	wait.Wait()
	if err != nil || len(reply.Grants[0]) != 1 {
		t.Fatalf("Claim after its caller has gone: %+v, %v, want the grant", reply.Grants, err)
	}
	if _, err := s.Claim(ctx, 0, pool, []dispatch.Want{want(1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("Claim of a caller that has gone before: %v, want context.Canceled", err)
	}
	states, err := s.BeginPolls(t.Context(), []dispatch.Poll{w.Poll})
	if err != nil || !states[0].Used || len(states[0].Replay) != 1 || states[0].Replay[0].Token != reply.Grants[0][0].Token {
		t.Errorf("BeginPolls: %+v, %v, want the grant", states, err)
	}
}

// TestStore_Subscribe_Break cuts a subscription: it comes back and says that
// hints may have been lost.
func TestStore_Subscribe_Break(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	ctx, cancel := context.WithCancel(t.Context())
	hints := make(chan dispatch.Hint, 100)
	var err error
	var wait sync.WaitGroup
	wait.Go(func() { err = s.Subscribe(ctx, func(h dispatch.Hint) { hints <- h }) })
	next := func(kind dispatch.HintKind) dispatch.Hint {
		t.Helper()
		limit := time.After(20 * time.Second)
		for {
			select {
			case h := <-hints:
				if h.Kind == kind {
					return h
				}
				if h.Kind != dispatch.HintResync { // which may be repeated
					t.Errorf("hint %+v, want one of kind %d", h, kind)
				}
			case <-limit:
				t.Fatalf("no hint of kind %d within 20 s", kind)
			}
		}
	}
	next(dispatch.HintResync)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 1)...)
	if h := next(dispatch.HintReady); h.Pool != pool || h.Shard != 0 || h.In != 0 {
		t.Errorf("hint %+v, want one of pool %s, now", h, pool)
	}
	if err := client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	next(dispatch.HintResync)
	if err := s.Publish(t.Context(), dispatch.Hint{Kind: dispatch.HintSession, ID: "c", Session: "s"}); err != nil {
		t.Errorf("Publish: %v", err)
	}
	if h := next(dispatch.HintSession); h.ID != "c" || h.Session != "s" {
		t.Errorf("hint %+v", h)
	}
	cancel()
	wait.Wait()
	if err != nil {
		t.Errorf("Subscribe: %v", err)
	}
}

func TestStore_Subscribe_Away(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Config{URL: server.URL()})
	server.Kill()
	if err := s.Subscribe(t.Context(), func(dispatch.Hint) {}); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("Subscribe: %v, want ErrStoreUnavailable", err)
	}
}

// TestStore_Flushed empties Redis under a running store: the number of shards is
// fixed again before anyone comes with another, and there is a warning, once.
func TestStore_Flushed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	core, logs := observer.New(zap.WarnLevel)
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 4, Logger: zap.New(core)})
	if err := s.Ping(t.Context()); err != nil {
		t.Fatalf("Ping: %v", err)
	}
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("Ping of an empty redis: %v", err)
		}
	}
	if n := logs.FilterMessageSnippet("the store lost its data").Len(); n != 1 {
		t.Errorf("%d warnings of lost data, want 1; log: %v", n, logs.All())
	}
	_, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL(), Shards: 2})
	if !errors.Is(err, dispatch.ErrStoreMismatch) {
		t.Errorf("Open with another number of shards: %v, want ErrStoreMismatch", err)
	}
}

// TestStore_Replaced has another dispatcher fix another number of shards after
// Redis was emptied.
func TestStore_Replaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 4})
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	open(t, redisstore.Config{URL: server.URL(), Shards: 2})
	err := s.Ping(t.Context())
	if !errors.Is(err, dispatch.ErrStoreMismatch) || !strings.Contains(fmt.Sprint(err), "2 shards now") {
		t.Errorf("Ping: %v, want ErrStoreMismatch that says how many shards there are", err)
	}
}

func TestStore_Closed(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	s, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL(), Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, dispatch.ErrStoreUnavailable) || !errors.Is(err, redis.ErrClosed) {
		t.Errorf("Ping: %v, want ErrStoreUnavailable", err)
	}
}

// await waits for a condition, asking often.
func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-deadline:
			t.Fatalf("waited 20 s for %s", what)
		case <-tick.C:
		}
	}
}
