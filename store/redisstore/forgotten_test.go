package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_ScriptsForgotten flushes the functions, as a restart without a file
// does, before one script and before several in a pipeline (T32).
func TestStore_ScriptsForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 4})
	gate := sourceGate("source")
	forget := func() {
		t.Helper()
		if err := client.FunctionFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	var items []dispatch.Submission
	for i := range 20 {
		items = append(items, submissions(&gate, fmt.Sprintf("host-%d.example", i), 3)...)
	}
	submit(t, s, gate, items...)
	forget()
	if stats, err := s.Stats(t.Context()); err != nil || stats.Counts.Ready != 60 {
		t.Errorf("Stats: %+v, %v, want 60 ready", stats.Counts, err)
	}
	forget()
	if _, err := s.Now(t.Context()); err != nil {
		t.Errorf("Now: %v", err)
	}
}

// TestStore_Claim_ScriptsForgotten flushes them before claims that carry what frees the
// queue for them: that is settled first, also where both are sent again.
func TestStore_Claim_ScriptsForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MaxInFlight: 1, MaxBlock: time.Hour}}
	if _, err := s.SetRule(t.Context(), rule, 0); err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	gate := sourceGate("source")
	gate.Remember = time.Hour
	submit(t, s, gate, submissions(&gate, "a.example", rounds+1)...)
	held := claimOne(t, s)
	for i := range rounds {
		if err := client.FunctionFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		w := want(1)
		w.Done = []dispatch.Success{{ID: held.Task.ID, Token: held.Token}}
		grants := claim(t, s, w)
		if len(grants) != 1 {
			t.Fatalf("claim %d: %d tasks, want the next", i, len(grants))
		}
		held = grants[0]
	}
}
