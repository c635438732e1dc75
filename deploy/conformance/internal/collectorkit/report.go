package collectorkit

import (
	"fmt"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// reportScenarios are about reports and discovered links.
func reportScenarios() []Scenario {
	return []Scenario{
		{
			Name: "report/outcomes", Rule: "9: an outcome is succeeded, failed with a reason, or released",
			script: func(k *kit) {
				ids := k.add(
					work{Outcome: "failed", Reason: "SERVER_ERROR", HTTPStatus: 503, RetryAfterMS: 7000},
					work{Outcome: "failed", Reason: "PARSE", Permanent: true},
					work{Outcome: "released", DelayMS: 60000},
					work{Raise: "boom"},
				)
				k.start()
				k.settled(soon, ids...)
				slow, bad, thrown := k.outcome(ids[0]).GetFailed(), k.outcome(ids[1]).GetFailed(), k.outcome(ids[3]).GetFailed()
				verdict.Want(slow.GetReason() == wagglev1.FailureReason_FAILURE_REASON_SERVER_ERROR && slow.GetHttpStatus() == 503,
					"a failure was reported as %s with status %d, want SERVER_ERROR with 503", slow.GetReason(), slow.GetHttpStatus())
				verdict.Want(slow.GetRetryAfter().AsDuration() == 7*time.Second, "a failure was reported with retry_after %s, want 7 s", slow.GetRetryAfter().AsDuration())
				verdict.Want(bad.GetPermanent(), "a permanent failure was not reported so")
				verdict.Want(k.outcome(ids[2]).GetReleased().GetDelay().AsDuration() == time.Minute, "a task was not reported as released with a delay of 1 min")
				verdict.Want(thrown.GetReason() == wagglev1.FailureReason_FAILURE_REASON_HANDLER, "a handler that raised was reported as %s, want HANDLER", thrown.GetReason())
			},
		},
		{
			Name: "report/lost-reply", Rule: "9: if the call fails, repeat it; ALREADY_REPORTED ends it",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 100, Memo: "etag"})
				k.on(func(h *hooks) { h.report, h.fetch = once(k.settleAndLose), k.loseCarried() })
				k.start()
				k.await(soon+slack, "second report", func() bool { return len(k.reportsLocked(ids[0])) >= 2 })
				k.pass(2 * time.Second)
				n := len(k.reportsOf(ids[0]))
				verdict.Want(n == 2, "the task was reported %d times, want 2: the second was answered by ALREADY_REPORTED", n)
			},
		},
		{
			Name: "report/outage", Rule: "9: if the call fails, keep beating and repeat it",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 100, lease: 2 * time.Second})
				k.on(func(h *hooks) {
					h.report = failing[wagglev1.ReportTaskResponse](always, errLost)
					h.fetch = func(c *call) (*wagglev1.FetchTaskResponse, error) {
						if len(c.fetch.GetReports()) > 0 {
							return nil, errLost
						}
						return nil, nil //nolint:nilnil // the usual dispatcher answers
					}
				})
				k.start()
				k.await(soon, "report", func() bool { return len(k.reportsLocked(ids[0])) > 0 })
				k.pass(4 * time.Second)
				n := len(k.reportsOf(ids[0]))
				verdict.Want(n <= 14, "%d reports in 4 s: no growing wait between them", n)
				k.on(func(h *hooks) { h.report, h.fetch = nil, nil })
				k.await(10*time.Second, "report that counts: the lease was beaten for while its report failed",
					func() bool { return k.lease(ids[0]).result != nil })
			},
		},
		{
			Name: "report/store-full", Rule: "9: STORE_FULL and STORE_UNAVAILABLE: keep beating; repeat after retry_after",
			script: func(k *kit) {
				ids := k.add(work{lease: 2 * time.Second}, work{lease: 2 * time.Second})
				k.change(func() {
					k.codes[ids[0]] = wagglev1.ReportCode_REPORT_CODE_STORE_FULL
					k.codes[ids[1]] = wagglev1.ReportCode_REPORT_CODE_STORE_UNAVAILABLE
				})
				k.start()
				for _, id := range ids {
					k.await(9*time.Second, "third report of a task that the store had no room for", func() bool { return len(k.reportsLocked(id)) >= 3 })
				}
				k.change(func() { clear(k.codes) })
				k.settled(9*time.Second, ids...)
				for _, id := range ids {
					list := k.reportsOf(id)
					gap := list[1].at.Sub(list[0].at)
					verdict.Want(gap >= reportRetry-slack/10, "a report was repeated after %s, but retry_after was %s", gap.Round(time.Millisecond), reportRetry)
				}
			},
		},
		{
			Name: "report/lease-lost", Rule: "9: LEASE_LOST and NOT_FOUND: discard the result",
			script: func(k *kit) {
				ids := k.add(work{}, work{})
				k.change(func() {
					k.codes[ids[0]] = wagglev1.ReportCode_REPORT_CODE_LEASE_LOST
					k.codes[ids[1]] = wagglev1.ReportCode_REPORT_CODE_NOT_FOUND
				})
				k.start()
				for _, id := range ids {
					k.await(soon, "report", func() bool { return len(k.reportsLocked(id)) > 0 })
				}
				k.settled(soon, k.add(work{})...)
				k.pass(time.Second)
				for _, id := range ids {
					n := len(k.reportsOf(id))
					verdict.Want(n == 1, "a report that was answered by LEASE_LOST or NOT_FOUND came %d times, want 1", n)
				}
			},
		},
		{
			Name: "report/discovered", Rule: "10: a report carries 1000 items; send more before it; if a call fails, repeat all of it",
			script: func(k *kit) {
				k.on(func(h *hooks) { h.submit = failing[wagglev1.SubmitDiscoveredResponse](1, errLost) })
				ids := k.add(work{DiscoverFirst: 2500, Discovered: 3})
				k.start()
				k.settled(8*time.Second, ids...)
				k.wantDiscovered(ids[0], 2503)
			},
		},
		{
			Name: "report/large-items", Rule: "20: a request has at most 4 MiB, whatever the number of its items",
			script: func(k *kit) {
				tooLarge := k.add(work{MemoBytes: 5 << 20})
				ids := k.add(work{DiscoverFirst: 3000, id: "1-" + strings.Repeat("x", 1900)})
				k.start()
				k.settled(10*time.Second, ids...)
				k.wantDiscovered(ids[0], 3000)
				k.settled(15*time.Second, tooLarge...)
				verdict.Want(k.outcome(tooLarge[0]).GetFailed().GetReason() == wagglev1.FailureReason_FAILURE_REASON_HANDLER,
					"an outcome that no call can carry was reported as %v, want a failure with HANDLER", k.outcome(tooLarge[0]))
			},
		},
		{
			Name: "report/huge-batch", Rule: "20: a request has at most 4 MiB, however many reports wait",
			config: func(c *clientConfig) { c.Slots = 200 },
			script: func(k *kit) {
				ids := k.add(many(200, work{WorkMS: 500, Memo: strings.Repeat("m", 4096), Discovered: 700})...)
				k.on(func(h *hooks) {
					h.report = failing[wagglev1.ReportTaskResponse](always, errLost)
					h.fetch = func(c *call) (*wagglev1.FetchTaskResponse, error) {
						if len(c.fetch.GetReports()) > 0 {
							return nil, errLost
						}
						return nil, nil //nolint:nilnil // the usual dispatcher answers
					}
				})
				k.start()
				k.await(15*time.Second, "end of all handlers", func() bool { return k.eventsLocked("finished") == len(ids) })
				k.pass(time.Second)
				k.on(func(h *hooks) { h.report, h.fetch = nil, nil })
				k.settled(15*time.Second, ids...)
			},
		},
	}
}

