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

// TestStore_Claim_ScriptsForgotten flushes them between reports and claims of a queue with room
// for one lease (P4): each claim is granted one task, once (P2), and repeated the same (P7).
func TestStore_Claim_ScriptsForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MaxInFlight: 1, MaxBlock: time.Hour}}
	if _, err := s.PutRule(t.Context(), rule.Pattern, &rule, rulesVersion(t, s)); err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	gate := sourceGate("source")
	gate.Remember = time.Hour
	submit(t, s, gate, submissions(&gate, "a.example", rounds)...)
	forget := func() {
		t.Helper()
		if err := client.FunctionFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	granted := make(map[dispatch.TaskID]bool)
	for i := range rounds {
		w := want(2)
		forget()
		grants := claim(t, s, w)
		if len(grants) != 1 || granted[grants[0].Task.ID] {
			t.Fatalf("claim %d: %d tasks, want one that was not granted before", i, len(grants))
		}
		held := grants[0]
		granted[held.Task.ID] = true
		forget()
		if again := claim(t, s, w); len(again) != 1 || again[0].Token != held.Token || again[0].Task.Counters.Attempt != 1 {
			t.Fatalf("claim %d, repeated: %+v, want what it was granted", i, again)
		}
		forget()
		if more := claim(t, s, want(1)); len(more) != 0 {
			t.Fatalf("another claim was granted a task beside claim %d", i)
		}
		forget()
		settle(t, s, unread(&held))
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.Counts != (dispatch.StateCounts{Done: rounds}) {
		t.Errorf("Stats: %+v, %v, want %d done", stats.Counts, err, rounds)
	}
}
