package storetest

import (
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func cancelCases() []testCase {
	return []testCase{
		{"Leased_IsToldByRenewal", cancelLeased},
		{"Others_AreLeftAlone", cancelOthers},
		{"Repeated_ChangesNothing", cancelRepeated},
		{"Line_StandsInTheHistory", cancelLine},
		{"Holder_IsHinted", cancelHints},
		{"Holder_IsHinted_AfterTheLockRanOut", cancelHintsLate},
	}
}

func (e *env) requestCancel(reason dispatch.CancelReason, ids ...dispatch.TaskID) {
	e.Helper()
	e.ok("request cancel", e.Store.RequestCancel(e.ctx, ids, reason, nil))
}

func cancelLeased(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	is(e, "cancel before", e.renew(grant).Cancel, dispatch.CancelNone)
	e.requestCancel(dispatch.CancelTask, grant.Task.ID)
	r := e.renew(grant)
	is(e, "cancel", r.Cancel, dispatch.CancelTask)
	is(e, "lost", r.Lost, dispatch.LostNone)
	task := e.task(grant.Task.ID)
	is(e, "state", task.State, dispatch.StateLeased)
	if task.Revision <= grant.Task.Revision {
		e.Fatalf("revision %d did not rise above %d", task.Revision, grant.Task.Revision)
	}
	e.settle(canceled(task))
	task = e.task(grant.Task.ID)
	is(e, "state after the end", task.State, dispatch.StateCanceled)
	is(e, "flag after the end", task.CancelRequested, dispatch.CancelNone)
	is(e, "leased", e.info(queue).Leased, 0)
}

// cancelHints marks tasks of two holders: a hint names each with its holder, none the task that
// nobody holds.
func cancelHints(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	given := e.hints()
	first, second := e.takeOne(), e.takeOne(func(w *dispatch.Want) { w.Collector = "c2" })
	var ids []dispatch.TaskID
	for n := range 3 {
		ids = append(ids, item(g, queue, strconv.Itoa(n)).ID)
	}
	e.requestCancel(dispatch.CancelSourceDeleted, ids...)
	missing := map[dispatch.Hint]bool{
		{Kind: dispatch.HintCancel, ID: "c1", Task: first.Task.ID, Reason: dispatch.CancelSourceDeleted}:  true,
		{Kind: dispatch.HintCancel, ID: "c2", Task: second.Task.ID, Reason: dispatch.CancelSourceDeleted}: true,
	}
	e.await(given, "both cancels", func(h dispatch.Hint) bool {
		if h.Kind == dispatch.HintCancel && !missing[h] {
			e.Errorf("hint of a lease that was not marked, or a second one: %+v", h)
		}
		delete(missing, h)
		return len(missing) == 0
	})
}

// cancelHintsLate marks a task of which the lock has run out, and which nobody has swept yet:
// whoever works on it still is told.
func cancelHintsLate(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(1)
	grant := e.takeOne()
	e.advance(dispatch.DefaultLeaseDuration + time.Second)
	e.lock(grant.Task.ID, "", 0)
	is(e, "state", e.task(grant.Task.ID).State, dispatch.StateLeased)
	given := e.hints()
	e.requestCancel(dispatch.CancelTask, grant.Task.ID)
	want := dispatch.Hint{Kind: dispatch.HintCancel, ID: "c1", Task: grant.Task.ID, Reason: dispatch.CancelTask}
	e.await(given, "the cancel", func(h dispatch.Hint) bool { return h == want })
}

func cancelOthers(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	grant := e.takeOne()
	e.settle(done(&grant.Task))
	waiting := item(g, queue, "0").ID
	if waiting == grant.Task.ID {
		waiting = item(g, queue, "1").ID
	}
	before, settled := e.task(waiting), e.task(grant.Task.ID)
	e.requestCancel(dispatch.CancelTask, waiting, grant.Task.ID, item(g, queue, "unknown").ID)
	is(e, "waiting one", e.task(waiting), before)
	is(e, "settled one", e.task(grant.Task.ID), settled)
}

func cancelRepeated(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	id := e.takeOne().Task.ID
	e.requestCancel(dispatch.CancelTask, id)
	before := e.task(id)
	e.requestCancel(dispatch.CancelTask, id)
	is(e, "task", e.task(id), before)
	e.requestCancel(dispatch.CancelSourceDeleted, id)
	is(e, "reason", e.task(id).CancelRequested, dispatch.CancelSourceDeleted)
}

// cancelLine asks for the end of leased tasks, of which one has a history that is full
// and one has none, and says who did it.
func cancelLine(e *env) {
	e.open()
	a, b := source("a"), source("b")
	e.create(a, item(a, queue, "fresh"))
	e.create(b, item(b, queue, "full"))
	of := func(gate dispatch.SourceGate) *dispatch.Task {
		return e.takeTask(func(w *dispatch.Want) { w.SourceUIDs = []string{gate.UID} })
	}
	for n := range bounds.MaxHistory + 1 {
		tr := retry(of(b), 0)
		tr.Attempt = &dispatch.Attempt{Collector: "c", Cycle: uint32(n), Ended: e.now(), Result: dispatch.ResultFailed}
		e.settle(tr)
	}
	fresh, full := of(a).ID, of(b).ID
	before := e.task(full).History
	note := dispatch.Note{By: "ada", Reason: "no \"good\": \x00\u00e9"}
	line := &dispatch.Attempt{Ended: e.now(), Result: dispatch.ResultCanceled, Note: note}
	for range 2 { // what is marked already gets no second line
		e.ok("request cancel", e.Store.RequestCancel(e.ctx, []dispatch.TaskID{fresh, full}, dispatch.CancelTask, line))
	}
	is(e, "history of one that had none", e.task(fresh).History, []dispatch.Attempt{*line})
	is(e, "history of one that was full", e.task(full).History, append(before[1:], *line))
	e.settle(canceled(e.task(fresh)))
	task := e.task(fresh)
	is(e, "state", task.State, dispatch.StateCanceled)
	is(e, "history after the end", task.History, []dispatch.Attempt{*line})
}
