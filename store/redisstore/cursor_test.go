package redisstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// FuzzCursors gives the lists that clients page through a cursor that no page returned: each is refused as ErrPageToken,
// or gives a page of no more than the list selects.
func FuzzCursors(f *testing.F) {
	server, prefix := shared.Server(f)
	s := open(f, redisstore.Config{URL: server.URL(), Prefix: prefix, Shards: 2})
	ctx := f.Context()
	openRule(f, s)
	a, b := sourceGate("uid-a"), sourceGate("uid-b")
	for _, queue := range []string{"a.example", "b.example"} {
		submit(f, s, a, submissions(&a, queue, 6)...)
		submit(f, s, b, submissions(&b, queue, 6)...)
	}
	claim(f, s, want(6))
	filters := []dispatch.TaskFilter{{SourceUID: a.UID}, {Queue: "a.example"}, {SourceUID: a.UID, Queue: "a.example"}}
	for i := range filters {
		filters[i].States = []dispatch.State{dispatch.StateReady, dispatch.StateScheduled, dispatch.StateLeased}
		for cursor := ""; ; {
			page, err := s.ListTasks(ctx, filters[i], cursor, 2)
			if err != nil {
				f.Fatal(err)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
			f.Add(uint8(i), cursor)
		}
	}
	for cursor := ""; ; {
		_, next, err := s.ListLeases(ctx, cursor, 2)
		if err != nil {
			f.Fatal(err)
		}
		if cursor = next; cursor == "" {
			break
		}
		f.Add(uint8(len(filters)), cursor)
	}
	f.Add(uint8(0), "0:0:0:NaN:x:")
	f.Add(uint8(3), "0/nan/x")
	f.Add(uint8(0), "0:1.2:0:::")
	f.Add(uint8(1), "0:1.2.3:0:::")
	for shard := range 2 { // lanes of another source or queue, and a set that the queue does not have
		f.Add(uint8(0), fmt.Sprintf("%d::0:::2 b.example", shard))
		f.Add(uint8(1), fmt.Sprintf("%d::0:::1 b.example", shard))
		f.Add(uint8(1), fmt.Sprintf("%d:99.0:0:::", shard))
	}
	f.Fuzz(func(t *testing.T, which uint8, cursor string) {
		var tasks []*dispatch.Task
		var err error
		list, filter := int(which)%(len(filters)+1), dispatch.TaskFilter{}
		if list < len(filters) {
			filter = filters[list]
			var page dispatch.TaskPage
			page, err = s.ListTasks(t.Context(), filter, cursor, 2)
			tasks = page.Tasks
		} else {
			tasks, _, err = s.ListLeases(t.Context(), cursor, 2)
		}
		if err != nil && !errors.Is(err, dispatch.ErrPageToken) {
			t.Fatalf("list %d from %q: %v", list, cursor, err)
		}
		for _, task := range tasks {
			if filter.SourceUID != "" && task.SourceUID != filter.SourceUID || filter.Queue != "" && task.Queue != filter.Queue {
				t.Errorf("list %d from %q has %s of source %s in queue %s", list, cursor, task.ID, task.SourceUID, task.Queue)
			}
		}
	})
}
