package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// gate is one that an operator may set now.
func (m *model) gate(lengths ...time.Duration) dispatch.Gate {
	gate := dispatch.Gate{By: "ops", Reason: "we move", Time: m.world.now()}
	if m.chance(80) {
		gate.Until = m.world.now().Add(one(m, lengths...))
	}
	return gate
}

// holdStep sets a hold.
func (m *model) holdStep(target dispatch.HoldTarget, name dispatch.HoldName, gate dispatch.Gate) step {
	hold := dispatch.Hold{Target: target, Name: name, Gate: gate}
	return step{
		name: "set hold", text: fmt.Sprintf("%q %s", hold.Key(), clockText(gate.Until)),
		do:  func(i *Instance) (any, error) { return nil, i.Store.SetHold(m.ctx, hold) },
		see: func(any) error { return m.world.setHold(hold) },
	}
}

// liftStep lifts a hold.
func (m *model) liftStep(target dispatch.HoldTarget, name dispatch.HoldName) step {
	hold := dispatch.Hold{Target: target, Name: name}
	return step{
		name: "lift hold", text: fmt.Sprintf("%q", hold.Key()),
		do:  func(i *Instance) (any, error) { return i.Store.LiftHold(m.ctx, target, name) },
		see: func(answer any) error { return m.world.liftHold(&hold, as[bool](answer)) },
	}
}

// genHold holds a pool or collectors, lets them go, or reads the holds and the pools.
func (m *model) genHold() step {
	target := one(m, dispatch.HoldTarget{Collector: "c1"}, dispatch.HoldTarget{Collector: "c2"},
		dispatch.HoldTarget{Labels: map[string]string{"region": "eu"}}, dispatch.HoldTarget{Labels: map[string]string{"region": "eu", "zone": "a"}})
	pool := m.chance(50)
	if pool {
		target = dispatch.HoldTarget{Pool: one(m, modelPools()...)}
	}
	switch n := m.rand.IntN(4); {
	case n == 0 && pool:
		return step{name: "list pools", do: func(i *Instance) (any, error) { return i.Store.ListPools(m.ctx, "", "", 100) }}
	case n == 0:
		return m.readHolds()
	case n == 1:
		return m.holdStep(target, dispatch.HoldDefault, m.gate(time.Second, 20*time.Second, time.Minute))
	default:
		return m.liftStep(target, dispatch.HoldDefault)
	}
}

func (m *model) readHolds() step {
	return step{
		name: "read holds",
		do:   func(i *Instance) (any, error) { return i.Store.Holds(m.ctx) },
		see: func(answer any) error {
			n := 0
			for _, hold := range m.world.holds {
				if hold.Target.Queue == "" && stands(&hold.Gate, m.world.now()) {
					n++
				}
			}
			if got := as[[]dispatch.Hold](answer); len(got) != n {
				return broken("%d holds are read, want %d", len(got), n)
			}
			return nil
		},
	}
}

// genQueueHold blocks or pauses a queue, or lets it go.
func (m *model) genQueueHold() step {
	target := dispatch.HoldTarget{Queue: one(m, modelQueues()...)}
	name := one(m, dispatch.HoldBlock, dispatch.HoldBlock, dispatch.HoldPause)
	switch {
	case m.chance(10):
		target.Queue = "unknown.test"
		return m.liftStep(target, one(m, name, dispatch.HoldWaggle))
	case m.chance(20):
		return m.liftStep(target, dispatch.HoldWaggle)
	case m.chance(40):
		return m.liftStep(target, name)
	}
	return m.holdStep(target, name, m.gate(time.Second, 20*time.Second, time.Hour))
}
