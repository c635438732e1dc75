package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func detailCases() []testCase {
	return []testCase{
		{"Memo_IsKeptReplacedCleared", detailMemo},
		{"LastError_IsKeptAndCleared", detailLastError},
		{"History_KeepsTheLastTen", detailHistory},
		{"History_KeepsSuccessesApart", detailSuccesses},
		{"Response_IsTheLastReports", detailResponse},
		{"Shrink_DropsWhatIsNotNeeded_T45", detailShrink},
		{"Details_OnlyWhenAskedFor", detailAsked},
		{"Remember_Zero_IsKept", detailForever},
		{"Flags_StayUnlessCleared", detailFlags},
	}
}

func detailMemo(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	end := func(memo []byte) string {
		grant := e.takeOne()
		tr := retry(&grant.Task, 0)
		tr.Memo = memo
		e.settle(tr)
		return string(e.task(grant.Task.ID).Memo)
	}
	is(e, "memo", end([]byte("one")), "one")
	is(e, "memo after none", end(nil), "one")
	is(e, "memo after another", end([]byte("two")), "two")
	is(e, "memo at hand-out", string(e.task(item(g, queue, "k").ID).Memo), "two")
	is(e, "memo cleared", end([]byte{}), "")
}

func detailLastError(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	tr := retry(&grant.Task, 0)
	tr.LastError = &dispatch.Failure{
		Result: dispatch.ResultFailed, Reason: 104, Message: "no\x00 route\u00e9", HTTPStatus: 503, Permanent: true, Time: start,
	}
	e.settle(tr)
	is(e, "last error", e.task(grant.Task.ID).LastError, tr.LastError)
	grant = e.takeOne()
	e.settle(retry(&grant.Task, 0))
	is(e, "last error after none", e.task(grant.Task.ID).LastError, tr.LastError)
	grant = e.takeOne()
	tr = retry(&grant.Task, 0)
	tr.ClearError = true
	e.settle(tr)
	is(e, "last error cleared", e.task(grant.Task.ID).LastError, nil)
}

func detailHistory(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	var want []dispatch.Attempt
	for i := range bounds.MaxHistory + 3 {
		grant := e.takeOne()
		e.advance(time.Second)
		tr := retry(&grant.Task, 0)
		tr.Attempt = &dispatch.Attempt{
			Collector: "c1", Cycle: 2, Fence: grant.Token.Fence, Started: grant.Task.Lease.Granted, Ended: e.now(),
			Result: dispatch.ResultFailed, Failure: &dispatch.Failure{Message: fmt.Sprint(i)},
		}
		want = append(want, *tr.Attempt)
		e.settle(tr)
	}
	is(e, "history", e.task(item(g, queue, "k").ID).History, want[3:])
}

// detailSuccesses fails a task for longer than the history is, and lets it succeed for as long: of both the last ones stay.
func detailSuccesses(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	var lines [2][]dispatch.Attempt
	for i := range 2 * (bounds.MaxHistory + 3) {
		grant := e.takeOne()
		e.advance(time.Second)
		tr := retry(&grant.Task, 0)
		if i%2 == 0 {
			tr.Result = dispatch.ResultSucceeded
		}
		tr.Attempt = &dispatch.Attempt{
			Collector: "c1", Fence: grant.Token.Fence, Started: grant.Task.Lease.Granted, Ended: e.now(), Result: tr.Result,
			Response: dispatch.Response{HTTPStatus: 200 + i, Bytes: int64(i) << 32, FetchDuration: time.Duration(i) * time.Millisecond},
		}
		lines[i%2] = append(lines[i%2], *tr.Attempt)
		e.settle(tr)
	}
	var got [2][]dispatch.Attempt
	for _, line := range e.task(item(g, queue, "k").ID).History {
		at := 0
		if line.Result == dispatch.ResultFailed {
			at = 1
		}
		got[at] = append(got[at], line)
	}
	is(e, "successes", got[0], lines[0][3:])
	is(e, "failures", got[1], lines[1][3:])
}

