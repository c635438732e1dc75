package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func claimCases() []testCase {
	return []testCase{
		{"Grant_IsWhole", claimGrant},
		{"Nothing_SaysNoTasks", claimNothing},
		{"Next_IsTheEarliestDue", claimNext},
		{"Duration_WantThenSourceThenDefault_T22", claimDuration},
		{"Duration_AtMostMaxHold", claimDurationMaxHold},
		{"Fences_Rise_P4_T34", claimFences},
		{"Attempt_CountsGrants", claimAttempts},
		{"Pools_AreApart", claimPools},
		{"Wants_FirstWantFirst", claimWants},
		{"Wants_None_ChangesNothing", claimNoWants},
		{"Filter_Sources", claimSourceFilter},
		{"Filter_Queues", claimQueueFilter},
		{"Filter_Both", claimBothFilters},
		{"Filter_KeepsTheGates", claimFilterGates},
		{"Concurrent_EachTaskOnce_P2", claimConcurrent},
	}
}

// traceparent is a W3C trace context.
const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func claimGrant(e *env) {
	g := source("a")
	s := item(g, queue, "k", func(s *dispatch.Submission) {
		s.Payload, s.Metadata, s.Kind = []byte("p"), map[string]string{"m": "v"}, "page"
		s.Relation = dispatch.RelationFeedItem
		s.Redirect = dispatch.Redirect{Hops: 2, From: "http://head.test/", Due: start}
		s.Traceparent = traceparent
	})
	e.create(g, s)
	want := e.want(3)
	reply := e.claim(want)
	if len(reply.Grants[0]) != 1 {
		e.Fatalf("granted %v", keys(reply.Grants[0]))
	}
	is(e, "used", reply.Used[0], true)
	is(e, "now", reply.Now, start)
	grant := reply.Grants[0][0]
	is(e, "token", grant.Token, dispatch.LeaseToken{Collector: "c1", ClientToken: want.ClientToken, Fence: grant.Token.Fence})
	is(e, "remaining", grant.Remaining, dispatch.DefaultLeaseDuration)
	task := grant.Task
	is(e, "id", task.ID, s.ID)
	is(e, "state", task.State, dispatch.StateLeased)
	is(e, "url", task.URL, s.URL)
	is(e, "payload", task.Payload, s.Payload)
	is(e, "metadata", task.Metadata, s.Metadata)
	is(e, "kind", task.Kind, s.Kind)
	is(e, "relation", task.Relation, s.Relation)
	is(e, "redirect", task.Redirect, s.Redirect)
	is(e, "traceparent", task.Traceparent, s.Traceparent)
	is(e, "lease", *task.Lease, dispatch.Lease{
		Digest: grant.Token.Digest(), Token: grant.Token, Granted: start, Deadline: start.Add(dispatch.DefaultLeaseDuration),
		Duration: dispatch.DefaultLeaseDuration, MaxHold: dispatch.DefaultMaxHold,
	})
	is(e, "record", *e.task(s.ID), task)
	value, ttl := e.LockValue(s.ID)
	is(e, "lock", value, grant.Token.String())
	is(e, "time left of the lock", ttl, dispatch.DefaultLeaseDuration)
}

// A claim for nobody is how a shard that was away is tried.
func claimNoWants(e *env) {
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	reply := e.claim()
	is(e, "grants", len(reply.Grants), 0)
	is(e, "now", reply.Now, start)
	is(e, "tasks to grant", len(e.claim(e.want(5)).Grants[0]), 1)
}

func claimNothing(e *env) {
	reply := e.takeNone()
	is(e, "next", reply.Next, time.Time{})
	is(e, "wait", reply.Wait, dispatch.WaitNoTasks)
	is(e, "used", reply.Used[0], false)
	is(e, "more", reply.More, false)
	is(e, "now", reply.Now, start)
}

