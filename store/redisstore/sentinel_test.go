package redisstore_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/redisstore"
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
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		if err := sentinel.Close(); err != nil {
			t.Errorf("close the sentinel's client: %v", err)
		}
	})
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
	client := redis.NewSentinelClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close the sentinel's client: %v", err)
		}
	})
	await(t, "the sentinel", func() bool {
		found, err := client.GetMasterAddrByName(t.Context(), "main").Result()
		return err == nil && len(found) == 2 && found[1] == port
	})
	return addr
}
