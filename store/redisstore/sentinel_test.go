package redisstore_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_Sentinel finds its server through a Sentinel.
func TestStore_Sentinel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Config{URL: "redis+sentinel://" + startSentinel(t, server.Addr()) + "/main?pool_size=5"})
	openRule(t, s)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 1)...)
	g := claimOne(t, s)
	settle(t, s, done(&g))
}

// TestStore_FailedOver has a Sentinel promote the replica of its server: that is no
// loss of data.
func TestStore_FailedOver(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	host, port, _ := strings.Cut(server.Addr(), ":")
	replica := redistest.Start(t, redistest.WithConfig("replicaof", host+" "+port))
	client := redisClient(t, replica.URL())
	await(t, "the replica", func() bool {
		text, err := client.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(text, "master_link_status:up")
	})
	addr := startSentinel(t, server.Addr())
	s := openWatched(t, redisstore.Config{URL: "redis+sentinel://" + addr + "/main"})
	await(t, "the replica to have what the store was opened with", func() bool {
		return client.HExists(t.Context(), key.Prefix("waggle").Meta(), "shards").Val() // which is written last
	})
	sentinel := sentinelClient(t, addr)
	await(t, "the failover", func() bool { return sentinel.Failover(t.Context(), "main").Err() == nil })
	await(t, "the promotion", func() bool { return client.Set(t.Context(), "promoted", "yes", 0).Err() == nil })
	server.Kill()
	await(t, "the promoted redis", func() bool { return s.Ping(t.Context()) == nil })
	s.ping(t, 0)
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.ping(t, 1)
}

// TestStore_SentinelKnowsNoPrimary has the Sentinels forget the primary: then the store is
// away, and nothing of it is taken for missing.
func TestStore_SentinelKnowsNoPrimary(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	addr := startSentinel(t, server.Addr())
	s := open(t, redisstore.Config{URL: "redis+sentinel://" + addr + "/main"})
	if err := s.PutSource(t.Context(), &dispatch.Source{ID: "a", UID: "a", Version: 1}, 0); err != nil {
		t.Fatal(err)
	}
	if err := sentinelClient(t, addr).Remove(t.Context(), "main").Err(); err != nil {
		t.Fatal(err)
	}
	if err := redisClient(t, server.URL()).ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SourcesByID(t.Context(), []string{"a"}); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("Source: %v, want ErrStoreUnavailable", err)
	}
	if _, err := s.Now(t.Context()); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("Now: %v, want ErrStoreUnavailable", err)
	}
}

// startSentinel runs a Sentinel that watches the server as "main", and gives its
// address.
func startSentinel(t *testing.T, server string) string {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(server, ":")
	_, own, _ := strings.Cut(addr, ":")
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor main %s %s 1\n", own, filepath.Dir(conf), host, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "redis-server", conf, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a sentinel: %v", err)
	}
	t.Cleanup(func() {
		// It is killed with the test's context; its error says just that.
		_ = cmd.Wait()
	})
	client := sentinelClient(t, addr)
	await(t, "the sentinel", func() bool {
		found, err := client.GetMasterAddrByName(t.Context(), "main").Result()
		return err == nil && len(found) == 2 && found[1] == port
	})
	return addr
}

// sentinelClient is a client of a Sentinel until the test ends.
func sentinelClient(t *testing.T, addr string) *redis.SentinelClient {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close the sentinel's client: %v", err)
		}
	})
	return client
}
