package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

func TestOpen_BadConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		config redisstore.Config
		says   string
	}{
		{"empty", redisstore.Config{}, `scheme "" is unknown`},
		{"no scheme", redisstore.Config{URL: "localhost:6379"}, "is unknown; it is one of redis://"},
		{"other scheme", redisstore.Config{URL: "postgres://localhost/x"}, `scheme "postgres" is unknown`},
		{"no host", redisstore.Config{URL: "redis:///0"}, "names no host"},
		{"bad port", redisstore.Config{URL: "redis://localhost:port"}, "does not parse"},
		{"port out of range", redisstore.Config{URL: "redis://localhost:65536"}, "65536 is not 1 to 65535"},
		{"bad port of one of several", redisstore.Config{URL: "redis+cluster://a:x,b:1"}, "a:x is not 1 to 65535"},
		{"several hosts", redisstore.Config{URL: "redis://a:1,b:2"}, "several hosts"},
		{"bad database", redisstore.Config{URL: "redis://localhost/x"}, "database"},
		{"unknown option", redisstore.Config{URL: "redis://localhost?tint=blue"}, "tint"},
		{"sentinel without master", redisstore.Config{URL: "redis+sentinel://a:1,b:2"}, "/<master>"},
		{"sentinel with an empty host", redisstore.Config{URL: "redis+sentinel://a:1,,b:2/main"}, "empty host"},
		{"cluster with a database", redisstore.Config{URL: "redis+cluster://a:1/3"}, "database"},
		{"unix without path", redisstore.Config{URL: "unix://"}, "socket"},
		{"prefix with a brace", redisstore.Config{URL: "redis://localhost", Prefix: "a{b}"}, `prefix "a{b}"`},
		{"prefix too long", redisstore.Config{URL: "redis://localhost", Prefix: strings.Repeat("p", 65)}, "at most 64"},
		{"shards", redisstore.Config{URL: "redis://localhost", Shards: 5000}, "shards 5000 is not 0 to 4096"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := redisstore.Open(t.Context(), c.config)
			if !errors.Is(err, dispatch.ErrInvalid) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("Open: %v, want ErrInvalid that says %q", err, c.says)
			}
		})
	}
}

func TestOpen_PasswordIsNotTold(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://user:secret@localhost:port", "redis://user:secret@localhost/x", "redis+sentinel://user:secret@a:1",
		"redis+cluster://:secret@127.0.0.1:1", "redis://:secret@127.0.0.1:1", "redis+cluster://:secret@a:x,b:1",
		"redis+sentinel://a:1?sentinel_password=secret",
	} {
		if _, err := redisstore.Open(t.Context(), redisstore.Config{URL: url}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(%s): %v", url, err)
		}
	}
}

func TestOpen_Away(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://127.0.0.1:1/0", "rediss://127.0.0.1:1/0", "unix:///nowhere/redis.sock",
		"redis+sentinel://127.0.0.1:1,127.0.0.1:2/main", "redis+cluster://127.0.0.1:1,127.0.0.1:2",
	} {
		if _, err := redisstore.Open(t.Context(), redisstore.Config{URL: url}); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Errorf("Open(%s): %v, want ErrStoreUnavailable", url, err)
		}
	}
	server := redistest.Start(t, redistest.WithConfig("min-replicas-to-write", "1"))
	url := "redis+sentinel://" + startSentinel(t, server.Addr()) + "/other"
	if _, err := redisstore.Open(t.Context(), redisstore.Config{URL: url}); !errors.Is(err, dispatch.ErrStoreUnavailable) ||
		!strings.Contains(err.Error(), `know no primary "other"`) {
		t.Errorf("Open by Sentinels that know no such primary: %v, want ErrStoreUnavailable", err)
	}
	if _, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL()}); !errors.Is(err, dispatch.ErrStoreReadOnly) {
		t.Errorf("Open with too few replicas: %v, want ErrStoreReadOnly", err)
	}
}

// What no waiting mends is neither ErrStoreUnavailable nor ErrStoreReadOnly.
func TestOpen_Refused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithConfig("user", "waggle on >pw ~* &* +@all"),
		redistest.WithConfig("user", "poor on >pw ~* &* +@all -hmget"))
	closed := redistest.Start(t)
	if err := redisClient(t, closed.URL()).ConfigSet(t.Context(), "requirepass", "pw").Err(); err != nil {
		t.Fatal(err)
	}
	nodes, client := twoNodes(t)
	prefix := "w"
	for client.ClusterKeySlot(t.Context(), key.Prefix(prefix).Meta()).Val() < 8192 {
		prefix += "w"
	}
	for _, c := range []struct{ name, url, says string }{
		{"wrong password", "redis://waggle:other@" + server.Addr(), "WRONGPASS"},
		{"no password", closed.URL(), "NOAUTH"},
		{"a missing permission", "redis://poor:pw@" + server.Addr(), "NOPERM"},
		{"unknown host", "redis://no-such-host.invalid:6379", "no such host"},
		{"unknown hosts of a Cluster", "redis+cluster://no-such-host.invalid,no-other.invalid", "no such host"},
		{"unknown Sentinels", "redis+sentinel://no-such-host.invalid,no-other.invalid/main", "no such host"},
		{"node of a Cluster", nodes[0].URL(), "redis+cluster://"},
		{"no Cluster", "redis+cluster://" + server.Addr(), "cluster support disabled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := redisstore.Open(t.Context(), redisstore.Config{URL: c.url, Prefix: prefix})
			if errors.Is(err, dispatch.ErrStoreUnavailable) || errors.Is(err, dispatch.ErrStoreReadOnly) ||
				!strings.Contains(fmt.Sprint(err), c.says) || strings.Contains(fmt.Sprint(err), "pw") {
				t.Errorf("Open: %v, want an error for good that says %q", err, c.says)
			}
		})
	}
	t.Run("one of two hosts unknown", func(t *testing.T) {
		t.Parallel()
		_, err := redisstore.Open(t.Context(), redisstore.Config{URL: "redis+cluster://no-such-host.invalid,127.0.0.1:1"})
		if !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Errorf("Open: %v, want ErrStoreUnavailable", err)
		}
	})
}

