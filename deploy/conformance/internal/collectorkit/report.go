package collectorkit

import (
	"time"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// reportScenarios are about reports and discovered links.
func reportScenarios() []Scenario {
	return []Scenario{
		{
			Name: "report/lost-reply", Rule: "9: if the call fails, repeat it; ALREADY_REPORTED ends it",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 100, Memo: "etag"})
				k.on(func(h *hooks) { h.report = once(k.settleAndLose) })
				k.on(func(h *hooks) { h.fetch = k.loseCarried() })
				k.start()
				k.await(soon+slack, "second report", func() bool { return len(k.reportsLocked(ids[0])) >= 2 })
				k.pass(2 * time.Second)
				n := len(k.reportsOf(ids[0]))
				want(n == 2, "the task was reported %d times, want 2: the second was answered by ALREADY_REPORTED", n)
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
		k.noteReports(c, c.fetch.GetReports())
		k.settle(c, c.fetch.GetReports())
		return nil, errLost
	}
}
