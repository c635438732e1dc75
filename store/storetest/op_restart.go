package storetest

import (
	"errors"
	"maps"
	"reflect"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// genRestart ends the store and opens it again, if it can be restarted. Collectors beat before and after, since a store may keep less
// exactly when it saw them; a sweep follows, so that what came before is no outage.
func (m *model) genRestart() step {
	restart := step{
		name: "restart",
		do: func(i *Instance) (any, error) {
			if i.Copied {
				return nil, i.Restart()
			}
			before, err := m.readAll(i)
			if err := errors.Join(err, i.Restart()); err != nil {
				return nil, err
			}
			after, err := m.readAll(i)
			if d := diff(reflect.ValueOf(before), reflect.ValueOf(after), "read"); err == nil && d != "" {
				err = broken("a restart changes what is read (before, after): %s", d)
			}
			return nil, err
		},
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

// readAll reads all that a store keeps.
func (m *model) readAll(i *Instance) (answers []any, err error) {
	for _, s := range m.reads() {
		answer, readErr := s.do(i)
		answers, err = append(answers, answer), errors.Join(err, readErr)
	}
	return answers, err
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
	for _, p := range w.parts {
		p.lastSweep = time.Time{}
	}
}

// copied is the world after a copy of the store. What one shard knew of a source all know. Sessions that were replaced are
// refused by the home shards of their collectors only. A lock that was deleted is there again, unless a renewal has met
// that; of those that were set by hand only waiting tasks keep theirs. Leases have the longest grace.
func (w *world) copied() {
	newest := map[string]dispatch.SourceGate{}
	for _, p := range w.parts {
		for uid, gate := range p.gates {
			if gate.Version >= newest[uid].Version {
				newest[uid] = gate
			}
		}
	}
	for _, p := range w.parts {
		p.gates, p.unsynced = maps.Clone(newest), true
		p.graceEnds = w.now().Add(dispatch.OutageGrace)
		clear(p.keeps)
	}
	for collector, session := range w.current {
		w.parts[w.shardOf(collector)].keeps[collector] = session
	}
	for _, t := range w.order {
		if !t.State.Waiting() {
			t.lockUntil = time.Time{}
		}
	}
}
