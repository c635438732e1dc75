package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func applyCases() []testCase {
	return []testCase{
		{"Done_SettlesAndFreesTheLock", applyDone},
		{"Repeated_IsAlready_P7", applyRepeated},
		{"StaleToken_IsLost_P3", applyStale},
		{"ZeroFence_IsNotAToken_P3", applyZeroFence},
		{"ChangedRecord_IsConflict", applyConflict},
		{"Unknown_IsNotFound", applyUnknown},
		{"Expired_OnALiveLease_IsLost_T11", applyLive},
		{"Expired_TwoSweeps_OneEffect_T12", applyTwoSweeps},
		{"Scheduled_ByDelayAndByDue", applyScheduled},
		{"Waiting_IsEndedWithoutAToken", applyWaiting},
		{"Waiting_IsMoved", applyMoved},
		{"Counters_AreReplaced", applyCounters},
		{"Recurring_IsScheduledAgain", applyRecurring},
		{"Concurrent_OneReportWins_P7", applyConcurrent},
		{"SameTask_InOneCall", applySameTask},
		{"Filtered_IsCountedOnce", applyFiltered},
	}
}

func applyDone(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.advance(time.Second)
	r := e.settle(done(&grant.Task))
	is(e, "state", r.State, dispatch.StateDone)
	task := e.task(grant.Task.ID)
	is(e, "task state", task.State, dispatch.StateDone)
	is(e, "settled at", task.SettledAt, e.now())
	is(e, "last lease", task.LastLease, grant.Token.Digest())
	is(e, "result", task.Result, dispatch.ResultSucceeded)
	is(e, "cycle", task.Counters.Cycle, 1)
	if task.Lease != nil {
		e.Fatalf("a settled task has the lease %v", *task.Lease)
	}
	if task.Revision <= grant.Task.Revision {
		e.Fatalf("revision %d did not rise above %d", task.Revision, grant.Task.Revision)
	}
	value, _ := e.LockValue(task.ID)
	is(e, "lock", value, "")
	leases, _, err := e.Store.ListLeases(e.ctx, "", 10)
	e.ok("list leases", err)
	is(e, "leases", len(leases), 0)
}

func applyRepeated(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	first, second := e.takeOne(), e.takeOne()
	e.settle(done(&first.Task))
	before := e.task(first.Task.ID)
	e.advance(time.Second)
	r := e.apply(dead(&first.Task))
	is(e, "code", r.Code, dispatch.ApplyAlready)
	is(e, "prior", r.Prior, dispatch.ResultSucceeded)
	is(e, "state", r.State, dispatch.StateDone)
	is(e, "task", e.task(first.Task.ID), before)

	e.settle(retry(&second.Task, time.Minute))
	r = e.apply(done(&second.Task))
	is(e, "code of a retried one", r.Code, dispatch.ApplyAlready)
	is(e, "prior of a retried one", r.Prior, dispatch.ResultFailed)
	is(e, "state of a retried one", r.State, dispatch.StateScheduled)
}

func applyStale(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	oldest := e.takeOne()
	e.settle(retry(&oldest.Task, 0))
	old := e.takeOne()
	e.settle(retry(&old.Task, 0))
	fresh := e.takeOne()
	// The lease that settled last is answered as a repeated report, those
	// before it are not known any more. Neither changes anything.
	for _, c := range []struct {
		grant dispatch.Grant
		code  dispatch.ApplyCode
	}{{oldest, dispatch.ApplyLost}, {old, dispatch.ApplyAlready}} {
		tr := done(&c.grant.Task)
		tr.Revision = fresh.Task.Revision
		is(e, "code", e.apply(tr).Code, c.code)
	}
	tr := done(&fresh.Task)
	tr.Token.Holder++
	is(e, "code of another holder", e.apply(tr).Code, dispatch.ApplyLost)
	is(e, "task", *e.task(fresh.Task.ID), fresh.Task)
}

// applyZeroFence reports with a fence of 0 and a holder on a task that has
// never settled: its zero LastLease must not be taken for the token's.
func applyZeroFence(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	tr := done(&grant.Task)
	tr.Token = dispatch.LeaseDigest{Fence: 0, Holder: 1}
	is(e, "code", e.apply(tr).Code, dispatch.ApplyLost)
	tr.Token = dispatch.LeaseDigest{}
	is(e, "code without a token", e.apply(tr).Code, dispatch.ApplyLost)
	is(e, "state", e.task(grant.Task.ID).State, dispatch.StateLeased)
}

func applyConflict(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.ok("request cancel", e.Store.RequestCancel(e.ctx, []dispatch.TaskID{grant.Task.ID}, dispatch.CancelTask, nil))
	is(e, "code", e.apply(done(&grant.Task)).Code, dispatch.ApplyConflict)
	is(e, "state", e.task(grant.Task.ID).State, dispatch.StateLeased)
	e.settle(done(e.task(grant.Task.ID)))
}

func applyUnknown(e *env) {
	g := source("a")
	id := item(g, queue, "unknown").ID
	is(e, "code", e.apply(dispatch.Transition{ID: id, State: dispatch.StateCanceled, Revision: 1}).Code, dispatch.ApplyNotFound)
}