// A store is not made beside one that a dispatcher owns.
func TestOpen_Owned(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Set(t.Context(), prefix+":{0}:owner", "{}", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL(), Prefix: prefix})
	if !errors.Is(err, dispatch.ErrStoreMismatch) || !strings.Contains(fmt.Sprint(err), "redis-owner") {
		t.Errorf("Open: %v", err)
	}
	if n, err := client.Exists(t.Context(), prefix+":meta").Result(); n != 0 || err != nil {
		t.Errorf("%d stores were made, %v", n, err)
	}
}

func TestOpen_ShardsAreFixed(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	open(t, redisstore.Config{URL: server.URL(), Prefix: prefix, Shards: 4})
	_, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL(), Prefix: prefix, Shards: 8})
	if !errors.Is(err, dispatch.ErrStoreMismatch) || !strings.Contains(fmt.Sprint(err), "made with 4 shards, this program was told 8") {
		t.Errorf("Open with 8 shards: %v", err)
	}
	if n := open(t, redisstore.Config{URL: server.URL(), Prefix: prefix}).Shards(); n != 4 {
		t.Errorf("Open without a number of shards found %d, not 4", n)
	}
	if n := open(t, redisstore.Config{URL: server.SocketURL(), Prefix: prefix + "x"}).Shards(); n != 1 {
		t.Errorf("a new store has %d shards, not 1", n)
	}
}

func TestOpen_Existing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisstore.Config{URL: server.URL(), Existing: true}
	if _, err := redisstore.Open(t.Context(), config); !errors.Is(err, dispatch.ErrStoreMismatch) {
		t.Errorf("Open of a store that nobody has made: %v, want %v", err, dispatch.ErrStoreMismatch)
	}
	open(t, redisstore.Config{URL: server.URL(), Shards: 3})
	if s := open(t, config); s.Shards() != 3 {
		t.Errorf("the store has %d shards, want 3", s.Shards())
	}
}

func TestOpen_OtherFormat(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	client := redisClient(t, server.URL())
	if err := client.HSet(t.Context(), key.Prefix(prefix).Meta(), "shards", "1", "format", "99").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL(), Prefix: prefix})
	if !errors.Is(err, dispatch.ErrStoreMismatch) || !strings.Contains(fmt.Sprint(err), `format "99"`) {
		t.Errorf("Open: %v", err)
	}
	if kept := client.HGetAll(t.Context(), key.Prefix(prefix).Meta()).Val(); len(kept) != 2 {
		t.Errorf("a store that was refused is left with %v", kept)
	}
}

func TestOpen_Evicting(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithMaxMemory(50<<20), redistest.WithConfig("maxmemory-policy", "allkeys-lru"))
	_, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL()})
	if !errors.Is(err, dispatch.ErrStoreMismatch) || !strings.Contains(fmt.Sprint(err), "allkeys-lru") {
		t.Errorf("Open: %v, want ErrStoreMismatch that names the policy", err)
	}
	open(t, redisstore.Config{URL: server.URL(), AllowEviction: true})
}

func TestOpen_Replica(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica := redistest.Start(t, redistest.WithConfig("replicaof", host+" "+port))
	_, err := redisstore.Open(t.Context(), redisstore.Config{URL: replica.URL()})
	if !errors.Is(err, dispatch.ErrStoreMismatch) || !strings.Contains(fmt.Sprint(err), port) {
		t.Errorf("Open of a replica: %v, want ErrStoreMismatch that names the primary", err)
	}
}

func TestOpen_InfoDenied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	if err := client.Do(t.Context(), "ACL", "SETUSER", "waggle", "on", ">pw", "~*", "&*", "+@all", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	open(t, redisstore.Config{URL: "redis://waggle:pw@" + server.Addr(), Logger: zap.New(core)})
	if logs.FilterMessageSnippet("cannot read the redis configuration").Len() != 1 {
		t.Errorf("no warning; log: %v", logs.All())
	}
	if _, err := redisstore.Open(t.Context(), redisstore.Config{URL: "redis://waggle:wrong@" + server.Addr()}); err == nil {
		t.Error("Open with a wrong password succeeds")
	}
}