func claimNext(e *env) {
	e.open()
	g := source("a")
	names := e.queues(3)
	for i, due := range []time.Duration{3 * time.Hour, time.Hour, 2 * time.Hour} {
		e.create(g, item(g, names[i], "k", func(s *dispatch.Submission) { s.Due = start.Add(due) }))
	}
	reply := e.takeNone()
	is(e, "next", reply.Next, start.Add(time.Hour))
	is(e, "wait", reply.Wait, dispatch.WaitNoTasks)
	e.advance(time.Hour)
	is(e, "queue", e.takeOne().Task.Queue, names[1])
	is(e, "next", e.takeNone().Next, start.Add(2*time.Hour))
}

func claimDuration(e *env) {
	e.open()
	plain := source("a", func(g *dispatch.SourceGate) { g.MaxHold = 2 * time.Hour })
	slow := source("b", func(g *dispatch.SourceGate) { g.LeaseDuration = 10 * time.Minute })
	e.create(plain, numbered(plain, queue, 2)...)
	e.create(slow, numbered(slow, queue, 2)...)
	from := func(uid string, lease time.Duration) time.Duration {
		grant := e.takeOne(func(w *dispatch.Want) { w.SourceUIDs, w.Lease = []string{uid}, lease })
		is(e, "duration of the lease", grant.Task.Lease.Duration, grant.Remaining)
		_, ttl := e.LockValue(grant.Task.ID)
		is(e, "time left of the lock", ttl, grant.Remaining)
		return grant.Remaining
	}
	is(e, "default", from(plain.UID, 0), dispatch.DefaultLeaseDuration)
	is(e, "the want's", from(plain.UID, time.Hour), time.Hour)
	is(e, "the source's", from(slow.UID, 0), 10*time.Minute)
	is(e, "the want's before the source's", from(slow.UID, 1500*time.Millisecond), 1500*time.Millisecond)
}

func claimDurationMaxHold(e *env) {
	g := source("a", func(g *dispatch.SourceGate) { g.MaxHold = 20 * time.Second })
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne(func(w *dispatch.Want) { w.Lease = time.Hour })
	is(e, "remaining", grant.Remaining, 20*time.Second)
	is(e, "max hold", grant.Task.Lease.MaxHold, 20*time.Second)
	is(e, "deadline", grant.Task.Lease.Deadline, start.Add(20*time.Second))
}

func claimFences(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 40)...)
	last := uint64(0)
	for i, step := range []time.Duration{0, 0, time.Millisecond, time.Hour, -10 * time.Second, -time.Hour, 0} {
		e.advance(step)
		for _, grant := range e.take(3) {
			if grant.Token.Fence <= last {
				e.Fatalf("after step %d: fence %d after %d", i, grant.Token.Fence, last)
			}
			if micros := uint64(e.now().UnixMicro()); grant.Token.Fence < micros {
				e.Fatalf("after step %d: fence %d below the clock's %d", i, grant.Token.Fence, micros)
			}
			last = grant.Token.Fence
		}
	}
}

func claimAttempts(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	for i := range 3 {
		grant := e.takeOne()
		is(e, "attempt", grant.Task.Counters.Attempt, uint32(i)+1)
		e.settle(retry(&grant.Task, 0))
	}
	grant := e.takeOne()
	e.settle(released(&grant.Task, 0))
	is(e, "attempt after a release", e.takeOne().Task.Counters.Attempt, 4)
}

func claimPools(e *env) {
	e.open()
	names := e.queues(2)
	a := source("a")
	b := source("b", func(g *dispatch.SourceGate) { g.Pool = "browser" })
	e.create(a, item(a, names[0], "1"), item(a, names[1], "2"))
	e.create(b, item(b, names[0], "3"))
	reply := e.claimFrom("browser", e.want(9))
	is(e, "browser", keys(reply.Grants[0]), []string{"3"})
	is(e, "nothing", len(e.claimFrom("eu", e.want(9)).Grants[0]), 0)
	is(e, "default", len(e.take(2)), 2)
}

