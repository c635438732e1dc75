package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// genRule sets or deletes a queue rule and, mostly, tells all shards.
func (m *model) genRule() step {
	if m.chance(10) {
		return m.syncSteps()[0]
	}
	patterns := []string{"*", "*.test", "*.a.test", "a.test", "c.a.test", "c.a.test:81", "*.org", "e.org", "localhost"}
	r := dispatch.QueueRule{
		Pattern: one(m, patterns...), By: "ops", Reason: one(m, "", "why"), Time: m.world.now(),
		Settings: settings(func(s *dispatch.QueueSettings) {
			s.MinDelay = one(m, 0, 0, time.Millisecond, 250*time.Millisecond, time.Second, 5*time.Second)
			s.MaxInFlight = one(m, 1, 2, 5, 100)
			s.DelayFactor = one(m, 0, 0, 0.5, 2)
			s.MaxDelay = one(m, 0, 3*time.Second)
			s.MaxBlock = one(m, dispatch.DefaultQueueSettings().MaxBlock, 15*time.Second)
		}),
	}
	if m.chance(10) {
		r.Queue = one(m, "d.test", "h.org")
	}
	change := m.ruleStep(r)
	if _, ok := m.world.rules.rules[r.Pattern]; m.chance(40) && ok {
		change = m.deleteRuleStep(r.Pattern)
	}
	if m.chance(90) {
		m.queued = append(m.queued, m.syncSteps()...)
	}
	return change
}

func (m *model) ruleStep(r dispatch.QueueRule) step {
	return step{
		name: "set rule", text: fmt.Sprintf("%+v", r),
		do: func(i *Instance) (any, error) { return i.Store.PutRule(m.ctx, r.Pattern, &r, m.world.rules.version) },
		see: func(answer any) error {
			m.world.rules.set(r)
			return m.world.ruled(as[int64](answer))
		},
	}
}

func (m *model) deleteRuleStep(pattern string) step {
	return step{
		name: "delete rule", text: pattern,
		do: func(i *Instance) (any, error) { return i.Store.PutRule(m.ctx, pattern, nil, m.world.rules.version) },
		see: func(answer any) error {
			m.world.rules.remove(pattern)
			return m.world.ruled(as[int64](answer))
		},
	}
}

func (m *model) syncSteps() []step {
	var steps []step
	for shard := range m.world.shards {
		limit := one(m, 1, 3, 100)
		steps = append(steps, step{
			name: "sync rules", text: fmt.Sprintf("shard=%d limit=%d", shard, limit),
			do: func(i *Instance) (any, error) {
				for page := ""; ; {
					next, err := i.Store.SyncRules(m.ctx, shard, page, limit)
					if page = next; err != nil || page == "" {
						return nil, err
					}
				}
			},
			see: func(any) error {
				m.world.parts[shard].unsynced = false
				return nil
			},
		})
	}
	return steps
}
