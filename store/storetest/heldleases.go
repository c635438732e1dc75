package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func heldLeaseCases() []testCase {
	return []testCase{
		{"Renewal_TellsAndDoesNotExtend", heldRenewal},
		{"Renewal_AfterTheDeadline", heldRenewalLate},
		{"Mark_ReplacesNoOther", heldMark},
		{"Report_WaitsAgain", heldReport},
		{"Expiry_WaitsAgain", heldExpiry},
		{"NewSession_WaitsAgain", heldReplaced},
		{"GiveBack_WaitsAgain", heldGiveBack},
		{"Success_NeedsPolicy", heldSuccess},
		{"Cancel_AfterTheMark_EndsCanceled", heldCanceled},
	}
}

// heldGrant is a lease that a hold of its queue ends.
func (e *env) heldGrant(changes ...func(*dispatch.Want)) dispatch.Grant {
	e.Helper()
	e.open()
	g := remembered("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne(changes...)
	e.advance(time.Second)
	e.ok("request cancel", e.Store.RequestCancel(e.ctx, []dispatch.TaskID{grant.Task.ID}, dispatch.CancelHeld, heldLine()))
	return grant
}

// heldLine is what the hold leaves in the history.
func heldLine() *dispatch.Attempt {
	return &dispatch.Attempt{Ended: start, Result: dispatch.ResultHeld, Note: dispatch.Note{By: "ada", Reason: "they asked"}}
}

// policy has no jitter.
func policy() dispatch.Policy { return dispatch.Policy{Rand: func() float64 { return 0 }} }

// waitsAgain checks that the task of a held lease is due, as if it had not been granted but for who set the hold,
// and is granted once more.
func (e *env) waitsAgain(grant *dispatch.Grant) {
	e.Helper()
	task := e.task(grant.Task.ID)
	is(e, "state", task.State, dispatch.StateReady)
	is(e, "mark", task.CancelRequested, dispatch.CancelNone)
	is(e, "counters", task.Counters, dispatch.Counters{})
	is(e, "first line of the history", task.History[0], *heldLine())
	is(e, "leased", e.info(queue).Leased, 0)
	is(e, "granted again", e.takeOne().Task.ID, task.ID)
}

func heldRenewal(e *env) {
	grant := e.heldGrant(func(w *dispatch.Want) { w.Lease = time.Minute })
	task := e.task(grant.Task.ID)
	is(e, "mark", task.CancelRequested, dispatch.CancelHeld)
	if task.Revision <= grant.Task.Revision {
		e.Fatalf("revision %d did not rise above %d", task.Revision, grant.Task.Revision)
	}
	want := dispatch.RenewResult{Remaining: 59 * time.Second, Duration: time.Minute, Cancel: dispatch.CancelHeld}
	is(e, "renewal", e.renew(grant), want)
	e.advance(29 * time.Second)
	want.Remaining = 30 * time.Second
	is(e, "renewal later", e.renewWith(dispatch.Renewal{ID: task.ID, Token: grant.Token, Cursor: []byte("page 2")}), want)
	task = e.task(grant.Task.ID)
	is(e, "deadline", task.Lease.Deadline, start.Add(time.Minute))
	is(e, "cursor", string(task.Cursor), "page 2")
	value, left := e.LockValue(task.ID)
	is(e, "lock", value, grant.Token.String())
	is(e, "left of the lock", left, 30*time.Second)
	e.advance(30 * time.Second)
	is(e, "expired", len(e.sweep(10).Expired), 1)
}

// heldRenewalLate: nobody has swept yet, and so the lease still is the holder's, with
// nothing left of it.
func heldRenewalLate(e *env) {
	grant := e.heldGrant()
	e.sweep(1)
	e.advance(dispatch.DefaultLeaseDuration)
	for range 2 {
		is(e, "renewal", e.renew(grant), dispatch.RenewResult{Duration: dispatch.DefaultLeaseDuration, Cancel: dispatch.CancelHeld})
	}
	e.lock(grant.Task.ID, "", 0)
	is(e, "deadline", e.task(grant.Task.ID).Lease.Deadline, start.Add(dispatch.DefaultLeaseDuration))
}

func heldMark(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	grants := e.take(2)
	for i, reason := range []dispatch.CancelReason{dispatch.CancelTask, dispatch.CancelSourceDeleted} {
		e.requestCancel(reason, grants[i].Task.ID)
		before := e.task(grants[i].Task.ID)
		e.requestCancel(dispatch.CancelHeld, before.ID)
		is(e, "task", e.task(before.ID), before)
	}
	grant := e.takeOne()
	e.requestCancel(dispatch.CancelHeld, grant.Task.ID)
	before := e.task(grant.Task.ID)
	e.requestCancel(dispatch.CancelHeld, before.ID)
	is(e, "task marked again", e.task(before.ID), before)
}

// heldReport reports a task as holders do that were told to stop, and as one whose failure
// came before.
func heldReport(e *env) {
	grant := e.heldGrant()
	spec := &dispatch.SourceSpec{Remember: time.Hour, Retry: dispatch.Retry{MaxAttempts: 1}}
	for _, report := range []*dispatch.Report{{Released: &dispatch.Released{}}, {Failed: &dispatch.Failed{}}} {
		task := e.task(grant.Task.ID)
		report.ID, report.Token = task.ID, task.Lease.Token
		e.settle(policy().Report(task, spec, report, e.now()))
		e.waitsAgain(&grant)
		e.requestCancel(dispatch.CancelHeld, grant.Task.ID)
	}
}

func heldExpiry(e *env) {
	grant := e.heldGrant()
	e.advance(dispatch.DefaultLeaseDuration)
	found := e.sweep(10).Expired
	is(e, "expired", len(found), 1)
	e.settle(policy().Expire(found[0], &dispatch.SourceSpec{Remember: time.Hour, Retry: dispatch.Retry{MaxExpirations: 1}}, e.now()))
	e.waitsAgain(&grant)
}

func heldReplaced(e *env) {
	grant := e.heldGrant(in("c1", "s1"))
	found := e.endSession("s2")
	is(e, "ended", len(found), 1)
	e.settle(policy().Replace(found[0], &dispatch.SourceSpec{Remember: time.Hour, Retry: dispatch.Retry{MaxExpirations: 1}}, e.now()))
	task := e.task(grant.Task.ID)
	is(e, "state", task.State, dispatch.StateReady)
	is(e, "mark", task.CancelRequested, dispatch.CancelNone)
	is(e, "counters", task.Counters, dispatch.Counters{})
	e.takeOne(in("c1", "s2"))
}

func heldGiveBack(e *env) {
	grant := e.heldGrant(by("t", "1"))
	is(e, "given back", e.giveBack("t", "1"), 1)
	e.waitsAgain(&grant)
}

// heldSuccess: a success that reads no record leaves what a hold ends to the policy, by
// which it is one.
func heldSuccess(e *env) {
	grant := e.heldGrant()
	before := e.task(grant.Task.ID)
	is(e, "answer", e.succeed(success(&grant))[0], dispatch.ApplyResult{Code: dispatch.ApplyUnread, State: dispatch.StateLeased})
	is(e, "task", e.task(grant.Task.ID), before)
	report := &dispatch.Report{ID: before.ID, Token: grant.Token, Succeeded: &dispatch.Succeeded{}}
	e.settle(policy().Report(before, &dispatch.SourceSpec{Remember: time.Hour}, report, e.now()))
	task := e.task(grant.Task.ID)
	is(e, "state", task.State, dispatch.StateDone)
	is(e, "mark", task.CancelRequested, dispatch.CancelNone)
}

func heldCanceled(e *env) {
	grant := e.heldGrant(by("t", "1"))
	e.requestCancel(dispatch.CancelTask, grant.Task.ID)
	is(e, "renewal", e.renew(grant), dispatch.RenewResult{
		Remaining: dispatch.DefaultLeaseDuration, Duration: dispatch.DefaultLeaseDuration, Cancel: dispatch.CancelTask,
	})
	is(e, "given back", e.giveBack("t", "1"), 1)
	is(e, "state", e.task(grant.Task.ID).State, dispatch.StateCanceled)
}
