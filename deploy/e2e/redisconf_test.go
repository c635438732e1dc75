//go:build e2e

package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestRedisConf runs a Redis with the settings that deploy/redis.conf recommends: Redis takes them, and a dispatcher has
// nothing to warn of.
func TestRedisConf(t *testing.T) {
	conf, err := filepath.Abs("../redis.conf")
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t, redistest.WithConfig("include", conf))
	for name, want := range map[string]string{"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec"} {
		if got := redisCLI(t, server, "CONFIG", "GET", name); got != name+"\n"+want {
			t.Errorf("CONFIG GET %s answers %q, want %s", name, got, want)
		}
	}
	d := serve(t, "dispatcher", server.URL(), "waggle")
	d.stop(drainLimit)
	if said := d.out.tail(logTail); strings.Contains(said, `"level":"warn"`) {
		t.Errorf("the dispatcher warns: %s", said)
	}
}
