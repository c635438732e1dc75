package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config redis.Config
		says   string
	}{
		{redis.Config{}, `scheme "" is unknown`},
		{redis.Config{URL: "redis://localhost", Prefix: "a{b}"}, `Config.Prefix is "a{b}"`},
		{redis.Config{URL: "redis://localhost", Prefix: strings.Repeat("p", 65)}, "at most 64"},
		{redis.Config{URL: "redis://localhost", AckReplicas: -1}, "Config.AckReplicas is -1; it must be 0 to 100"},
	} {
		err := c.config.Validate()
		if _, made := redis.New(c.config); !errors.Is(err, dispatch.ErrInvalid) || !strings.Contains(fmt.Sprint(err), c.says) || fmt.Sprint(made) != err.Error() {
			t.Errorf("%+v: %v, and New: %v, want ErrInvalid that contains %q", c.config, err, made, c.says)
		}
	}
}

// A Redis that is away may come back.
func TestOpen_Away(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, url := range []string{
		"redis://:secret@127.0.0.1:1/0", "rediss://127.0.0.1:1/0", "unix:///nowhere/redis.sock",
		"redis+sentinel://127.0.0.1:1,127.0.0.1:2/main", "redis+cluster://:secret@127.0.0.1:1,127.0.0.1:2",
		"redis+cluster://no-such-host.invalid,127.0.0.1:1", // one of two hosts exists
	} {
		if err := newOwner(t, url).own(0); !errors.Is(err, dispatch.ErrStoreUnavailable) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want ErrStoreUnavailable", url, err)
		}
	}
	url := "redis+sentinel://" + startSentinel(t, server.Addr(), 0) + "/other"
	if err := newOwner(t, url).own(0); !errors.Is(err, dispatch.ErrStoreUnavailable) || !strings.Contains(err.Error(), `know no primary "other"`) {
		t.Errorf("Sentinels that know no such primary: %v, want ErrStoreUnavailable", err)
	}
}

// What no wait heals is an error of another kind.
func TestOpen_Refused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithConfig("user", "waggle on >pw ~* &* +@all"),
		redistest.WithConfig("user", "poor on >pw ~* &* +@all -mget"))
	closed, evicts := redistest.Start(t), redistest.Start(t, redistest.WithMaxMemory(50<<20), redistest.WithConfig("maxmemory-policy", "allkeys-lru"))
	if err := client(t, closed.Addr()).ConfigSet(t.Context(), "requirepass", "pw").Err(); err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, redistest.WithConfig("replicaof", "127.0.0.1 "+portOf(evicts.Addr())))
	nodes, _ := twoNodes(t)
	other := nodes[0] // the node that has not shard 0
	if _, moved := goredis.IsMovedError(client(t, other.Addr()).Get(t.Context(), redis.HeadKey(prefix, 0)).Err()); !moved {
		other = nodes[1]
	}
	for _, c := range []struct{ name, url, says string }{
		{"wrong password", "redis://waggle:other@" + server.Addr(), "WRONGPASS"},
		{"no password", closed.URL(), "NOAUTH"},
		{"a missing permission", "redis://poor:pw@" + server.Addr(), "NOPERM"},
		{"unknown host", "redis://no-such-host.invalid:6379", "no such host"},
		{"unknown hosts of a Cluster", "redis+cluster://no-such-host.invalid,no-other.invalid", "no such host"},
		{"unknown Sentinels", "redis+sentinel://no-such-host.invalid,no-other.invalid/main", "no such host"},
		{"node of a Cluster", other.URL(), "redis+cluster://"},
		{"no Cluster", "redis+cluster://waggle:pw@" + server.Addr(), "cluster support disabled"},
		{"would evict", evicts.URL(), "allkeys-lru"},
		{"replica", replica.URL(), portOf(evicts.Addr())},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := newOwner(t, c.url).own(0)
			if _, secret := newOwner(t, c.url).Secret(t.Context(), nil); errors.Is(secret, dispatch.ErrStoreUnavailable) {
				t.Errorf("the secret: %v", secret)
			}
			if err == nil || errors.Is(err, dispatch.ErrStoreUnavailable) ||
				!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "pw") {
				t.Errorf("%v, want an error for good that contains %q", err, c.says)
			}
		})
	}
	newOwner(t, evicts.URL(), func(c *redis.Config) { c.AllowEviction = true }).mustOwn(0)
}

// A managed Redis may hide its configuration.
func TestOpen_InfoDenied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithConfig("user", "waggle on >pw ~* &* +@all -info"))
	core, logs := observer.New(zap.WarnLevel)
	o := newOwner(t, "redis://waggle:pw@"+server.Addr(), func(c *redis.Config) { c.Logger = zap.New(core) }).mustOwn(1)
	if logs.FilterMessageSnippet("cannot read the redis configuration").Len() != 1 {
		t.Errorf("no warning; log: %v", logs.All())
	}
	o.keeps("1", "value")
}
