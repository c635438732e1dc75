package redis_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestSentinel_LostGroups kills a primary whose replica lacks the last groups, while the owner lives: a Sentinel promotes the replica, and
// the owner writes again what is missing there.
func TestSentinel_LostGroups(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica := redistest.Start(t, redistest.WithConfig("replicaof", "127.0.0.1 "+portOf(server.Addr())), redistest.WithConfig("repl-diskless-sync-delay", "0"))
	c := client(t, replica.Addr())
	until(t, "the replica has the primary", func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	sentinel := startSentinel(t, server.Addr(), 1)
	o := newOwner(t, "redis+sentinel://"+sentinel+"/main").mustOwn(1)
	o.keeps("1", "before")
	until(t, "the replica has it", func() bool { return kept(t, c)["1"] == "before" })
	replica.Pause()
	// More than the sockets take: what comes behind is lost with the primary.
	if err := client(t, server.Addr()).Set(t.Context(), "foreign", strings.Repeat("x", 64<<20), 0).Err(); err != nil {
		t.Fatal(err)
	}
	o.keeps("1", "")
	o.keeps("2", "lost")
	server.Kill()
	replica.Resume()
	until(t, "the replica is promoted", func() bool { return strings.Contains(c.Info(t.Context(), "replication").Val(), "role:master") })
	o.soon("3", "after")
	o.same(c)
	if s := o.Counts(); s.Rewrites == 0 || s.Epoch <= int64(o.term.Epoch) {
		t.Errorf("counts are %+v", s)
	}
}

// startSentinel runs a Sentinel that watches the server as "main", and gives its address once it knows so many replicas.
func startSentinel(t *testing.T, server string, replicas int) string {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor main 127.0.0.1 %s 1\nsentinel down-after-milliseconds main 500\n",
		portOf(addr), filepath.Dir(conf), portOf(server))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "redis-server", conf, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a sentinel: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // it is killed with the test's context, and its error says that
	})
	known := goredis.NewSentinelClient(&goredis.Options{Addr: addr})
	t.Cleanup(func() { _ = known.Close() })
	until(t, "the Sentinel knows the replicas", func() bool {
		has, err := known.Replicas(t.Context(), "main").Result()
		return err == nil && len(has) == replicas
	})
	return addr
}
