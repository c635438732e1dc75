package storetest

import (
	"github.com/waggle-crawl/waggle/dispatch"
)

// genRestart ends the first store and opens it again. Collectors beat before and after, since a store may keep less
// exactly when it saw them; a sweep follows, so that what came before is no outage.
func (m *model) genRestart() step {
	if m.instances[0].Restart == nil || len(m.instances) > 1 {
		return m.genAdvance()
	}
	restart := step{
		name: "restart",
		do:   func(i *Instance) (any, error) { return nil, i.Restart() },
		see: func(any) error {
			m.world.restarted()
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

// restarted is the world after a restart of the store.
func (w *world) restarted() {
	clear(w.leaders)
	longest := w.now().Add(dispatch.OutageGrace)
	for shard, p := range w.parts {
		stands, sure := w.standing(shard)
		if stands {
			p.graceUntil = longest
		} else if !sure {
			p.vagueGrace = longest
		}
	}
}
