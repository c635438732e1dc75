package collectorkit

import "time"

// stopScenarios are about the end of a collector by plan.
func stopScenarios() []Scenario {
	return []Scenario{
		{
			Name: "stop/running", Rule: "19: on SIGTERM fetch no more, finish, keep beating, then send ended",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 3000, lease: 3 * time.Second})
				k.start()
				k.started(ids...)
				stopped := time.Now()
				k.stop()
				k.settled(5*time.Second, ids...)
				code := k.exited(soon)
				want(code == 0, "the collector ended with code %d after a stop by plan, want 0", code)
				want(k.outcome(ids[0]).GetSucceeded() != nil, "the running task was not finished")
				n := k.count(stopped.Add(slack), time.Now(), func(c *call) bool { return isFetch(c) && !k.isRepeat(c) })
				want(n == 0, "%d new fetches came after the stop", n)
				k.check(func() {
					want(k.first(stopped, func(c *call) bool { return isBeat(c) && c.beat.GetCollector().GetStopping() }) != nil, "no beat said stopping")
					want(k.first(stopped, func(c *call) bool { return isBeat(c) && c.beat.GetCollector().GetEnded() }) != nil, "no beat said ended")
				})
			},
		},
	}
}
