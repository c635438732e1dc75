package collectorkit

import (
	"time"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// silent is a hook that answers nothing.
func silent[T any](*call) (*T, error) { return nil, errSilent }

// leaseScenarios are about how long a handler may work.
func leaseScenarios() []Scenario {
	return []Scenario{
		{
			Name: "lease/renewed", Rule: "8: a beat comes after a third of the shortest lease",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 6000, lease: 2 * time.Second})
				k.start()
				k.settled(10*time.Second, ids...)
				want(k.outcome(ids[0]).GetSucceeded() != nil, "the task was not reported as succeeded, although its lease was renewed")
			},
		},
		{
			Name: "lease/margin", Rule: "7: stop at the deadline minus a tenth of the lease, at most 2 s",
			script: func(k *kit) {
				k.on(func(h *hooks) { h.beat = failing[wagglev1.LeaseStatus](always, errLost) })
				ids := k.add(work{WorkMS: 60000, lease: 10 * time.Second})
				k.start()
				k.started(ids...)
				when := k.canceled(12*time.Second, ids[0])
				l := k.leaseOf(ids[0])
				late("the handler of a lease that no beat renewed was canceled", when, l.granted.Add(9*time.Second+slack))
				want(when.After(l.granted.Add(8*time.Second)), "the handler was canceled %s before the margin", l.granted.Add(9*time.Second).Sub(when))
			},
		},
		{
			Name: "lease/lost", Rule: "8: lost: stop at once, do not report",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 20000, lease: 3 * time.Second}, work{WorkMS: 3000, lease: 3 * time.Second})
				k.start()
				k.started(ids...)
				k.lose(wagglev1.LostReason_LOST_REASON_REVOKED, ids[0])
				when := k.canceled(soon, ids[0])
				late("the handler of a lost lease was canceled", when, k.leaseOf(ids[0]).told.Add(slack))
				k.settled(soon+3*time.Second, ids[1])
				want(len(k.reportsOf(ids[0])) == 0, "a task was reported whose lease was lost")
			},
		},
	}
}