// settleAndLose settles reports, and loses the reply.
func (k *kit) settleAndLose(c *call) (*wagglev1.ReportTaskResponse, error) {
	k.settle(c, c.report.GetReports())
	return nil, errLost
}

// loseCarried settles the reports of the first fetch that carries some, and loses the reply.
func (k *kit) loseCarried() func(*call) (*wagglev1.FetchTaskResponse, error) {
	lost := false
	return func(c *call) (*wagglev1.FetchTaskResponse, error) {
		if lost || len(c.fetch.GetReports()) == 0 {
			return nil, nil //nolint:nilnil // the usual dispatcher answers
		}
		lost = true
		k.settle(c, c.fetch.GetReports())
		return nil, errLost
	}
}

// wantDiscovered fails unless each link of a task was taken, no call had more than 1000, and the report came last.
func (k *kit) wantDiscovered(id string, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	taken := map[string]bool{}
	note := func(items []*wagglev1.DiscoveredItem) {
		verdict.Want(len(items) <= 1000, "%d items came in one call, want at most 1000", len(items))
		for _, item := range items {
			taken[item.GetUrl()] = true
		}
	}
	l := k.lease(id)
	for _, c := range k.calls {
		if c.submit != nil && c.err == nil {
			note(c.submit.GetItems())
			verdict.Want(c.submit.GetTaskId() == id && c.submit.GetLeaseToken() == l.token, "SubmitDiscovered has another task or lease token")
			verdict.Want(c.at.Before(l.reports[0].at), "SubmitDiscovered came after the report")
		}
	}
	note(l.result.GetOutcome().GetSucceeded().GetDiscovered())
	for i := range n {
		url := fmt.Sprintf("http://found.test/%s/%d", id, i)
		verdict.Want(taken[url], "item %d of %d never came", i, n)
	}
}