func claimWants(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 5)...)
	reply := e.claim(e.want(2), e.want(1), e.want(9), e.want(1))
	counts := []int{}
	seen := map[dispatch.TaskID]bool{}
	for i, grants := range reply.Grants {
		counts = append(counts, len(grants))
		is(e, fmt.Sprintf("used of want %d", i), reply.Used[i], len(grants) > 0)
		for _, grant := range grants {
			if seen[grant.Task.ID] {
				e.Fatalf("task %s was granted twice", grant.Task.Key)
			}
			seen[grant.Task.ID] = true
		}
	}
	is(e, "grants by want", counts, []int{2, 1, 2, 0})
	is(e, "more", reply.More, false)
}

func claimSourceFilter(e *env) {
	e.open()
	a, b, c := source("a"), source("b"), source("c")
	for _, g := range []dispatch.SourceGate{a, b, c} {
		e.create(g, item(g, queue, g.ID))
	}
	got := e.take(2, func(w *dispatch.Want) { w.SourceUIDs = []string{c.UID, a.UID, "uid-unknown"} })
	is(e, "granted", keys(got), []string{"a", "c"})
	e.takeNone(func(w *dispatch.Want) { w.SourceUIDs = []string{c.UID} })
	is(e, "rest", keys(e.take(1)), []string{"b"})
}

func claimQueueFilter(e *env) {
	e.open()
	g := source("a")
	names := e.queues(3)
	for _, name := range names {
		e.create(g, item(g, name, name))
	}
	got := e.take(2, func(w *dispatch.Want) { w.Max, w.Queues = 9, []string{names[2], names[0], "unknown.test"} })
	is(e, "granted", keys(got), []string{names[0], names[2]})
	is(e, "rest", keys(e.take(1)), []string{names[1]})
}

func claimBothFilters(e *env) {
	e.open()
	a, b := source("a"), source("b")
	names := e.queues(2)
	for _, g := range []dispatch.SourceGate{a, b} {
		for i, name := range names {
			e.create(g, item(g, name, fmt.Sprint(g.ID, i)))
		}
	}
	got := e.take(1, func(w *dispatch.Want) { w.Max, w.SourceUIDs, w.Queues = 9, []string{b.UID}, names[1:] })
	is(e, "granted", keys(got), []string{"b1"})
}

func claimFilterGates(e *env) {
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	narrow := func(w *dispatch.Want) { w.Queues = []string{queue} }
	e.takeOne(narrow)
	e.takeNone(narrow)
	e.takeNone(func(w *dispatch.Want) { w.SourceUIDs = []string{g.UID} })
	held := source("b", func(g *dispatch.SourceGate) { g.HeldUntil = dispatch.Forever })
	e.create(held, item(held, e.queues(2)[1], "k"))
	e.takeNone(func(w *dispatch.Want) { w.SourceUIDs = []string{held.UID} })
}

func claimConcurrent(e *env) {
	e.open()
	g := source("a")
	const total, claimers = 60, 8
	e.create(g, numbered(g, queue, total)...)
	var (
		wants [claimers][]dispatch.Want
		got   [claimers][]dispatch.Grant
		errs  [claimers]error
		wg    sync.WaitGroup
	)
	for i := range claimers {
		for range 10 {
			wants[i] = append(wants[i], e.want(1))
		}
		wg.Go(func() {
			for _, want := range wants[i] {
				reply, err := e.Store.Claim(e.ctx, e.shard(queue), pool, e.held.version, []dispatch.Want{want}, nil)
				if err != nil {
					errs[i] = err
					return
				}
				got[i] = append(got[i], reply.Grants[0]...)
			}
		})
	}
	wg.Wait()
	holders := map[dispatch.TaskID]uint64{}
	fences := map[uint64]bool{}
	for i := range claimers {
		e.ok("claim", errs[i])
		for _, grant := range got[i] {
			if holders[grant.Task.ID] != 0 || fences[grant.Token.Fence] {
				e.Fatalf("task %s or fence %d was granted twice", grant.Task.Key, grant.Token.Fence)
			}
			holders[grant.Task.ID] = grant.Token.Fence
			fences[grant.Token.Fence] = true
		}
	}
	is(e, "granted", len(holders), total)
}
