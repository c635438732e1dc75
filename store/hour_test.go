package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// P10: a store has the last hours of so many queues, those that were used last.
func TestStore_QueueHours_bounded(t *testing.T) {
	t.Parallel()
	clock := storetest.NewStillClock(start)
	s, err := store.New(store.Config{Shards: 1, Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	openQueues(t, s, 0)
	const more = 10
	name := func(i int) string { return fmt.Sprintf("q%06d.test", i) }
	use := func(from, to int) {
		t.Helper()
		gate := dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "p", Priority: dispatch.DefaultPriority, Remember: time.Hour}
		var items []dispatch.Submission
		for i := from; i < to; i++ {
			item := dispatch.Submission{SourceUID: "u", Scope: "u", Queue: name(i), Key: clock.Now().String(), Priority: dispatch.DefaultPriority}
			item.ID = dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: item.Queue, Key: item.Key})
			items = append(items, item)
		}
		if results, err := s.Submit(t.Context(), 1, []dispatch.SourceGate{gate}, items); err != nil || results[0].Code != dispatch.SubmitCreated {
			t.Fatalf("%+v, %v", results[0], err)
		}
		for granted := 0; granted < len(items); {
			reply, err := s.Claim(t.Context(), 0, "p", 0, []dispatch.Want{{
				Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: fmt.Sprint(clock.Now(), from, granted), Call: "1"},
				Max:  bounds.MaxClaimTasks,
			}}, nil)
			if err != nil || len(reply.Grants[0]) == 0 {
				t.Fatalf("%d grants of %d, %v", granted, len(items), err)
			}
			granted += len(reply.Grants[0])
		}
		clock.Advance(bounds.QueueInterval)
	}
	kept := func(i int) bool {
		t.Helper()
		hours, err := s.QueueHours(t.Context(), []string{name(i)})
		if err != nil {
			t.Fatal(err)
		}
		return len(hours[0].Intervals) > 0
	}
	use(0, more)
	use(more, 2*more)
	use(0, more) // once more, so that the others are the oldest ones
	use(2*more, bounds.MaxQueueHours+more)
	use(bounds.MaxQueueHours, bounds.MaxQueueHours+2*more) // ten more than there is room for without the first ones
	all := 0
	for i := range bounds.MaxQueueHours + 2*more {
		if kept(i) != (i >= 2*more) {
			t.Errorf("queue %d: kept is %v", i, kept(i))
		}
		if kept(i) {
			all++
		}
	}
	if all != bounds.MaxQueueHours {
		t.Errorf("%d queues have their last hour, want %d", all, bounds.MaxQueueHours)
	}
}
