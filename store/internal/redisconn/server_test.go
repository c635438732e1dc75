package redisconn_test

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/redisconn"
)

func TestCheckServer(t *testing.T) {
	t.Parallel()
	good := "redis_version:7.0.15\r\nrole:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n"
	for _, c := range []struct {
		name, old, new string
		want           error
		warns          string
	}{
		{name: "good", old: "x", new: "x"},
		{name: "too old", old: "7.0.15", new: "6.2.14", want: dispatch.ErrStoreMismatch},
		{name: "newer", old: "7.0.15", new: "8.4.0"},
		{name: "would evict", old: "noeviction", new: "allkeys-lru", warns: "would evict"},
		{name: "policy hidden", old: "maxmemory_policy:noeviction\r\n", new: "", warns: "cannot read the redis maxmemory-policy"},
		{name: "no append-only file", old: "aof_enabled:1", new: "aof_enabled:0", warns: "appendonly yes"},
		{name: "append-only file hidden", old: "aof_enabled:1\r\n", new: "", warns: "append-only file"},
		{name: "replicas may lag", old: "connected_slaves:0", new: "connected_slaves:2", warns: "min-replicas-to-write"},
		{name: "replicas are waited for", old: "connected_slaves:0", new: "connected_slaves:2\r\nmin_slaves_good_slaves:2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.WarnLevel)
			err := redisconn.CheckServer(strings.ReplaceAll(good, c.old, c.new), false, zap.New(core))
			if !errors.Is(err, c.want) || (c.want == nil && err != nil) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if (c.warns == "") != (logs.Len() == 0) || logs.FilterMessageSnippet(c.warns).Len() != logs.Len() {
				t.Errorf("warnings %v, want one that says %q", logs.All(), c.warns)
			}
		})
	}
}
