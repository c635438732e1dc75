package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// genDrain drains collectors, lets them go, or reads the drains.
func (m *model) genDrain() step {
	drain := one(m, dispatch.Drain{Collector: "c1"}, dispatch.Drain{Collector: "c2"},
		dispatch.Drain{Labels: map[string]string{"region": "eu"}}, dispatch.Drain{Labels: map[string]string{"region": "eu", "zone": "a"}})
	switch m.rand.IntN(4) {
	case 0:
		return m.readDrains()
	case 1:
		return m.deleteDrainStep(&drain)
	default:
		drain.Gate = dispatch.Gate{Kind: dispatch.GateDrained, By: "ops", Reason: "we move", Time: m.world.now()}
		if m.chance(80) {
			drain.Until = m.world.now().Add(one(m, time.Second, 20*time.Second, time.Minute))
		}
		return m.setDrainStep(drain)
	}
}

func (m *model) setDrainStep(drain dispatch.Drain) step {
	return step{
		name: "set drain", text: fmt.Sprintf("%q %s", drain.Name(), clockText(drain.Until)),
		do: func(i *Instance) (any, error) { return nil, i.Store.SetDrain(m.ctx, drain) },
		see: func(any) error {
			m.world.drains[drain.Name()] = drain.Gate
			return nil
		},
	}
}

func (m *model) deleteDrainStep(drain *dispatch.Drain) step {
	name := drain.Name()
	return step{
		name: "delete drain", text: fmt.Sprintf("%q", name),
		do: func(i *Instance) (any, error) { return i.Store.DeleteDrain(m.ctx, name) },
		see: func(answer any) error {
			gate, known := m.world.drains[name]
			delete(m.world.drains, name)
			if want := known && holds(&gate, m.world.now()); answer.(bool) != want {
				return broken("drain %q is said to have held: %v, want %v", name, answer, want)
			}
			return nil
		},
	}
}

func (m *model) readDrains() step {
	return step{
		name: "read drains",
		do:   func(i *Instance) (any, error) { return i.Store.Drains(m.ctx) },
		see: func(answer any) error {
			n := 0
			for _, gate := range m.world.drains {
				if holds(&gate, m.world.now()) {
					n++
				}
			}
			if got := answer.([]dispatch.Drain); len(got) != n {
				return broken("%d drains are read, want %d", len(got), n)
			}
			return nil
		},
	}
}
