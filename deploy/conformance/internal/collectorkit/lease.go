package collectorkit

import (
	"sync/atomic"
	"syscall"
	"time"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// leaseScenarios are about how long a handler may work.
func leaseScenarios() []Scenario {
	return []Scenario{
		{
			Name: "lease/renewed", Rule: "8: beat after a third of the shortest lease",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 6000, lease: 2 * time.Second})
				k.start()
				k.settled(10*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the task was not reported as succeeded, although its lease was renewed")
			},
		},
		{
			Name: "lease/margin", Rule: "7: stop at the deadline minus a tenth of the lease, at most 2 s",
			script: func(k *kit) {
				k.on(func(h *hooks) { h.beat = failing[wagglev1.LeaseStatus](always, errLost) })
				ids := k.add(work{WorkMS: 60000, lease: 10 * time.Second})
				k.start()
				k.started(ids...)
				when, l := k.canceled(12*time.Second, ids[0]), k.leaseOf(ids[0])
				late("the handler of a lease that no beat renewed was canceled", when, l.granted.Add(9*time.Second+slack))
				early("the handler of a lease that no beat renewed was canceled", when, l.granted.Add(8*time.Second))
			},
		},
		{
			Name: "lease/from-sent", Rule: "7: a lease begins no later than sent + waited, however late the reply comes",
			script: func(k *kit) {
				k.on(func(h *hooks) {
					h.beat = failing[wagglev1.LeaseStatus](always, errLost)
					h.fetch = once(func(c *call) (*wagglev1.FetchTaskResponse, error) {
						reply, err := k.serveFetch(c)
						c.delay(2 * time.Second)
						return reply, err
					})
				})
				ids := k.add(work{WorkMS: 60000, lease: 4 * time.Second})
				k.start()
				k.started(ids...)
				late("the reply of the fetch took 2 s; its handler was canceled", k.canceled(8*time.Second, ids[0]),
					k.leaseOf(ids[0]).granted.Add(3600*time.Millisecond+slack))
			},
		},
		{
			Name: "lease/waited", Rule: "7: a lease begins after what the dispatcher waited",
			config: func(c *clientConfig) { c.WaitMS = 10000 },
			script: func(k *kit) {
				k.start()
				k.next(soon, "fetch", time.Time{}, isFetch)
				k.pass(3 * time.Second)
				ids := k.add(work{WorkMS: 1000, lease: 2500 * time.Millisecond})
				k.settled(soon+time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "a task of a fetch that had waited 3 s was not worked on: waited was not counted")
			},
		},
		{
			Name: "lease/renewal-from-sent", Rule: "7: a renewed lease begins at sent, however late the answer comes",
			script: func(k *kit) {
				var beat atomic.Pointer[call]
				k.on(func(h *hooks) {
					h.beat = func(c *call) (*wagglev1.LeaseStatus, error) {
						switch {
						case len(c.beat.GetLeases()) == 0:
							return nil, nil //nolint:nilnil // the usual dispatcher answers
						case beat.CompareAndSwap(nil, c):
							reply, err := k.serveBeat(c)
							c.delay(1400 * time.Millisecond)
							return reply, err
						}
						return nil, errLost
					}
				})
				ids := k.add(work{WorkMS: 60000, lease: 10 * time.Second})
				k.start()
				k.started(ids...)
				when := k.canceled(18*time.Second, ids[0])
				late("the answer to the last beat took 1.4 s; the handler was canceled", when, beat.Load().at.Add(9*time.Second+slack))
			},
		},
		{
			Name: "lease/short-among-long", Rule: "8: beat in time for a lease that is shorter than the others",
			script: func(k *kit) {
				long := k.add(work{WorkMS: 5000})
				k.start()
				k.started(long...)
				k.pass(time.Second)
				short := k.add(work{WorkMS: 4000, lease: 1500 * time.Millisecond})
				k.settled(8*time.Second, short...)
				verdict.Want(k.outcome(short[0]).GetSucceeded() != nil, "the task with the short lease was not reported as succeeded")
				k.settled(soon, long...)
			},
		},
		{
			Name: "lease/limited", Rule: "8: limited: this lease runs only this long",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 20000, lease: 3 * time.Second}, work{WorkMS: 6000, lease: 3 * time.Second})
				k.start()
				k.started(ids...)
				k.change(func() { k.lease(ids[0]).limited, k.lease(ids[0]).limit = true, 500*time.Millisecond })
				when := k.canceled(6*time.Second, ids[0])
				late("the handler of a limited lease was canceled", when, k.leaseOf(ids[0]).deadline.Add(slack))
				k.settled(8*time.Second, ids[1])
				verdict.Want(k.outcome(ids[1]).GetSucceeded() != nil, "the task beside the limited one was not reported as succeeded")
			},
		},
		{
			Name: "lease/lost", Rule: "8: lost: stop at once, do not report; the other leases go on",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 20000, lease: 3 * time.Second}, work{WorkMS: 3000, lease: 3 * time.Second})
				k.start()
				k.started(ids...)
				k.lose(wagglev1.LostReason_LOST_REASON_REVOKED, ids[0])
				when := k.canceled(soon, ids[0])
				late("the handler of a lost lease was canceled", when, k.leaseOf(ids[0]).told.Add(slack))
				k.settled(soon+3*time.Second, ids[1])
				verdict.Want(len(k.reportsOf(ids[0])) == 0, "a task was reported whose lease was lost")
			},
		},
		{
			Name: "lease/lost-pushed", Rule: "8, 21: act at once on what is pushed; an unknown LostReason is lost", streams: true,
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 20000})
				k.start()
				k.started(ids...)
				k.awaitStream(time.Time{})
				k.push(&wagglev1.LeaseStatus{Lost: k.lose(unknownEnum, ids...)})
				pushed := time.Now()
				late("a message with lost was pushed; the handler was canceled", k.canceled(soon, ids[0]), pushed.Add(2*slack))
				k.pass(time.Second)
				verdict.Want(len(k.reportsOf(ids[0])) == 0, "a task was reported whose lease was lost")
			},
		},
		{
			Name: "lease/lapsed", Rule: "7: once the work has ended, report the task as released, and repeat this for 30 s",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 20000, lease: 3 * time.Second})
				k.start()
				k.started(ids...)
				k.change(func() { k.graceful = true })
				k.on(func(h *hooks) { h.every = func(*call) error { return errLost } })
				k.endStreams(errLost)
				k.canceled(5*time.Second, ids[0])
				k.pass(1500 * time.Millisecond)
				k.on(func(h *hooks) { h.every = nil })
				k.settled(8*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetReleased() != nil, "the task of a lapsed lease was not reported as released")
			},
		},
		{
			Name: "lease/frozen-process", Rule: "7: a frozen process wakes up with old deadlines: compare them with the clock",
			excused: []string{ruleBeatsInTime, ruleNamesAll},
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 4000, lease: 3 * time.Second})
				k.start()
				k.started(ids...)
				k.signal(syscall.SIGSTOP)
				k.pass(6 * time.Second)
				k.signal(syscall.SIGCONT)
				more := k.add(work{})
				k.settled(8*time.Second, more...)
				for _, one := range k.reportsOf(ids[0]) {
					verdict.Want(one.report.GetOutcome().GetReleased() != nil, "a process that was frozen beyond its lease reported a result")
				}
			},
		},
		{
			Name: "lease/blocking-handler", Rule: "7: no result counts that comes after the deadline, whatever the handler did to the clock",
			excused: []string{ruleBeatsInTime, ruleNamesAll},
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 3500, Block: true, lease: 2 * time.Second})
				k.start()
				k.started(ids...)
				k.await(6*time.Second, "end of the handler", func() bool { return k.hasEvent("finished", ids[0]) })
				k.settled(soon, k.add(work{})...)
				for _, one := range k.reportsOf(ids[0]) {
					isOver := one.code == wagglev1.ReportCode_REPORT_CODE_LEASE_LOST
					verdict.Want(!isOver || one.report.GetOutcome().GetReleased() != nil, "a handler that blocked beyond its lease had its result reported")
				}
			},
		},
	}
}
