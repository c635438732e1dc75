package redisstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

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
	d, err := engine.New(engine.Config{Store: s, ID: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	o, order := operate.New(d), operate.HoldOrder{Name: dispatch.HoldDefault}
	targets := []dispatch.HoldTarget{{Source: "held"}, {Pool: "held"}, {Queue: "*.held.test"}, {Collector: "held"}}
	if _, err := o.CreateSource(t.Context(), "held", dispatch.SourceSpec{Seeds: []dispatch.Seed{{URL: "https://held.test/"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.SetHolds(t.Context(), targets[:1], order); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}

	_, err = s.Submit(t.Context(), 1, []dispatch.SourceGate{gate}, items[20:])
	if !errors.Is(err, dispatch.ErrStoreFull) {
		t.Errorf("Submit: %v, want ErrStoreFull", err)
	}
	if err := s.PutSource(t.Context(), &dispatch.Source{ID: "new", UID: "new", Version: 1}, 0); !errors.Is(err, dispatch.ErrStoreFull) {
		t.Errorf("CreateSource: %v, want ErrStoreFull", err)
	}
	if rules, version, err := s.Rules(t.Context()); len(rules) != 1 || version != 1 || err != nil {
		t.Errorf("Rules: %v, version %d, %v", rules, version, err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	full := func(want bool) {
		t.Helper()
		if stats, err := s.Stats(t.Context()); stats.Full != want || err != nil {
			t.Errorf("Stats: full is %v, want %v; %v", stats.Full, want, err)
		}
	}
	full(true)
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
	if leader, err := s.Campaign(t.Context(), "keeper", "me", time.Second); leader != "me" || err != nil {
		t.Errorf("Campaign: %q, %v", leader, err)
	}
	if did, err := o.SetHolds(t.Context(), targets, order); err != nil || len(did.Changed) != len(targets)-1 {
		t.Errorf("SetHolds: %+v, %v", did, err)
	}
	if did, err := o.LiftHolds(t.Context(), targets, dispatch.HoldDefault, false); err != nil || len(did.Changed) != len(targets) {
		t.Errorf("LiftHolds: %+v, %v", did, err)
	}
	if owner, err := s.BindCollector(t.Context(), "c1", "token:a", dispatch.BindingTTL); owner != "token:a" || err != nil {
		t.Errorf("BindCollector: %q, %v", owner, err)
	}
	if owner, err := s.ReleaseCollector(t.Context(), "c1"); owner != "token:a" || err != nil {
		t.Errorf("ReleaseCollector: %q, %v", owner, err)
	}
	if err := s.AppendAudit(t.Context(), dispatch.AuditEntry{Target: "a"}); err != nil {
		t.Errorf("AppendAudit: %v", err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	submit(t, s, gate, items[20:]...)
	full(false)
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

// TestStore_NoReplicas asks of the server for replicas that it has not got.
func TestStore_NoReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	gate := sourceGate("source")
	if err := client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, submissions(&gate, "host.example", 1))
	if !errors.Is(err, dispatch.ErrStoreReadOnly) || !strings.Contains(fmt.Sprint(err), "NOREPLICAS") {
		t.Errorf("Submit: %v, want ErrStoreReadOnly", err)
	}
	if _, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL(), Prefix: "new"}); !errors.Is(err, dispatch.ErrStoreReadOnly) {
		t.Errorf("Open of a new store: %v, want ErrStoreReadOnly", err)
	}
	if err := client.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err(); err != nil {
		t.Fatal(err)
	}
	submit(t, s, gate, submissions(&gate, "host.example", 1)...)
}

// TestStore_DiskFull has a file where the server would keep its data be a
// directory, and it takes no writes once it could not keep them (MISCONF).
func TestStore_DiskFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithConfig("dbfilename", "kept.rdb"), redistest.WithConfig("save", "3600 1000000"))
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	dir, err := client.ConfigGet(t.Context(), "dir").Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir["dir"], "kept.rdb", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	gate := sourceGate("source")
	if err := client.Save(t.Context()).Err(); err == nil {
		t.Fatal("redis kept its data in a directory")
	}
	if err := client.BgSave(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !strings.Contains(client.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err"); {
		if time.Since(began) > 10*time.Second {
			t.Fatal("no save failed")
		}
	}
	_, err = s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, submissions(&gate, "host.example", 1))
	if !errors.Is(err, dispatch.ErrStoreReadOnly) || !strings.Contains(fmt.Sprint(err), "MISCONF") {
		t.Errorf("Submit: %v, want ErrStoreReadOnly", err)
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
