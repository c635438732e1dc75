package redisstore_test

import (
	"fmt"
	"testing"

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
