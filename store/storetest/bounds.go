package storetest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func boundCases() []testCase {
	return []testCase{
		{"Claim_AtMostItsTasks_P10", boundTasks},
		{"Claim_AtMostItsQueues_P10", boundQueues},
		{"Claim_ManyLanesMove_P10", boundMoves},
		{"Claim_PromotesSome_P10", boundPromotions},
		{"MaxBytes_FirstAlwaysFits_T5", boundFirstFits},
		{"MaxBytes_RestStaysReady_T5", boundBytes},
		{"MaxBytes_CountsJoinedBytes_T5", boundJoined},
		{"MaxBytes_UsedBefore_T5", boundUsed},
		{"Renew_ManyAtOnce_P10", boundRenewals},
		{"Apply_ManyAtOnce_P10", boundTransitions},
		{"Expired_AtMostItsLimit_T42", boundExpired},
		{"LargeTask_IsKeptWhole", boundLarge},
	}
}

func boundTasks(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, bounds.MaxClaimTasks+50)...)
	want := e.want(1000)
	reply := e.claim(want)
	is(e, "granted", len(reply.Grants[0]), bounds.MaxClaimTasks)
	is(e, "more", reply.More, true)
	is(e, "next", reply.Next, e.now())
	reply = e.claim(e.want(1000))
	is(e, "granted then", len(reply.Grants[0]), 50)
	is(e, "more then", reply.More, false)
}

// boundQueues makes more queues due at once than a claim gives turns to: calls with
// More reach them all (T41).
func boundQueues(e *env) {
	e.rule("*", delayed(time.Hour, 1))
	g := source("a")
	var items []dispatch.Submission
	names := e.queues(8 * bounds.MaxClaimTurns)
	for _, name := range names {
		items = append(items, item(g, name, "k", func(s *dispatch.Submission) { s.Due = start.Add(time.Second) }))
	}
	e.create(g, items...)
	e.advance(2 * time.Second)
	granted, calls := 0, 0
	for more := true; more; calls++ {
		if calls > 20 {
			e.Fatalf("%d of %d granted after %d calls, and more is still true", granted, len(names), calls)
		}
		reply := e.claim(e.want(1000))
		if n := len(reply.Grants[0]); n > bounds.MaxClaimTurns {
			e.Errorf("%d queues were given a turn in one call, more than %d", n, bounds.MaxClaimTurns)
		}
		granted += len(reply.Grants[0])
		more = reply.More
	}
	is(e, "granted", granted, len(names))
}

// boundMoves moves many sources to another pool, of which each claim of the old
// pool meets thousands of lanes in queues that they share.
func boundMoves(e *env) {
	e.open()
	const sources, shared = 100, 50
	names := e.queues(shared)
	later := func(s *dispatch.Submission) { s.Due = start.Add(time.Second) }
	for i := range sources {
		g := source(fmt.Sprint(i))
		items := make([]dispatch.Submission, shared)
		for k, name := range names {
			items[k] = item(g, name, "k", later)
		}
		e.create(g, items...)
		g.Version, g.Pool = 2, "other"
		e.create(g, item(g, names[0], "moved", later))
	}
	e.advance(2 * time.Second)
	is(e, "granted of the old pool", len(e.claim(e.want(1000)).Grants[0]), 0)
	is(e, "granted of the new pool", len(e.claimFrom("other", e.want(1000)).Grants[0]), bounds.MaxClaimTasks)
}

// boundPromotions has thousands of tasks of many lanes become due: each call moves
// some of them, and calls with More reach them all.
func boundPromotions(e *env) {
	e.open()
	const sources, each = 60, 60
	names := e.queues(2)
	for i := range sources {
		g := source(fmt.Sprint(i))
		for _, name := range names {
			items := numbered(g, name, each)
			for k := range items {
				items[k].Due = start.Add(time.Second)
			}
			e.create(g, items...)
		}
	}
	e.advance(2 * time.Second)
	const all = sources * each * 2
	due, granted := int64(0), 0
	for calls := 1; granted < all; calls++ {
		reply := e.claim(e.want(1000))
		if granted += len(reply.Grants[0]); !reply.More && granted < all || calls > all {
			e.Fatalf("%d of %d granted after %d calls, more: %v", granted, all, calls, reply.More)
		}
		stats, err := e.Store.Stats(e.ctx)
		e.ok("stats", err)
		before := due
		if due = all - stats.Counts.Scheduled; due-before > 1000+2*sources {
			e.Fatalf("call %d moved %d tasks", calls, due-before)
		}
	}
}

// payload changes a submission's payload to n bytes.
func payload(n int) func(*dispatch.Submission) {
	return func(s *dispatch.Submission) { s.Payload = bytes.Repeat([]byte("p"), n) }
}

func boundFirstFits(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "1", payload(50_000)), item(g, queue, "2", payload(50_000)))
	for range 2 {
		reply := e.claim(e.want(9, func(w *dispatch.Want) { w.MaxBytes = 1 }))
		is(e, "granted", len(reply.Grants[0]), 1)
		is(e, "payload", len(reply.Grants[0][0].Task.Payload), 50_000)
	}
}

func boundBytes(e *env) {
	e.open()
	g := source("a")
	for i := range 5 {
		e.create(g, item(g, queue, fmt.Sprint(i), payload(50_000)))
	}
	limit := func(w *dispatch.Want) { w.MaxBytes = 125_000 }
	is(e, "granted", len(e.claim(e.want(9, limit)).Grants[0]), 2)
	tasks, _, err := e.Store.Tasks(e.ctx, []dispatch.TaskID{item(g, queue, "2").ID}, false)
	e.ok("tasks", err)
	is(e, "state of what did not fit", tasks[0].State, dispatch.StateReady)
	is(e, "attempt of what did not fit", tasks[0].Counters.Attempt, 0)
	is(e, "leased", e.info(queue).Leased, 2)
	// A want that is full of bytes does not end the wants after it.
	reply := e.claim(e.want(9, limit), e.want(9, limit))
	is(e, "granted then", []int{len(reply.Grants[0]), len(reply.Grants[1])}, []int{2, 1})
}

