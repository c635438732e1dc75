package store_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// After a peak of tasks that are done and forgotten the store has given back the memory
// that it had for them. It is measured by what the runtime counts, so no test runs beside.
func TestStore_givesMemoryBack(t *testing.T) { //nolint:paralleltest // it measures the heap of the process
	const tasks, batch, perTask = 50_000, 1000, 5
	s, c := newStore(t, 1)
	openQueues(t, s, 0)
	gates := []dispatch.SourceGate{{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5, Remember: time.Hour}}
	round := func(n int) {
		for page := range slices.Chunk(newItems(0, n, 100), batch) {
			if _, err := s.Submit(t.Context(), 1, gates, page); err != nil {
				t.Fatal(err)
			}
		}
		for n > 0 {
			reply, err := s.Claim(t.Context(), 0, "default", 0, []dispatch.Want{{
				Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: c.Now().String(), Call: "1"}, Max: batch,
			}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			grants := reply.Grants[0]
			if len(grants) == 0 {
				t.Fatalf("%d tasks are not to be had", n)
			}
			successes := make([]dispatch.Transition, len(grants))
			for i := range grants {
				successes[i] = unread(&grants[i])
			}
			if _, err := s.Apply(t.Context(), successes); err != nil {
				t.Fatal(err)
			}
			n -= len(grants)
			c.Advance(time.Millisecond)
		}
		c.Advance(24 * time.Hour)
		for range 2 * tasks / 100 {
			if _, err := s.Expired(t.Context(), 0, 1); err != nil {
				t.Fatal(err)
			}
		}
		if records, _, grants, err := s.Kept(); records+grants > 0 || err != nil {
			t.Fatalf("%d tasks and %d grants are not forgotten, %v", records, grants, err)
		}
	}
	round(batch) // what the first tasks need besides
	before := heap()
	round(tasks)
	if kept := heap() - before; kept > tasks*perTask {
		t.Errorf("of %d tasks that are forgotten %d bytes each are kept, want %d at most", tasks, kept/tasks, perTask)
	}
	runtime.KeepAlive(s)
}

// heap is how large the heap is without its garbage.
func heap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// unread is the success of a grant, as a policy computes it without the record.
func unread(g *dispatch.Grant) dispatch.Transition {
	tr, ok := dispatch.Policy{}.Unread(&dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{HTTPStatus: 200, Bytes: 54_321, FetchDuration: 321 * time.Millisecond}})
	if !ok {
		panic("the policy has to read a plain success")
	}
	return tr
}
