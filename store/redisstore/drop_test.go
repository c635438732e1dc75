package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_DropTasks_ManyLeased holds that no script looks at all leases of a lane,
// and that all of them are met (P10).
func TestStore_DropTasks_ManyLeased(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	const all, most = 1200, 500
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", all)...)
	for granted := 0; granted < all; {
		granted += len(claim(t, s, want(bounds.MaxClaimTasks)))
	}
	gate.Version, gate.Deleted = 2, true
	if _, err := s.PushSource(t.Context(), 0, gate, ""); err != nil {
		t.Fatal(err)
	}
	met := make(map[dispatch.TaskID]bool)
	for done := false; !done; {
		scripts, looks := calls(t, client, "fcall"), calls(t, client, "getrange")
		_, leased, err := s.DropTasks(t.Context(), 0, gate.UID, bounds.MaxTransitions, nil)
		if err != nil {
			t.Fatal(err)
		}
		scripts, looks = calls(t, client, "fcall")-scripts, calls(t, client, "getrange")-looks
		if looks > most*scripts {
			t.Fatalf("%d leases looked at by %d scripts", looks, scripts)
		}
		if err := s.RequestCancel(t.Context(), leased, dispatch.CancelSourceDeleted, nil); err != nil {
			t.Fatal(err)
		}
		for _, id := range leased {
			met[id] = true
		}
		done = len(leased) == 0
	}
	if len(met) != all {
		t.Errorf("%d of %d leases were met", len(met), all)
	}
}

// calls is how often Redis has run a command.
func calls(t *testing.T, client *redis.Client, command string) int {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, stat, found := strings.Cut(info, "cmdstat_"+command+":calls=")
	var n int
	if found {
		if _, err := fmt.Sscanf(stat, "%d", &n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
