package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// genHold sets and lifts holds, a few at a time, or reads them or the pools.
func (m *model) genHold() step {
	switch m.rand.IntN(12) {
	case 0:
		return step{name: "list pools", do: func(i *Instance) (any, error) { return i.Store.ListPools(m.ctx, "", "", 100) }}
	case 1:
		return m.readHolds(one(m, 0, m.world.holds.version))
	case 2:
		return m.staleHoldsStep()
	}
	var set []dispatch.Hold
	lift := []string{"no key"}
	for range one(m, 1, 1, 3) {
		hold, standing := m.hold(), slices.Sorted(maps.Keys(m.world.holds.holds))
		switch {
		case m.chance(50):
			set = append(set, hold)
		case len(standing) > 0 && m.chance(80):
			lift = append(lift, one(m, standing...))
		default:
			lift = append(lift, hold.Key())
		}
	}
	for _, hold := range set { // what is named twice is set
		lift = slices.DeleteFunc(lift, func(key string) bool { return key == hold.Key() })
	}
	if m.chance(10) {
		lift = slices.Sorted(maps.Keys(m.world.holds.holds))
		set = nil
	}
	if m.chance(90) {
		m.queued = append(m.queued, m.syncSteps()...)
	}
	return m.holdsStep(set, lift...)
}

// hold is one that an operator may set now.
func (m *model) hold() dispatch.Hold {
	queue := one(m, append(modelQueues(), "*.test", "*.a.test", "*.org", "*.e.org", "unknown.test")...)
	target := one(m,
		dispatch.HoldTarget{Everything: true}, dispatch.HoldTarget{Pool: one(m, modelPools()...)},
		dispatch.HoldTarget{Collector: "c1"}, dispatch.HoldTarget{Labels: map[string]string{"zone": "a", "region": "eu"}},
	)
	if m.chance(75) {
		target = dispatch.HoldTarget{Queue: queue}
	}
	if standing := slices.Sorted(maps.Keys(m.world.holds.holds)); len(standing) > 0 && m.chance(30) {
		target = m.world.holds.holds[one(m, standing...)].Target // which another one may be on already
	}
	hold := dispatch.Hold{
		Target: target, Name: one(m, dispatch.HoldDefault, dispatch.HoldDefault, "incident-1"),
		Effect: one(m, dispatch.StopGrants, dispatch.EndLeases), By: "ops", Reason: one(m, "", "we move"), Created: m.world.now(),
	}
	if m.chance(80) {
		hold.Until = m.world.now().Add(one(m, time.Second, 20*time.Second, time.Hour))
	}
	return hold
}

// holdsStep sets and lifts holds.
func (m *model) holdsStep(set []dispatch.Hold, lift ...string) step {
	change := m.world.holds.change(m.world.now(), set, lift...)
	return step{
		name: "put holds", text: fmt.Sprintf("queues=%v lift=%q set=%+v", change.Queues, lift, set),
		do: func(i *Instance) (any, error) { return i.Store.PutHolds(m.ctx, change, m.world.holds.version) },
		see: func(answer any) error {
			for _, hold := range change.Set {
				switch {
				case strings.HasPrefix(hold.Target.Queue, "*."):
					m.world.count("set hold of a pattern")
				case hold.Target.Queue != "":
					m.world.count("set hold of a queue")
				default:
					m.world.count("set hold of no queue")
				}
			}
			for _, key := range change.Lift {
				if _, ok := m.world.holds.holds[key]; ok {
					m.world.count("lift hold")
				}
			}
			for _, p := range m.world.parts {
				p.unsynced = true
			}
			return m.world.holds.put(m.world.now(), change, as[int64](answer))
		},
	}
}

// staleHoldsStep lifts all holds of another version than stands.
func (m *model) staleHoldsStep() step {
	change := m.world.holds.change(m.world.now(), nil, slices.Sorted(maps.Keys(m.world.holds.holds))...)
	version := m.world.holds.version + one[int64](m, -1, 1)
	return step{
		name: "put holds of an older version",
		do: func(i *Instance) (any, error) {
			got, err := i.Store.PutHolds(m.ctx, change, version)
			if err == nil {
				return nil, broken("a change of version %d of the holds gave %d, though they had %d", version, got, m.world.holds.version)
			}
			if errors.Is(err, dispatch.ErrEtagMismatch) {
				err = nil
			}
			return nil, err
		},
	}
}

// readHolds reads the holds, of whoever has a version of them.
func (m *model) readHolds(have int64) step {
	return step{
		name: "read holds", text: fmt.Sprint("have=", have),
		do: func(i *Instance) (any, error) {
			holds, version, now, err := i.Store.Holds(m.ctx, have)
			if err == nil && (version != m.world.holds.version || !now.Equal(m.world.now())) {
				err = broken("holds are read in version %d at %v, want %d at %v", version, now, m.world.holds.version, m.world.now())
			}
			slices.SortFunc(holds, func(a, b dispatch.Hold) int { return strings.Compare(a.Key(), b.Key()) })
			return holds, err
		},
	}
}

// genUnblock opens the automatic block of a queue.
func (m *model) genUnblock() step {
	return m.unblockStep(one(m, append(modelQueues(), "unknown.test")...))
}

func (m *model) unblockStep(queue string) step {
	return step{
		name: "unblock", text: queue,
		do: func(i *Instance) (any, error) { return i.Store.Unblock(m.ctx, queue) },
		see: func(answer any) error {
			if as[bool](answer) {
				m.world.count("unblock of a blocked queue")
			}
			return nil
		},
	}
}
