package storetest

import "github.com/waggle-crawl/waggle/dispatch"

func cancelCases() []testCase {
	return []testCase{
		{"Leased_IsToldByRenewal", cancelLeased},
		{"Others_AreLeftAlone", cancelOthers},
		{"Repeated_ChangesNothing", cancelRepeated},
	}
}

func (e *env) requestCancel(reason dispatch.CancelReason, ids ...dispatch.TaskID) {
	e.Helper()
	e.ok("request cancel", e.Store.RequestCancel(e.ctx, ids, reason))
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
