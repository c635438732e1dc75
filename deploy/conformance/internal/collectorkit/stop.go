package collectorkit

import (
	"time"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
)

// stopScenarios are about the end of a collector by plan.
func stopScenarios() []Scenario {
	return []Scenario{
		{
			Name: "stop/running", Rule: "19: on SIGTERM fetch no more, finish, keep beating, then send ended",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 3500, lease: 3 * time.Second})
				k.start()
				k.started(ids...)
				stopped := time.Now()
				k.stop()
				k.settled(5*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the running task was not finished")
				k.wantCleanEnd(soon, stopped)
			},
		},
		{
			Name: "stop/waiting", Rule: "6: a fetch may be canceled before its reply",
			config: func(c *clientConfig) { c.WaitMS = 25000 },
			script: func(k *kit) {
				k.start()
				k.next(soon, "fetch", time.Time{}, isFetch)
				stopped := time.Now()
				k.stop()
				k.wantCleanEnd(5*time.Second, stopped)
			},
		},
		{
			Name: "stop/drain-over", Rule: "19: release what does not finish in time",
			config: func(c *clientConfig) { c.DrainMS = 1000 },
			script: func(k *kit) {
				ids := k.add(many(3, work{WorkMS: 60000})...)
				k.start()
				k.started(ids...)
				stopped := time.Now()
				k.stop()
				for _, id := range ids {
					when := k.canceled(4*time.Second, id)
					early("a handler was canceled", when, stopped.Add(time.Second-slack/2))
				}
				k.settled(soon, ids...)
				for _, id := range ids {
					verdict.Want(k.outcome(id).GetReleased() != nil, "a task that could not finish was not reported as released")
				}
				k.wantCleanEnd(5*time.Second, stopped)
			},
		},
	}
}

// wantCleanEnd waits for the end of the client program after a stop by plan: no new fetch, a beat that says stopping or
// ended, the last with ended and without leases.
func (k *kit) wantCleanEnd(limit time.Duration, stopped time.Time) {
	code := k.exited(limit)
	verdict.Want(code == 0, "the collector ended with code %d after a stop by plan, want 0", code)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.calls {
		verdict.Want(!isFetch(c) || c.at.Before(stopped.Add(slack)) || k.isRepeat(c), "a new fetch came after the stop")
	}
	last := k.lastLocked(isBeat)
	verdict.Want(last.beat.GetCollector().GetEnded(), "the last heartbeat did not say ended")
	verdict.Want(len(last.beat.GetLeases()) == 0, "the last heartbeat named %d leases, want none", len(last.beat.GetLeases()))
	stopping := k.first(stopped, func(c *call) bool { return isBeat(c) && c.beat.GetCollector().GetStopping() })
	verdict.Want(stopping != nil, "no heartbeat after the stop said stopping")
}
