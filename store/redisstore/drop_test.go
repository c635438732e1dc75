package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
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

// TestStore_DropTasks_NothingLeft deletes a source that claims have named and that has tasks of
// all kinds: once all of it is forgotten, the shard keeps nothing of it (P10).
func TestStore_DropTasks_NothingLeft(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Freeze()
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 10)...)
	w := want(3)
	w.SourceUIDs = []string{gate.UID}
	grants := claim(t, s, w)
	settle(t, s, done(&grants[0]))
	dead := done(&grants[1])
	dead.Result, dead.State, dead.Shrink = dispatch.ResultFailed, dispatch.StateDead, false
	settle(t, s, dead)
	if err := s.CountFiltered(t.Context(), 0, gate.UID, dispatch.Filtered{1: 1}); err != nil {
		t.Fatal(err)
	}
	gate.Version, gate.Deleted = 2, true
	if _, err := s.PushSource(t.Context(), 0, gate, ""); err != nil {
		t.Fatal(err)
	}
	drop := func() {
		t.Helper()
		if _, _, err := s.DropTasks(t.Context(), 0, gate.UID, bounds.MaxTransitions, &dispatch.Gate{}); err != nil {
			t.Fatal(err)
		}
	}
	drop()
	canceled := done(&grants[2])
	canceled.State, canceled.Shrink, canceled.Remember = dispatch.StateCanceled, false, 24*time.Hour
	settle(t, s, canceled)
	drop()
	for range 2 { // what is canceled is forgotten after a day, the source when nothing can name it any more
		server.Clock().Advance(bounds.MaxRemember + time.Hour)
		for range 3 {
			if _, err := s.Expired(t.Context(), 0, 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	sound(t, s)
	left, err := client.Keys(t.Context(), "waggle:{0}:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	k := key.Prefix("waggle").Shard(0)
	for _, name := range left {
		if !slices.Contains([]string{
			k.Shard(), k.Keeper(), k.Version("rules"), k.Picks(dispatch.DefaultPool), k.Pools(), k.Settings(), k.Closed(), k.Acked(), string(k) + "rules",
		}, name) {
			t.Errorf("key %s is left", name)
		}
	}
}