func detailResponse(e *env) {
	e.open()
	g := remembered("a")
	e.create(g, item(g, queue, "k"))
	id := item(g, queue, "k").ID
	failed := dispatch.Response{HTTPStatus: 503, FetchDuration: 20 * time.Millisecond}
	grant := e.takeOne()
	tr := retry(&grant.Task, 0)
	tr.Visit.HTTPStatus, tr.Visit.Duration = failed.HTTPStatus, failed.FetchDuration
	e.settle(tr)
	is(e, "after a failure", e.task(id).Response, failed)
	grant = e.takeOne()
	is(e, "when it is handed out", grant.Task.Response, failed)
	e.settle(released(&grant.Task, 0))
	is(e, "after a release", e.task(id).Response, failed)
	grant = e.takeOne()
	tr = success(&grant)
	tr.Visit.HTTPStatus, tr.Visit.Bytes, tr.Visit.Duration = 200, 1<<40, 24*time.Hour
	e.settle(tr)
	is(e, "after an unread success", e.task(id).Response, tr.Response())
	e.advance(time.Minute)
	e.sweep(10)
	is(e, "of one that is over", e.task(id).Response, tr.Response())
	e.submitOne(g, item(g, queue, "k", func(s *dispatch.Submission) { s.Run = start }), dispatch.SubmitRevisit)
	is(e, "of one that is due again", e.task(id).Response, tr.Response())
}

func detailShrink(e *env) {
	g := source("a")
	s := item(g, queue, "k", payload(100), func(s *dispatch.Submission) {
		s.Metadata, s.Run, s.Kind = map[string]string{"a": "b"}, start, "page"
		s.Relation, s.Redirect = dispatch.RelationSitemap, dispatch.Redirect{Hops: 1, From: "http://head.test/"}
		s.Traceparent = traceparent
	})
	e.create(g, s)
	grant := e.takeOne()
	e.renewWith(dispatch.Renewal{ID: s.ID, Token: grant.Token, Cursor: []byte("c")})
	tr := done(&grant.Task)
	tr.Memo = []byte("etag")
	tr.LastError = &dispatch.Failure{Message: "no"}
	tr.Attempt = &dispatch.Attempt{Collector: "c1"}
	e.settle(tr)
	task := e.task(s.ID)
	is(e, "payload", len(task.Payload), 0)
	is(e, "metadata", len(task.Metadata), 0)
	is(e, "redirect", task.Redirect, dispatch.Redirect{})
	is(e, "traceparent", task.Traceparent, "")
	is(e, "cursor", len(task.Cursor), 0)
	is(e, "last error", task.LastError, nil)
	is(e, "history", len(task.History), 0)
	is(e, "memo", string(task.Memo), "etag")
	is(e, "run", task.Run, start)
	is(e, "relation", task.Relation, s.Relation)
	is(e, "source", task.SourceUID, g.UID)
}

func detailAsked(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	tr := retry(&grant.Task, 0)
	tr.Memo, tr.Cursor = []byte("m"), []byte("c")
	tr.LastError = &dispatch.Failure{Message: "no"}
	tr.Attempt = &dispatch.Attempt{Collector: "c1"}
	e.settle(tr)
	ids := []dispatch.TaskID{item(g, queue, "unknown").ID, grant.Task.ID, grant.Task.ID}
	tasks, _, err := e.Store.Tasks(e.ctx, ids, false)
	e.ok("tasks", err)
	is(e, "tasks", len(tasks), 3)
	if tasks[0] != nil || tasks[1] == nil || tasks[2] == nil {
		e.Fatalf("tasks read by id: %v", tasks)
	}
	plain := *tasks[1]
	full := *e.task(grant.Task.ID)
	is(e, "cursor", string(full.Cursor), "c")
	full.Cursor, full.Memo, full.LastError, full.History = nil, nil, nil, nil
	is(e, "task without details", plain, full)
	fresh := e.takeOne().Task
	is(e, "memo at hand-out", string(fresh.Memo), "m")
	is(e, "cursor at hand-out", string(fresh.Cursor), "c")
}

func detailForever(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	tr := dead(&grant.Task)
	tr.Remember = 0
	e.settle(tr)
	e.advance(2 * bounds.MaxRemember)
	e.sweep(10)
	is(e, "state", e.task(grant.Task.ID).State, dispatch.StateDead)
}

func detailFlags(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.submitOne(g, item(g, queue, "k", again), dispatch.SubmitExists)
	e.settle(retry(e.task(grant.Task.ID), 0))
	is(e, "again after a retry", e.task(grant.Task.ID).AgainRequested, true)
	is(e, "again at the next grant", e.takeOne().Task.AgainRequested, true)
	e.settle(done(e.task(grant.Task.ID)))
	is(e, "again after the settlement", e.task(grant.Task.ID).AgainRequested, false)
}
