package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func submitCases() []testCase {
	return []testCase{
		{"Created_IsReadBack", submitCreated},
		{"Repeated_IsExists_P7", submitRepeated},
		{"DueLater_IsScheduledUntilThen_T21", submitDueLater},
		{"Keep_TakesLaterRunAndSmallerDepth", submitKeep},
		{"Sooner_TakesEarlierDueAndHigherPriority", submitSooner},
		{"Again_Waiting_TakesEarlierDue", submitAgainWaiting},
		{"Again_Leased_IsMarked", submitAgainLeased},
		{"Reseed_Waiting_BecomesRecurring", submitReseedWaiting},
		{"Reseed_Leased_LiftsCancel", submitReseedLeased},
		{"MaxOutstanding_IsLimitedAndFreed_T62", submitLimited},
		{"MaxOutstanding_SparesRecurring", submitLimitedRecurring},
		{"MaxOutstanding_SparesReseeded", submitLimitedReseeded},
		{"OlderSource_IsStale", submitStaleSource},
		{"OlderRules_IsStale", submitStaleRules},
		{"DeletedSource_IsRefused", submitDeletedSource},
		{"Scopes_KeepKeysApart", submitScopes},
		{"SharedScope_IsOneTask", submitSharedScope},
		{"Batch_AnswersInOrder_T46", submitBatch},
		{"ManyQueues_ReachTheirShards", submitManyQueues},
		{"Bytes_AreNotShared", submitBytes},
		{"MalformedID_IsRefused", submitMalformedID},
	}
}

func submitCreated(e *env) {
	g := source("a")
	s := item(g, queue, "k", func(s *dispatch.Submission) {
		s.Kind, s.Depth, s.Priority = "feed", 3, 7
		s.Run = start.Add(-time.Hour)
		s.Metadata = map[string]string{"lang": "en"}
		s.Payload = []byte("{}")
	})
	r := e.submitOne(g, s, dispatch.SubmitCreated)
	is(e, "state", r.State, dispatch.StateReady)

	got := *e.task(s.ID)
	got.Revision = 0 // its first value is the store's own
	is(e, "task", got, dispatch.Task{
		ID: s.ID, SourceUID: g.UID, SourceID: g.ID, Pool: pool, Queue: queue, URL: s.URL, Key: "k", Kind: "feed",
		Depth: 3, Run: s.Run, Priority: 7, State: dispatch.StateReady, Due: start, Created: start,
		Metadata: s.Metadata, Payload: s.Payload,
	})
}

func submitRepeated(e *env) {
	g := source("a")
	s := item(g, queue, "k")
	e.submitOne(g, s, dispatch.SubmitCreated)
	before := e.task(s.ID)
	e.advance(time.Minute)
	r := e.submitOne(g, s, dispatch.SubmitExists)
	is(e, "state", r.State, dispatch.StateReady)
	is(e, "task", e.task(s.ID), before)
	e.takeOne()
	is(e, "state under a lease", e.submitOne(g, s, dispatch.SubmitExists).State, dispatch.StateLeased)
}

func submitDueLater(e *env) {
	g := source("a")
	s := item(g, queue, "k", func(s *dispatch.Submission) { s.Due = start.Add(time.Minute) })
	is(e, "state", e.submitOne(g, s, dispatch.SubmitCreated).State, dispatch.StateScheduled)
	is(e, "task state", e.task(s.ID).State, dispatch.StateScheduled)
	is(e, "next", e.takeNone().Next, start.Add(time.Minute))
	e.advance(time.Minute - time.Millisecond)
	e.takeNone()
	e.advance(time.Millisecond)
	is(e, "task state", e.task(s.ID).State, dispatch.StateReady)
	is(e, "granted", e.takeOne().Task.ID, s.ID)
}

func submitKeep(e *env) {
	g := source("a")
	with := func(run time.Time, depth int) dispatch.Submission {
		return item(g, queue, "k", func(s *dispatch.Submission) {
			s.Run, s.Depth, s.Due, s.Priority = run, depth, start.Add(-time.Hour), 9
		})
	}
	first := item(g, queue, "k", func(s *dispatch.Submission) { s.Run, s.Depth = start, 5 })
	e.create(g, first)
	e.submitOne(g, with(start.Add(time.Second), 7), dispatch.SubmitExists)
	task := e.task(first.ID)
	is(e, "later run", task.Run, start.Add(time.Second))
	is(e, "depth", task.Depth, 5)
	e.submitOne(g, with(start.Add(-time.Second), 2), dispatch.SubmitExists)
	task = e.task(first.ID)
	is(e, "run", task.Run, start.Add(time.Second))
	is(e, "smaller depth", task.Depth, 2)
	is(e, "due", task.Due, start)
	is(e, "priority", task.Priority, dispatch.DefaultPriority)

	e.takeOne()
	e.submitOne(g, with(start.Add(time.Hour), 1), dispatch.SubmitExists)
	task = e.task(first.ID)
	is(e, "run of a leased one", task.Run, start.Add(time.Hour))
	is(e, "depth of a leased one", task.Depth, 1)
}

