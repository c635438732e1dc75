package store_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/storetest"
)

var start = time.Date(2026, time.March, 2, 10, 0, 0, 0, time.UTC)

// newStore makes a store whose clock stands still.
func newStore(tb testing.TB, shards int) (*store.Store, *storetest.StillClock) {
	tb.Helper()
	c := storetest.NewStillClock(start)
	s, err := store.New(store.Config{Shards: shards, Now: c.Now})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s, c
}

func TestStore_GrantReportSettle(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, 1)
	gate := dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5}
	id := dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: "example.com", Key: "k"})
	item := dispatch.Submission{ID: id, SourceUID: "u", Queue: "example.com", Key: "k", Priority: 5}
	results, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, []dispatch.Submission{item})
	if err != nil || results[0].Code != dispatch.SubmitCreated || results[0].State != dispatch.StateReady {
		t.Fatalf("submit: %+v, %v", results, err)
	}
	want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: "t", Call: "1"}, Max: 1}
	reply, err := s.Claim(t.Context(), 0, "default", 0, []dispatch.Want{want}, nil)
	if err != nil || len(reply.Grants[0]) != 1 {
		t.Fatalf("claim: %+v, %v", reply, err)
	}
	task := reply.Grants[0][0].Task
	applied, err := s.Apply(t.Context(), []dispatch.Transition{{
		ID: id, Token: task.Lease.Digest, Revision: task.Revision, Result: dispatch.ResultSucceeded,
		State: dispatch.StateDone, Settled: true, Remember: time.Hour,
	}})
	if err != nil || applied[0].Code != dispatch.Applied || applied[0].State != dispatch.StateDone {
		t.Fatalf("apply: %+v, %v", applied, err)
	}
}
