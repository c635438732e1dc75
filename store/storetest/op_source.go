package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// makeSources makes what the generators choose from. Half of the sources have a
// limit on what is outstanding.
func (m *model) makeSources() {
	m.limited, m.clockWas = map[string]bool{}, start
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
	s.before, s.until = s.gate, time.Time{}
	g := &s.gate
	g.Version++
	switch m.rand.IntN(8) {
	case 0:
		g.HeldUntil = dispatch.Forever
	case 1:
		g.HeldUntil = m.world.now().Add(one(m, time.Second, time.Minute))
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
		g.HeldUntil = time.Time{}
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
	s.before, s.until = gone, m.world.now().Add(dispatch.CanceledMemory)
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
			m.world.dropped(shard, uid, as[drops](answer).leased)
			return nil
		},
	}
}

// genSourceRecord works on registered sources, of ids that no task has.
func (m *model) genSourceRecord() step {
	id := one(m, "r.a", "r.b", "r.c")
	held := m.world.sources[id]
	s := registered(id)
	s.Spec.Priority = m.rand.IntN(10)
	s.UID += strconv.Itoa(m.steps)
	version, uid := int64(1), s.UID
	if held != nil {
		s.UID, uid, version = held.UID, held.UID, held.Version
		s.Version = version + 1
		s.Deleted = m.chance(40)
		s.Applied = held.Applied
		if s.Deleted && m.chance(50) || held.Gone() && m.chance(30) {
			s.Deleted, s.Applied = true, s.Version
		} else if held.Gone() {
			s.Deleted, s.Applied = false, 0
			s.UID += "+"
		}
	}
	if m.chance(50) {
		s.Holds = nil
	}
	switch one(m, 0, 1, 1, 2, 3) {
	case 0:
		s.Version, s.Applied, s.Deleted = 1, 0, false
		return m.sourceStep("create source", id, func(i *Instance) error { return i.Store.PutSource(m.ctx, s, 0) }, func() {
			if held == nil { // else it is a repeat
				m.world.sources[id] = s
			}
		})
	case 1:
		if m.chance(20) {
			version += 5
		}
		return m.sourceStep("update source", id, func(i *Instance) error { return i.Store.PutSource(m.ctx, s, version) }, func() {
			m.world.sources[id] = s
			switch {
			case s.Gone():
				m.world.count("source that is gone")
			case held.UID != s.UID:
				m.world.count("source created under a gone id")
			}
		})
	case 2:
		return step{
			name: "mark applied", text: id,
			do: func(i *Instance) (any, error) { return i.Store.MarkApplied(m.ctx, id, uid, version, nil) },
			see: func(answer any) error {
				switch applied := as[bool](answer); {
				case held == nil || !applied:
				case held.Deleted:
					delete(m.world.sources, id)
				default:
					held.Applied = version
				}
				return nil
			},
		}
	default:
		return m.listSources()
	}
}

// sourceStep is a change of a source that may be refused.
func (m *model) sourceStep(name, id string, do func(*Instance) error, took func()) step {
	return step{
		name: name, text: id,
		do: func(i *Instance) (any, error) {
			err := do(i)
			for _, refusal := range []error{dispatch.ErrSourceExists, dispatch.ErrSourceNotFound, dispatch.ErrEtagMismatch} {
				if errors.Is(err, refusal) {
					return refusal.Error(), nil
				}
			}
			return "", err
		},
		see: func(answer any) error {
			if refusal := as[string](answer); refusal != "" {
				m.world.count(name + " refused: " + refusal)
				return nil
			}
			took()
			return nil
		},
	}
}

// known is all that a store says of sources.
type known struct {
	Sources, Pending, Held []*dispatch.Source
}

func (m *model) listSources() step {
	return step{
		name: "list sources",
		do: func(i *Instance) (any, error) {
			list, _, err := i.Store.ListSources(m.ctx, dispatch.SourceFilter{Prefix: "r."}, "", 10)
			if err != nil {
				return nil, err
			}
			pending, _, err := i.Store.ListSources(m.ctx, dispatch.SourceFilter{Pending: true}, "", 10)
			if err != nil {
				return nil, err
			}
			held, _, err := i.Store.ListSources(m.ctx, dispatch.SourceFilter{Held: true}, "", 10)
			return known{list, pending, held}, err
		},
	}
}