func submitSooner(e *env) {
	g := source("a")
	with := func(due time.Time, priority int) dispatch.Submission {
		return item(g, queue, "k", func(s *dispatch.Submission) {
			s.Due, s.Priority, s.IfExists = due, priority, dispatch.IfExistsSooner
		})
	}
	first := with(start.Add(time.Hour), 5)
	e.create(g, first)
	e.submitOne(g, with(start.Add(2*time.Hour), 3), dispatch.SubmitExists)
	task := e.task(first.ID)
	is(e, "due", task.Due, start.Add(time.Hour))
	is(e, "priority", task.Priority, 5)
	revision := task.Revision

	e.submitOne(g, with(start.Add(time.Minute), 8), dispatch.SubmitExists)
	task = e.task(first.ID)
	is(e, "earlier due", task.Due, start.Add(time.Minute))
	is(e, "higher priority", task.Priority, 8)
	if task.Revision <= revision {
		e.Fatalf("revision %d did not rise above %d", task.Revision, revision)
	}
	is(e, "next", e.takeNone().Next, start.Add(time.Minute))
}

func again(s *dispatch.Submission) { s.IfExists = dispatch.IfExistsAgain }

func submitAgainWaiting(e *env) {
	g := source("a")
	s := item(g, queue, "k", func(s *dispatch.Submission) { s.Due = start.Add(time.Hour) })
	e.create(g, s)
	r := e.submitOne(g, item(g, queue, "k", again), dispatch.SubmitExists)
	is(e, "state", r.State, dispatch.StateReady)
	is(e, "due", e.task(s.ID).Due, start)
	is(e, "marked", e.task(s.ID).AgainRequested, false)
}

func submitAgainLeased(e *env) {
	g := source("a")
	s := item(g, queue, "k")
	e.create(g, s)
	grant := e.takeOne()
	r := e.submitOne(g, item(g, queue, "k", again), dispatch.SubmitExists)
	is(e, "state", r.State, dispatch.StateLeased)
	is(e, "marked", e.task(s.ID).AgainRequested, true)
	// What was computed before the mark must be computed anew.
	is(e, "apply of the old revision", e.apply(done(&grant.Task)).Code, dispatch.ApplyConflict)
	e.settle(done(e.task(s.ID)))
	is(e, "mark after the settlement", e.task(s.ID).AgainRequested, false)
}

// reseed makes an item recurring, as a source does with its seeds.
func reseed(due time.Time) func(*dispatch.Submission) {
	return func(s *dispatch.Submission) {
		s.IfExists, s.Recurring, s.Due, s.FirstDue = dispatch.IfExistsReseed, true, due, due
		s.Kind, s.Priority = "seed", 6
	}
}

func submitReseedWaiting(e *env) {
	g := source("a")
	s := item(g, queue, "k")
	e.create(g, s)
	due := start.Add(time.Hour)
	r := e.submitOne(g, item(g, queue, "k", reseed(due)), dispatch.SubmitExists)
	is(e, "state", r.State, dispatch.StateScheduled)
	task := e.task(s.ID)
	is(e, "recurring", task.Recurring, true)
	is(e, "due", task.Due, due)
	is(e, "first due", task.FirstDue, due)
	is(e, "kind", task.Kind, "seed")
	is(e, "priority", task.Priority, 6)
	is(e, "next", e.takeNone().Next, due)
}

func submitReseedLeased(e *env) {
	g := source("a")
	s := item(g, queue, "k")
	e.create(g, s)
	grant := e.takeOne()
	e.ok("request cancel", e.Store.RequestCancel(e.ctx, []dispatch.TaskID{s.ID}, dispatch.CancelTask, nil))
	is(e, "asked to stop", e.task(s.ID).CancelRequested, dispatch.CancelTask)
	e.submitOne(g, item(g, queue, "k", reseed(start)), dispatch.SubmitExists)
	task := e.task(s.ID)
	is(e, "asked to stop after a reseed", task.CancelRequested, dispatch.CancelNone)
	is(e, "state", task.State, dispatch.StateLeased)
	is(e, "renewal", e.renew(grant).Cancel, dispatch.CancelNone)
}

