package redisstore_test

import (
	"slices"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
)

// TestStore_Access_RepliesLost loses the reply of each change once: an entry of the audit log is there once.
func TestStore_Access_RepliesLost(t *testing.T) {
	t.Parallel()
	s, proxy, _ := behindProxy(t)
	for range 2 {
		proxy.ResetAfter(0)
		if owner, err := s.BindCollector(t.Context(), "c1", "token:a", dispatch.BindingTTL); owner != "token:a" || err != nil {
			t.Errorf("BindCollector: %q, %v", owner, err)
		}
	}
	for _, target := range []string{"a", "b"} {
		proxy.ResetAfter(0)
		if err := s.AppendAudit(t.Context(), dispatch.AuditEntry{Target: target}); err != nil {
			t.Errorf("AppendAudit: %v", err)
		}
	}
	if proxy.Faults() != 4 {
		t.Errorf("%d replies were lost, not 4", proxy.Faults())
	}
	entries, next, err := s.AuditEntries(t.Context(), "", "", 10)
	if err != nil || next != "" || len(entries) != 2 || entries[0].Target != "b" || entries[1].Target != "a" {
		t.Errorf("AuditEntries: %+v, next %q, %v; want b and a", entries, next, err)
	}
}

// TestStore_Access_keys: bindings are in the home shards of the collectors and end by themselves, in a Cluster too. A check
// knows all keys.
func TestStore_Access_keys(t *testing.T) {
	t.Parallel()
	server := startCluster(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: "redis+cluster://" + server.Addr(), Prefix: "p", Shards: 4})
	collectors := []string{"c1", "c2", "c3", "c4", "c5"}
	for _, collector := range collectors {
		if owner, err := s.BindCollector(t.Context(), collector, "token:a", dispatch.BindingTTL); owner != "token:a" || err != nil {
			t.Fatal(owner, err)
		}
		home := key.Prefix("p").Shard(dispatch.ShardOf(dispatch.SlotOf(collector), 4))
		ttl, err := client.PTTL(t.Context(), home.Binding(collector)).Result()
		if err != nil || ttl > dispatch.BindingTTL || ttl < dispatch.BindingTTL-dispatch.BindingStep {
			t.Errorf("the binding of %s ends in %v, %v", collector, ttl, err)
		}
	}
	if owner, err := s.ReleaseCollector(t.Context(), "c1"); owner != "token:a" || err != nil {
		t.Errorf("ReleaseCollector: %q, %v", owner, err)
	}
	if err := s.AppendAudit(t.Context(), dispatch.AuditEntry{Target: "a"}); err != nil {
		t.Fatal(err)
	}
	if entries, _, err := s.AuditEntries(t.Context(), "", "", 10); err != nil || len(entries) != 1 {
		t.Errorf("AuditEntries: %+v, %v", entries, err)
	}
	sound(t, s)
	names, err := client.Keys(t.Context(), "p:*").Result()
	if err != nil || !slices.Contains(names, key.Prefix("p").Shard(0).Audit()) {
		t.Errorf("the keys are %v, %v", names, err)
	}
}