func applyLive(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.advance(dispatch.DefaultLeaseDuration - time.Millisecond)
	is(e, "code", e.apply(expired(&grant.Task)).Code, dispatch.ApplyLost)
	is(e, "report", e.apply(done(&grant.Task)).Code, dispatch.Applied)
}

func applyTwoSweeps(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 20)...)
	e.sweep(1)
	e.takeMany(20)
	e.keepSwept(dispatch.DefaultLeaseDuration)
	var (
		sweeps  [2][]*dispatch.Task
		results [2][]dispatch.ApplyResult
		errs    [2]error
		wg      sync.WaitGroup
	)
	for i := range sweeps {
		sweeps[i] = e.sweep(100).Expired
		is(e, "expired", len(sweeps[i]), 20)
	}
	for i := range sweeps {
		wg.Go(func() {
			var transitions []dispatch.Transition
			for _, task := range sweeps[i] {
				transitions = append(transitions, expired(task))
			}
			results[i], errs[i] = e.Store.Apply(e.ctx, transitions)
		})
	}
	wg.Wait()
	e.ok("apply", errs[0])
	e.ok("apply", errs[1])
	for i, task := range sweeps[0] {
		a, b := results[0][i].Code, results[1][i].Code
		if (a == dispatch.Applied) == (b == dispatch.Applied) {
			e.Fatalf("two sweeps got the codes %d and %d for one lease", a, b)
		}
		is(e, "expirations", e.task(task.ID).Counters.Expirations, 1)
	}
	is(e, "leased", e.info(queue).Leased, 0)
	is(e, "granted", len(e.takeMany(20)), 20)
}

func applyScheduled(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	grants := e.take(3)
	e.advance(time.Second)
	r := e.settle(retry(&grants[0].Task, 10*time.Second))
	is(e, "state by delay", r.State, dispatch.StateScheduled)
	is(e, "due by delay", r.Due, e.now().Add(10*time.Second))
	tr := retry(&grants[1].Task, 10*time.Second)
	tr.Due = start.Add(time.Hour)
	r = e.settle(tr)
	is(e, "due by due", r.Due, start.Add(time.Hour))
	r = e.settle(retry(&grants[2].Task, 0))
	is(e, "state now", r.State, dispatch.StateReady)
	is(e, "granted", keys(e.take(1, func(w *dispatch.Want) { w.Max = 9 })), keys(grants[2:]))
	is(e, "next", e.takeNone().Next, e.now().Add(10*time.Second))
	is(e, "task due", e.task(grants[1].Task.ID).Due, start.Add(time.Hour))
}

func applyWaiting(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	waiting := e.task(item(g, queue, "0").ID)
	e.settle(canceled(waiting))
	task := e.task(waiting.ID)
	is(e, "state", task.State, dispatch.StateCanceled)
	is(e, "settled at", task.SettledAt, start)
	is(e, "code again", e.apply(canceled(waiting)).Code, dispatch.ApplyLost)

	waiting = e.task(item(g, queue, "1").ID)
	stale := canceled(waiting)
	stale.Revision++
	is(e, "code of another revision", e.apply(stale).Code, dispatch.ApplyConflict)
	e.takeOne()
	is(e, "code when it is leased", e.apply(canceled(waiting)).Code, dispatch.ApplyLost)
	e.takeNone()
}

func applyMoved(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k", func(s *dispatch.Submission) { s.Due = start.Add(time.Hour) }))
	task := e.task(item(g, queue, "k").ID)
	tr := canceled(task)
	tr.State, tr.Settled, tr.Remember, tr.Due = dispatch.StateScheduled, false, 0, start.Add(time.Minute)
	r := e.settle(tr)
	is(e, "due", r.Due, start.Add(time.Minute))
	is(e, "next", e.takeNone().Next, start.Add(time.Minute))
	e.advance(time.Minute)
	e.takeOne()
}

func applyCounters(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k", reseed(start)))
	grant := e.takeOne()
	tr := retry(&grant.Task, 0)
	tr.Counters = dispatch.Counters{
		Cycle: 70_000, Attempt: 3, Failures: 300, Expirations: 4, Throttled: 500, GivenUp: 250, ExpiredCycles: 7, PermanentCycles: 8, Released: 255,
	}
	tr.Run, tr.FirstDue = start.Add(time.Hour), start.Add(time.Minute)
	e.settle(tr)
	task := e.task(grant.Task.ID)
	is(e, "counters", task.Counters, tr.Counters)
	is(e, "run", task.Run, tr.Run)
	is(e, "first due", task.FirstDue, tr.FirstDue)
	tr.Counters.Attempt++
	is(e, "counters of the grant", e.takeOne().Task.Counters, tr.Counters)
}

