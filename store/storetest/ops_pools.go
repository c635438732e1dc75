package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// genPool pauses a pool, resumes it, or lists the pools.
func (m *model) genPool() step {
	name := one(m, modelPools()...)
	switch m.rand.IntN(4) {
	case 0:
		return m.listPools()
	case 1:
		gate := dispatch.Gate{Kind: dispatch.GatePoolPaused, By: "ops", Reason: "we move", Time: m.world.now()}
		if m.chance(80) {
			gate.Until = m.world.now().Add(one(m, time.Second, 20*time.Second, time.Minute))
		}
		return m.pausePoolStep(name, gate)
	default:
		return m.resumePoolStep(name)
	}
}

func (m *model) pausePoolStep(name string, gate dispatch.Gate) step {
	return step{
		name: "pause pool", text: fmt.Sprint(name, " ", clockText(gate.Until)),
		do: func(i *Instance) (any, error) { return nil, i.Store.PausePool(m.ctx, name, gate) },
		see: func(any) error {
			m.world.paused[name] = &gate
			return nil
		},
	}
}

func (m *model) resumePoolStep(name string) step {
	return step{
		name: "resume pool", text: name,
		do: func(i *Instance) (any, error) { return nil, i.Store.ResumePool(m.ctx, name) },
		see: func(any) error {
			delete(m.world.paused, name)
			return nil
		},
	}
}

func (m *model) listPools() step {
	return step{name: "list pools", do: func(i *Instance) (any, error) { return i.Store.ListPools(m.ctx, "", 100) }}
}
