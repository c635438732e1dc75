package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

const pool = "default"

// sourceGate is the gate of a source named like its uid.
func sourceGate(uid string) dispatch.SourceGate {
	return dispatch.SourceGate{UID: uid, ID: "source." + uid, Version: 1, Pool: pool, Priority: 5}
}

// submission is a task of the source, due now.
func submission(gate *dispatch.SourceGate, queue, url string) dispatch.Submission {
	return dispatch.Submission{
		ID:        dispatch.NewTaskID(dispatch.Identity{Scope: gate.UID, Queue: queue, Key: url}),
		SourceUID: gate.UID, Scope: gate.UID, Queue: queue, URL: url, Key: url, Priority: dispatch.DefaultPriority,
	}
}

// submissions are n tasks of one queue.
func submissions(gate *dispatch.SourceGate, queue string, n int) []dispatch.Submission {
	items := make([]dispatch.Submission, n)
	for i := range items {
		items[i] = submission(gate, queue, fmt.Sprintf("https://%s/%d", queue, i))
	}
	return items
}

// rulesVersion is the version of the queue rules.
func rulesVersion(t testing.TB, s *redisstore.Store) int64 {
	t.Helper()
	_, version, err := s.Rules(t.Context())
	if err != nil {
		t.Fatalf("Rules: %v", err)
	}
	return version
}

// submit makes tasks that must all be new.
func submit(t testing.TB, s *redisstore.Store, gate dispatch.SourceGate, items ...dispatch.Submission) {
	t.Helper()
	results, err := s.Submit(t.Context(), rulesVersion(t, s), []dispatch.SourceGate{gate}, items)
	if err != nil {
		t.Fatalf("Submit: %v", err)
	}
	for i, r := range results {
		if r.Code != dispatch.SubmitCreated {
			t.Fatalf("Submit of item %d: code %d, not CREATED", i, r.Code)
		}
	}
}

// openRule lets tests take many tasks of a queue at once.
func openRule(t testing.TB, s *redisstore.Store) {
	t.Helper()
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MaxInFlight: 100_000, MaxBlock: time.Hour}}
	if _, err := s.PutRule(t.Context(), rule.Pattern, &rule, rulesVersion(t, s)); err != nil {
		t.Fatalf("SetRule: %v", err)
	}
}

// want asks for up to n tasks with a client token of its own.
func want(n int) dispatch.Want {
	token := uuid.NewString()
	return dispatch.Want{
		Poll: dispatch.Poll{Collector: "collector", Session: "session", ClientToken: token, Call: token},
		Max:  n,
	}
}

// claim takes tasks of a shard.
func claim(t testing.TB, s *redisstore.Store, w dispatch.Want) []dispatch.Grant {
	t.Helper()
	reply, err := s.Claim(t.Context(), 0, pool, 0, []dispatch.Want{w})
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	return reply.Grants[0]
}

// claimOne takes one task, which there must be.
func claimOne(t testing.TB, s *redisstore.Store) dispatch.Grant {
	t.Helper()
	grants := claim(t, s, want(1))
	if len(grants) != 1 {
		t.Fatalf("Claim granted %d tasks, not 1", len(grants))
	}
	return grants[0]
}

// done is the transition of a task that succeeded.
func done(g *dispatch.Grant) dispatch.Transition {
	return dispatch.Transition{
		ID: g.Task.ID, Token: g.Token.Digest(), Revision: g.Task.Revision, Result: dispatch.ResultSucceeded,
		State: dispatch.StateDone, Counters: dispatch.Counters{Cycle: 1}, Settled: true, Shrink: true, Remember: time.Hour,
		ClearAgain: true, Queue: dispatch.QueueEffect{Kind: dispatch.QueueSucceeded, FetchDuration: 10 * time.Millisecond},
	}
}

// unread is the success of a grant, as a policy computes it without the record.
func unread(g *dispatch.Grant) dispatch.Transition {
	tr, ok := dispatch.Policy{}.Unread(&dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{FetchDuration: 10 * time.Millisecond}})
	if !ok {
		panic("the policy has to read a plain success")
	}
	return tr
}

// settle applies a transition that must apply.
func settle(t testing.TB, s *redisstore.Store, tr dispatch.Transition) {
	t.Helper()
	results, err := s.Apply(t.Context(), []dispatch.Transition{tr})
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if results[0].Code != dispatch.Applied {
		t.Fatalf("Apply: code %d, not applied", results[0].Code)
	}
}

// await waits for a condition, asking often.
func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-deadline:
			t.Fatalf("waited 20 s for %s", what)
		case <-tick.C:
		}
	}
}
