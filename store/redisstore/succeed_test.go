package redisstore_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_Apply_unreadIDsOfAnyForm reports tasks by ids that are none, which are packed by
// their length, beside one that is: they are not found, and the other succeeds.
func TestStore_Apply_unreadIDsOfAnyForm(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 1})
	openRule(t, s)
	gate := sourceGate("source")
	gate.Remember = time.Hour
	submit(t, s, gate, submissions(&gate, "host.example", 1)...)
	g := claimOne(t, s)
	ids := []dispatch.TaskID{"", "1", "1-", "1-short", g.Task.ID + "x", "x" + g.Task.ID, g.Task.ID, "4095-abcdefghijklmnopqrstuvwxyz"}
	successes := make([]dispatch.Transition, len(ids))
	for i, id := range ids {
		successes[i] = unread(&g)
		successes[i].ID = id
	}
	results, err := s.Apply(t.Context(), successes)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		want := dispatch.ApplyNotFound
		if ids[i] == g.Task.ID {
			want = dispatch.Applied
		}
		if r.Code != want {
			t.Errorf("success of %q: %v, want %v", ids[i], r.Code, want)
		}
	}
}