func applyRecurring(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k", reseed(start)))
	for cycle := range 3 {
		grant := e.takeOne()
		is(e, "cycle", grant.Task.Counters.Cycle, uint32(cycle))
		tr := done(&grant.Task)
		tr.State, tr.Shrink, tr.Due = dispatch.StateScheduled, false, e.now().Add(time.Hour)
		e.settle(tr)
		task := e.task(grant.Task.ID)
		is(e, "settled at", task.SettledAt, e.now())
		is(e, "recurring", task.Recurring, true)
		is(e, "next", e.takeNone().Next, e.now().Add(time.Hour))
		e.advance(time.Hour)
	}
}

func applyConcurrent(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	tr := done(&grant.Task)
	e.oneWins(func() ([]dispatch.ApplyResult, error) { return e.Store.Apply(e.ctx, []dispatch.Transition{tr}) })
}

// oneWins reports the same success many times at once: one settles the task, and
// the others are told so.
func (e *env) oneWins(report func() ([]dispatch.ApplyResult, error)) {
	e.Helper()
	var (
		codes [6]dispatch.ApplyCode
		errs  [6]error
		wg    sync.WaitGroup
	)
	for i := range codes {
		wg.Go(func() {
			results, err := report()
			if errs[i] = err; err == nil {
				codes[i] = results[0].Code
			}
		})
	}
	wg.Wait()
	applied := 0
	for i := range codes {
		e.ok("report", errs[i])
		if codes[i] == dispatch.Applied {
			applied++
		} else {
			is(e, fmt.Sprintf("code of report %d", i), codes[i], dispatch.ApplyAlready)
		}
	}
	is(e, "applied", applied, 1)
}

// What one call says of the same task is applied in order.
func applySameTask(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	grants := e.takeMany(2)
	ends, waits := retry(&grants[0].Task, 0), retry(&grants[1].Task, time.Hour)
	ends.LastError, ends.Attempt = &dispatch.Failure{Message: "no"}, &dispatch.Attempt{Collector: "c1"}
	cancels := make([]dispatch.Transition, 2)
	for i, tr := range []dispatch.Transition{ends, waits} {
		cancels[i] = dispatch.Transition{
			ID: tr.ID, Revision: tr.Revision + 1, State: dispatch.StateCanceled, Settled: true, Remember: time.Hour,
			Queue: dispatch.QueueEffect{Kind: dispatch.QueueUntouched},
		}
	}
	results, err := e.Store.Apply(e.ctx, []dispatch.Transition{ends, waits, ends, cancels[0], cancels[1], ends})
	e.ok("apply", err)
	var codes []dispatch.ApplyCode
	for _, r := range results {
		codes = append(codes, r.Code)
	}
	is(e, "codes", codes, []dispatch.ApplyCode{
		dispatch.Applied, dispatch.Applied, dispatch.ApplyAlready, dispatch.Applied, dispatch.Applied, dispatch.ApplyAlready,
	})
	is(e, "state", e.task(grants[0].Task.ID).State, dispatch.StateCanceled)
	is(e, "last error", e.task(grants[0].Task.ID).LastError.Message, "no")
	is(e, "counts", e.stats().Counts, dispatch.StateCounts{Canceled: 2})
	e.takeNone()
	e.create(g, item(g, queue, "next"))
	is(e, "granted", e.takeOne().Task.Key, "next")
}

// applyFiltered counts with a settlement that takes effect, and with no other.
func applyFiltered(e *env) {
	e.open()
	g, other := source("a"), source("b")
	e.create(g, item(g, queue, "1"), item(g, "host.test", "2"))
	e.create(other, item(other, queue, "3"))
	count := func(task *dispatch.Task, reasons ...dispatch.FilterReason) dispatch.ApplyResult {
		tr := done(task)
		for _, reason := range reasons {
			tr.Visit.Filtered[reason] += 70_000
		}
		results, err := e.Store.Apply(e.ctx, []dispatch.Transition{tr})
		e.ok("apply", err)
		return results[0]
	}
	var tasks []*dispatch.Task
	for shard := range e.Store.Shards() {
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(3)}, nil)
		e.ok("claim", err)
		for i := range reply.Grants[0] {
			if task := &reply.Grants[0][i].Task; task.SourceUID == g.UID {
				tasks = append(tasks, task)
			}
		}
	}
	stale := *tasks[0]
	stale.Revision++
	is(e, "of another revision", count(&stale, dispatch.FilterDepth).Code, dispatch.ApplyConflict)
	is(e, "before", e.status(g.UID).Filtered, dispatch.Filtered{})
	is(e, "first", count(tasks[0], dispatch.FilterHost, dispatch.FilterHost, dispatch.FilterExclude).Code, dispatch.Applied)
	is(e, "first again", count(tasks[0], dispatch.FilterHost).Code, dispatch.ApplyAlready)
	is(e, "second", count(tasks[1], dispatch.FilterHost, dispatch.FilterNoRule).Code, dispatch.Applied)
	e.push(source("a", func(g *dispatch.SourceGate) { g.Version = 2 }))
	want := dispatch.Filtered{dispatch.FilterNoRule: 70_000, dispatch.FilterHost: 210_000, dispatch.FilterExclude: 70_000}
	is(e, "filtered", e.status(g.UID).Filtered, want)
	is(e, "filtered of another source", e.status(other.UID).Filtered, dispatch.Filtered{})
}