func submitLimited(e *env) {
	e.open()
	g := source("a", func(g *dispatch.SourceGate) { g.MaxOutstanding = 2 })
	e.create(g, numbered(g, queue, 2)...)
	e.submitOne(g, item(g, queue, "more"), dispatch.SubmitLimited)
	if e.read(item(g, queue, "more").ID) != nil {
		e.Fatal("a limited item left a record")
	}
	e.submitOne(g, item(g, queue, "0"), dispatch.SubmitExists)

	grants := e.take(2)
	e.submitOne(g, item(g, queue, "more"), dispatch.SubmitLimited)
	e.settle(retry(&grants[0].Task, time.Hour))
	e.submitOne(g, item(g, queue, "more"), dispatch.SubmitLimited)
	e.settle(dead(&grants[1].Task))
	e.submitOne(g, item(g, queue, "more"), dispatch.SubmitCreated)
	e.submitOne(g, item(g, queue, "still more"), dispatch.SubmitLimited)

	// A revisit counts like a new one.
	dead := item(g, queue, grants[1].Task.Key, again)
	is(e, "state of a limited revisit", e.submitOne(g, dead, dispatch.SubmitLimited).State, dispatch.StateDead)
	e.settle(canceled(e.task(grants[0].Task.ID)))
	e.submitOne(g, dead, dispatch.SubmitRevisit)

	statuses, err := e.Store.SourceStatuses(e.ctx, []string{g.UID}, true)
	e.ok("source statuses", err)
	is(e, "limited", statuses[0].Limited, 5)
}

func submitLimitedRecurring(e *env) {
	g := source("a", func(g *dispatch.SourceGate) { g.MaxOutstanding = 1 })
	e.create(g, item(g, queue, "seed 1", reseed(start)), item(g, queue, "seed 2", reseed(start)))
	e.submitOne(g, item(g, queue, "k"), dispatch.SubmitCreated)
	e.submitOne(g, item(g, queue, "l"), dispatch.SubmitLimited)
	e.submitOne(g, item(g, queue, "seed 3", reseed(start)), dispatch.SubmitCreated)

	// The target of a redirect replaces the task that redirects.
	hop := func(s *dispatch.Submission) { s.Redirect = dispatch.Redirect{Hops: 1, From: "http://head.test/"} }
	e.submitOne(g, item(g, queue, "hop", hop), dispatch.SubmitCreated)
	e.open()
	for _, grant := range e.take(5) {
		e.settle(dead(&grant.Task))
	}
	e.submitOne(g, item(g, queue, "k"), dispatch.SubmitExists)
	e.submitOne(g, item(g, queue, "m"), dispatch.SubmitCreated)
	e.submitOne(g, item(g, queue, "hop", hop, again), dispatch.SubmitRevisit)
	e.submitOne(g, item(g, queue, "l"), dispatch.SubmitLimited)
}

// submitLimitedReseeded makes one-shot tasks recurring, a leased and a waiting one: they
// no longer count.
func submitLimitedReseeded(e *env) {
	e.open()
	g := source("a", func(g *dispatch.SourceGate) { g.MaxOutstanding = 2 })
	e.create(g, numbered(g, queue, 2)...)
	e.takeOne()
	for _, key := range []string{"0", "1"} {
		e.submitOne(g, item(g, queue, "beside "+key), dispatch.SubmitLimited)
		e.submitOne(g, item(g, queue, key, reseed(start)), dispatch.SubmitExists)
		e.submitOne(g, item(g, queue, "beside "+key), dispatch.SubmitCreated)
	}
	e.submitOne(g, item(g, queue, "more"), dispatch.SubmitLimited)
}

func submitStaleSource(e *env) {
	older := source("a")
	newer := source("a", func(g *dispatch.SourceGate) { g.Version, g.Pool = 2, "browser" })
	e.create(newer, item(newer, queue, "k"))
	e.submitOne(older, item(older, queue, "l"), dispatch.SubmitStaleSource)
	e.submitOne(older, item(older, queue, "k"), dispatch.SubmitStaleSource)
	newest := source("a", func(g *dispatch.SourceGate) { g.Version, g.Pool = 3, "eu" })
	e.submitOne(newest, item(newest, queue, "l"), dispatch.SubmitCreated)
	is(e, "pool by the newest gate", e.task(item(newest, queue, "k").ID).Pool, "eu")
}

func submitStaleRules(e *env) {
	g := source("a")
	e.rule("*", delayed(0, 1))
	stale := e.rules
	e.rule("other.test", delayed(0, 1))
	e.rules, stale = stale, e.rules
	e.submitOne(g, item(g, queue, "k"), dispatch.SubmitStaleRules)
	e.rules = stale
	e.submitOne(g, item(g, queue, "k"), dispatch.SubmitCreated)
}

func submitDeletedSource(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	gone := source("a", func(g *dispatch.SourceGate) { g.Version, g.Deleted = 2, true })
	e.push(gone)
	e.submitOne(g, item(g, queue, "l"), dispatch.SubmitSourceDeleted)
	e.submitOne(gone, item(gone, queue, "l"), dispatch.SubmitSourceDeleted)
	e.takeNone()
}

