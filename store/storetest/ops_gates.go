package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// modelPools are what sources are in and claims ask for.
func modelPools() []string { return []string{pool, pool, pool, "browser"} }

// modelSource is a source that the generators choose from.
type modelSource struct {
	gate   dispatch.SourceGate
	before dispatch.SourceGate // an older version, or one of a deleted uid
	scope  string
	number int // of its uid
}

// modelCollector is a collector that the generators choose from.
type modelCollector struct {
	id     string
	number int // of its session
}

func (c *modelCollector) session() string { return "s" + strconv.Itoa(c.number) }

// makeSources makes what the generators choose from. Half of the sources have a
// limit on what is outstanding.
func (m *model) makeSources() {
	m.sessionOf, m.limited, m.clockWas = map[string]string{}, map[string]bool{}, start
	for n := range 6 {
		s := &modelSource{gate: source("s" + strconv.Itoa(n))}
		m.rename(s)
		if n < 4 {
			s.gate.Remember = remember
		}
		if n%2 == 1 {
			m.limited[s.gate.ID] = true
			s.gate.MaxOutstanding = 12
		}
		m.sources = append(m.sources, s)
	}
	for n := range 4 {
		m.collectors = append(m.collectors, &modelCollector{id: "c" + strconv.Itoa(n), number: 1})
	}
}

// rename gives a source a new uid, as when it is created again. Two sources
// share a scope.
func (m *model) rename(s *modelSource) {
	s.number++
	s.gate.UID = fmt.Sprintf("uid-%s-%d", s.gate.ID, s.number)
	s.scope = s.gate.UID
	if sharesScope(s.gate.ID) {
		s.scope = "scope:shared"
	}
}

func sharesScope(id string) bool { return id == "s4" || id == "s5" }

// shares reports whether the task's key could belong to another source too.
func (m *model) shares(t *modelTask) bool { return sharesScope(m.world.gate(t).ID) }

// pushSteps tell all shards of a gate; some are told later.
func (m *model) pushSteps(gate dispatch.SourceGate) []step {
	var steps []step
	for shard := range m.world.shards {
		steps = append(steps, m.pushStep(shard, gate))
	}
	return steps
}

func (m *model) pushStep(shard int, gate dispatch.SourceGate) step {
	return step{
		name: "push", text: fmt.Sprintf("shard=%d %+v", shard, gate),
		do: func(i *Instance) (any, error) {
			for page := ""; ; {
				next, err := i.Store.PushSource(m.ctx, shard, gate, page)
				if page = next; err != nil || page == "" {
					return nil, err
				}
			}
		},
		see: func(any) error {
			m.world.pushed(shard, gate)
			return nil
		},
	}
}

func (m *model) genPush() step {
	s := one(m, m.sources...)
	if m.chance(8) && s.before.UID == s.gate.UID {
		return m.pushStep(m.rand.IntN(m.world.shards), s.before)
	}
	s.before = s.gate
	g := &s.gate
	g.Version++
	switch m.rand.IntN(8) {
	case 0:
		g.PausedUntil = dispatch.Forever
	case 1:
		g.PausedUntil = m.world.now().Add(one(m, time.Second, time.Minute))
	case 2:
		g.Pool = one(m, modelPools()...)
	case 3:
		g.Priority = m.rand.IntN(10)
	case 4:
		g.LeaseDuration = one(m, 0, time.Second, 10*time.Second, time.Minute)
		g.MaxHold = one(m, 0, 3*time.Second, 2*time.Minute, 2*time.Hour)
		g.Remember = one(m, 0, time.Minute, remember)
	case 5:
		g.JoinedBytes = one(m, 0, 100)
		if m.limited[g.ID] {
			g.MaxOutstanding = one[int64](m, 0, 3, 12)
		}
	default:
		g.PausedUntil = time.Time{}
	}
	steps := m.pushSteps(s.gate)
	if m.chance(85) {
		m.queued = append(m.queued, steps[1:]...)
	}
	return steps[0]
}

// genDeleteSource deletes a source in all shards, ends its tasks, and makes the
// id anew.
func (m *model) genDeleteSource() step {
	s := one(m, m.sources...)
	gone := s.gate
	gone.Version++
	gone.Deleted = true
	s.before = gone
	m.world.gone[gone.UID] = true
	steps := m.pushSteps(gone)
	var why *dispatch.Gate
	if m.chance(70) {
		why = &dispatch.Gate{Kind: dispatch.GateSourceDeleted, By: "ops", Reason: one(m, "", "why"), Time: m.world.now()}
	}
	for shard := range m.world.shards {
		steps = append(steps, m.dropStep(shard, gone.UID, why))
	}
	s.gate.Version++
	m.rename(s)
	m.queued = append(m.queued, steps[1:]...)
	return steps[0]
}

// drops is what DropTasks answered, to its end.
type drops struct {
	ended  int
	leased []dispatch.TaskID
}

func (m *model) dropStep(shard int, uid string, why *dispatch.Gate) step {
	limit := one(m, 2, 20, 100)
	return step{
		name: "drop tasks", text: fmt.Sprintf("shard=%d %s limit=%d", shard, uid, limit),
		do: func(i *Instance) (any, error) {
			var all drops
			for range 10_000 {
				ended, leased, err := i.Store.DropTasks(m.ctx, shard, uid, limit, why)
				if err != nil || ended == 0 && len(leased) == 0 {
					slices.Sort(all.leased) // they come in no order
					return all, err
				}
				if ended > limit {
					return nil, broken("a drop of %d tasks ended %d", limit, ended)
				}
				all.ended += ended
				all.leased = append(all.leased, leased...)
				if err := i.Store.RequestCancel(m.ctx, leased, dispatch.CancelSourceDeleted, nil); err != nil {
					return nil, err
				}
			}
			return nil, broken("the drop of source %s does not end", uid)
		},
		see: func(answer any) error {
			all := as[drops](answer)
			return m.world.dropped(shard, uid, all.ended, all.leased, why)
		},
	}
}

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
			s.Paused, s.Deny = m.chance(8), m.chance(6)
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
				m.world.synced(shard)
				return nil
			},
		})
	}
	return steps
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
