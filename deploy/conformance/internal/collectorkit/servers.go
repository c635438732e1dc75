package collectorkit

import "time"

// serverScenarios are about connections: dispatchers that end or freeze, TLS, tokens.
func serverScenarios() []Scenario {
	return []Scenario{
		{
			Name: "servers/killed", Rule: "3: all dispatchers are equal: go on at another",
			script: func(k *kit) {
				ids := k.add(many(4, work{WorkMS: 5000, lease: 3 * time.Second})...)
				k.start()
				k.started(ids...)
				k.servers[0].kill()
				killed := time.Now()
				more := k.add(work{})
				k.settled(10*time.Second, ids...)
				k.settled(soon, more...)
				k.check(func() {
					want(k.first(killed, at(k.servers[1], isFetch)) != nil, "no fetch came to the other dispatcher")
				})
			},
		},
	}
}