func boundJoined(e *env) {
	e.open()
	g := source("a", func(g *dispatch.SourceGate) { g.JoinedBytes = 50_000 })
	e.create(g, numbered(g, queue, 5)...)
	is(e, "granted", len(e.claim(e.want(9, func(w *dispatch.Want) { w.MaxBytes = 125_000 })).Grants[0]), 2)
}

// boundUsed: a fetch that has tasks of another shard gets what fits beside them, which may be nothing.
func boundUsed(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "1", payload(50_000)), item(g, queue, "2", payload(50_000)))
	used := func(n int) func(*dispatch.Want) {
		return func(w *dispatch.Want) { w.MaxBytes, w.Bytes = 125_000, n }
	}
	reply := e.claim(e.want(9, used(100_000)), e.want(9, used(50_000)))
	is(e, "granted", []int{len(reply.Grants[0]), len(reply.Grants[1])}, []int{0, 1})
	if n := reply.Grants[1][0].Bytes; n < 50_000 || n > 60_000 {
		e.Errorf("a task with a payload of 50,000 bytes counts as %d", n)
	}
}

// takeMany claims n tasks by as many calls as it takes.
func (e *env) takeMany(n int, changes ...func(*dispatch.Want)) []dispatch.Grant {
	e.Helper()
	var grants []dispatch.Grant
	for len(grants) < n {
		got := e.claim(e.want(min(n-len(grants), bounds.MaxClaimTasks), changes...)).Grants[0]
		if len(got) == 0 {
			e.Fatalf("%d of %d granted, then none", len(grants), n)
		}
		grants = append(grants, got...)
	}
	return grants
}

func boundRenewals(e *env) {
	e.open()
	g := source("a")
	n := 2*bounds.MaxRenewals + 100
	e.create(g, numbered(g, queue, n)...)
	renewals := make([]dispatch.Renewal, n)
	for i, grant := range e.takeMany(n) {
		renewals[i] = dispatch.Renewal{ID: grant.Task.ID, Token: grant.Token}
	}
	renewals[n-2].Token.Fence++
	e.advance(10 * time.Second)
	results, err := e.Store.Renew(e.ctx, renewals)
	e.ok("renew", err)
	is(e, "results", len(results), n)
	for i, r := range results {
		want := dispatch.LostNone
		if i == n-2 {
			want = dispatch.LostTaken
		}
		is(e, fmt.Sprintf("lease %d lost", i), r.Lost, want)
	}
}

func boundTransitions(e *env) {
	e.open()
	g := source("a")
	n := 2*bounds.MaxTransitions + 50
	e.create(g, numbered(g, queue, n)...)
	var transitions []dispatch.Transition
	for _, grant := range e.takeMany(n) {
		transitions = append(transitions, done(&grant.Task))
	}
	transitions[1].ID = item(g, queue, "unknown").ID
	results, err := e.Store.Apply(e.ctx, transitions)
	e.ok("apply", err)
	is(e, "results", len(results), n)
	for i, r := range results {
		want := dispatch.Applied
		if i == 1 {
			want = dispatch.ApplyNotFound
		}
		is(e, fmt.Sprintf("code of transition %d", i), r.Code, want)
	}
}

func boundExpired(e *env) {
	e.open()
	g := source("a")
	n := bounds.MaxExpired + 60
	e.create(g, numbered(g, queue, n)...)
	e.sweep(10)
	e.takeMany(n)
	e.keepSwept(dispatch.DefaultLeaseDuration + time.Millisecond)
	is(e, "of a small limit", len(e.sweep(7).Expired), 7)
	seen := 0
	for range 5 {
		s := e.sweep(100_000)
		if len(s.Expired) > bounds.MaxExpired {
			e.Fatalf("one sweep returned %d leases, more than %d", len(s.Expired), bounds.MaxExpired)
		}
		for _, task := range s.Expired {
			e.settle(expired(task))
			seen++
		}
	}
	is(e, "expired in all", seen, n)
	is(e, "leased", e.info(queue).Leased, 0)
}

func boundLarge(e *env) {
	e.open()
	g := source("a")
	s := item(g, queue, string(bytes.Repeat([]byte("k"), bounds.MaxURLLength)), payload(bounds.MaxPayloadLength),
		func(s *dispatch.Submission) {
			s.Metadata = map[string]string{"m": string(bytes.Repeat([]byte("v"), bounds.MaxMetadataLength-1))}
			s.Depth = bounds.MaxDepth
		})
	e.create(g, s)
	grant := e.takeOne()
	cursor := bytes.Repeat([]byte("c"), bounds.MaxCursorLength)
	is(e, "lost", e.renewWith(dispatch.Renewal{ID: s.ID, Token: grant.Token, Cursor: cursor}).Lost, dispatch.LostNone)
	tr := retry(&grant.Task, 0)
	tr.Memo = bytes.Repeat([]byte("e"), bounds.MaxMemoLength)
	e.settle(tr)
	task := e.takeOne().Task
	is(e, "key", task.Key, s.Key)
	is(e, "payload", task.Payload, s.Payload)
	is(e, "metadata", task.Metadata, s.Metadata)
	is(e, "depth", task.Depth, s.Depth)
	is(e, "cursor", task.Cursor, cursor)
	is(e, "memo", task.Memo, tr.Memo)
}