func submitScopes(e *env) {
	a, b := source("a"), source("b")
	e.create(a, item(a, queue, "k"))
	e.create(b, item(b, queue, "k"))
}

func submitSharedScope(e *env) {
	shared := func(s *dispatch.Submission) { s.Scope = "scope:news" }
	a, b := source("a"), source("b")
	s := item(a, queue, "k", shared)
	e.create(a, s)
	e.submitOne(b, item(b, queue, "k", shared), dispatch.SubmitExists)
	is(e, "source", e.task(s.ID).SourceUID, a.UID)

	// Once its source is deleted and it has settled, the other's may be made.
	gone := source("a", func(g *dispatch.SourceGate) { g.Version, g.Deleted = 2, true })
	e.push(gone)
	e.submitOne(b, item(b, queue, "k", shared), dispatch.SubmitExists)
	if _, _, err := e.Store.DropTasks(e.ctx, e.shard(queue), a.UID, 100, nil); err != nil {
		e.Fatal(err)
	}
	is(e, "counts of what was dropped", e.stats().Counts, dispatch.StateCounts{Canceled: 1})
	e.submitOne(b, item(b, queue, "k", shared), dispatch.SubmitCreated)
	is(e, "counts of what took its place", e.stats().Counts, dispatch.StateCounts{Ready: 1})
	is(e, "source", e.task(s.ID).SourceUID, b.UID)
	is(e, "granted", e.takeOne().Task.ID, s.ID)
}

func submitBatch(e *env) {
	g := source("a")
	items := numbered(g, queue, 2*bounds.MaxSubmissions+50)
	e.create(g, items[bounds.MaxSubmissions+1])
	for i, r := range e.submit(g, items...) {
		want := dispatch.SubmitCreated
		if i == bounds.MaxSubmissions+1 {
			want = dispatch.SubmitExists
		}
		is(e, fmt.Sprintf("code of item %d", i), r.Code, want)
	}
	is(e, "waiting", e.info(queue).Waiting, int64(len(items)))
}

func submitManyQueues(e *env) {
	g := source("a")
	var items []dispatch.Submission
	for i := range 40 {
		items = append(items, item(g, fmt.Sprintf("host%d.test", i), "k"))
	}
	e.create(g, items...)
	granted := 0
	for shard := range e.Store.Shards() {
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(100)}, nil)
		e.ok("claim", err)
		granted += len(reply.Grants[0])
		for _, grant := range reply.Grants[0] {
			is(e, "shard of "+grant.Task.Queue, e.shard(grant.Task.Queue), shard)
		}
	}
	is(e, "granted", granted, len(items))
}

func submitBytes(e *env) {
	g := source("a")
	s := item(g, queue, "k", func(s *dispatch.Submission) {
		s.Payload, s.Metadata = []byte("abc"), map[string]string{"a": "b"}
	})
	e.create(g, s)
	s.Payload[0], s.Metadata["a"] = 'x', "x"
	task := e.task(s.ID)
	is(e, "payload", string(task.Payload), "abc")
	is(e, "metadata", task.Metadata["a"], "b")
	task.Payload[1], task.Metadata["a"] = 'y', "y"
	is(e, "payload read again", string(e.task(s.ID).Payload), "abc")
	is(e, "metadata read again", e.task(s.ID).Metadata["a"], "b")
}

// submitMalformedID has an id that no identity has: none of the items is taken, and
// whatever names it finds nothing.
func submitMalformedID(e *env) {
	g := source("a")
	good := item(g, queue, "k")
	end := good.ID[len(good.ID)-26:]
	for _, id := range []dispatch.TaskID{"", end, "x-" + end, "4096-" + end, "01-" + end, "1-" + end[1:], "1-" + end + "a", "1-" + end[:25] + "1"} {
		bad := good
		bad.ID = id
		_, err := e.Store.Submit(e.ctx, 0, []dispatch.SourceGate{g}, []dispatch.Submission{good, bad})
		var field *dispatch.FieldError
		if !errors.As(err, &field) || field.Field != "task_id" || field.Value != string(id) {
			e.Errorf("submit of %q: %v, want a FieldError that names it", id, err)
		}
		if e.read(id) != nil || e.read(good.ID) != nil {
			e.Fatalf("%q or the item before it was taken", id)
		}
		token := dispatch.LeaseToken{Collector: "c1", ClientToken: "t", Fence: 1}
		is(e, "renewal", e.renewWith(dispatch.Renewal{ID: id, Token: token}).Lost, dispatch.LostUnknownTask)
		is(e, "report", e.apply(dispatch.Transition{ID: id, Token: token.Digest()}).Code, dispatch.ApplyNotFound)
	}
}
