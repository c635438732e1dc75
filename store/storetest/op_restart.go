package storetest

import (
	"maps"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// genRestart ends the store and opens it again, if it can be restarted. Collectors beat before and after, since a store may keep less
// exactly when it saw them; a sweep follows, so that what came before is no outage.
func (m *model) genRestart() step {
	restart := step{
		name: "restart",
		do:   func(i *Instance) (any, error) { return nil, i.Restart() },
		see: func(any) error {
			m.world.restarted()
			if m.instances[0].Copied {
				m.world.copied()
			}
			return nil
		},
	}
	steps := []step{restart, m.beatAll()}
	for shard := range m.world.shards {
		steps = append(steps, m.sweepStep(shard, 80))
	}
	return m.followed(m.beatAll(), func() []step { return steps })
}

// beatAll is a beat of each collector's session.
func (m *model) beatAll() step {
	var beats []dispatch.CollectorInfo
	for _, c := range m.collectors {
		beats = append(beats, dispatch.CollectorInfo{ID: c.id, Session: c.session()})
	}
	return m.beatStep(beats)
}

// restarted is the world after a restart of the store, which took no time.
func (w *world) restarted() {
	clear(w.leaders)
	for _, p := range w.parts {
		p.lastSweep = time.Time{}
	}
}

// copied is the world after a copy of the store. What one shard knew of a source or of client tokens all know. No grant is
// given back. Only the home shards of collectors refuse sessions that were replaced. A lock that was deleted is there
// again, unless a renewal has met that; of those that were set by hand only waiting tasks keep theirs. Bindings and the audit log
// are not copied. Leases have the longest grace.
func (w *world) copied() {
	clear(w.bindings)
	w.audit = nil
	newest, used := make(map[string]dispatch.SourceGate), make(map[usedToken]bool)
	fence := uint64(0)
	for _, p := range w.parts {
		fence = max(fence, p.lastFence)
		maps.Copy(used, p.used)
		for uid, gate := range p.gates {
			if gate.Version >= newest[uid].Version {
				newest[uid] = gate
			}
		}
	}
	for shard, p := range w.parts {
		p.lastFence, p.unsynced = fence, true
		p.gates, p.used = maps.Clone(newest), maps.Clone(used)
		clear(p.deletions)
		for _, note := range p.notes {
			note.calls = nil
		}
		p.graceUntil = time.Time{}
		longest := w.now().Add(dispatch.OutageGrace)
		if stands, sure := w.standing(shard); stands {
			p.graceUntil = longest
		} else if !sure {
			p.vagueGrace = longest
		}
	}
	for _, p := range w.parts {
		clear(p.keeps)
	}
	for id, session := range w.sessions {
		if len(session.replaced) > 0 {
			w.parts[dispatch.ShardOf(dispatch.SlotOf(id), w.shards)].keeps[id] = keptSession{session.current, w.now().Add(dispatch.CollectorMemory)}
		}
	}
	for _, t := range w.order {
		if t.State == dispatch.StateLeased && !t.ended {
			t.lockGone = false
		}
		if t.foreignUntil = (time.Time{}); !t.State.Waiting() {
			t.orphanUntil = time.Time{}
		}
	}
}
