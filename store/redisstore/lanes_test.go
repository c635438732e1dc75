package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestListTasks_ManyLanes lists the tasks of a queue in which thousands of sources have one each.
func TestListTasks_ManyLanes(t *testing.T) {
	t.Parallel()
	const sources, page, longest = 4500, 100, 16 << 10
	server := redistest.Start(t)
	s := open(t, redisstore.Config{URL: server.URL()})
	for n := range sources {
		gate := sourceGate(fmt.Sprint("source", n))
		submit(t, s, gate, submissions(&gate, "host.example", 1)...)
	}
	met := make(map[dispatch.TaskID]bool)
	for cursor := ""; ; {
		found, err := s.ListTasks(t.Context(), dispatch.TaskFilter{Queue: "host.example", States: []dispatch.State{dispatch.StateReady}}, cursor, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range found.Tasks {
			met[task.ID] = true
		}
		if len(found.Next) > longest {
			t.Fatalf("a cursor has %d bytes, more than %d", len(found.Next), longest)
		}
		if cursor = found.Next; cursor == "" {
			break
		}
	}
	if len(met) != sources {
		t.Errorf("listed %d tasks, want %d", len(met), sources)
	}
}
