package storetest

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
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
			m.withoutPools(before, after)
			if err := errors.Join(err, m.sameDelays(before, after)); err != nil {
				return nil, err
			}
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

// withoutPools leaves out in which pools queues stand while lanes are not placed by the pools of their sources: what is made anew
// has them there.
func (m *model) withoutPools(reads ...[]any) {
	if !slices.ContainsFunc(m.world.parts, func(p *part) bool { return p.unsynced || len(p.unplaced) > 0 }) {
		return
	}
	for _, answers := range reads {
		for _, answer := range answers {
			if queues, ok := answer.([]*dispatch.Queue); ok {
				for _, q := range queues {
					q.Pools = nil
				}
			}
		}
	}
}

// sameDelays lets a queue wait for longer after a restart, at most for its longest delay: a delay that was cut, since its rule became
// shorter or the clock was set back, counts again. It leaves out such delays, and queues that have nothing else. No queue waits for less (P6).
func (m *model) sameDelays(before, after []any) error {
	behind := m.world.now().Before(m.world.highest)
	for i := range before {
		was, ok := before[i].([]*dispatch.Queue)
		is, _ := after[i].([]*dispatch.Queue)
		if !ok {
			continue
		}
		is = m.withoutDelayed(is, was)
		if behind {
			was = m.withoutDelayed(was, is)
		}
		before[i] = was
		if after[i] = is; len(was) != len(is) {
			continue
		}
		for n := range was {
			a, b := delayOf(was[n]), delayOf(is[n])
			switch {
			case b.Before(a) && behind: // it was over before the clock was set back, when a snapshot was made
				was[n].NextGrant, was[n].Gates = is[n].NextGrant, is[n].Gates
			case b.Before(a):
				return broken("queue %s can be granted from %v on after a restart, %v before (P6)", is[n].Name, b, a)
			case b.After(a) && b.After(m.longest(is[n])):
				return broken("queue %s can be granted from %v on after a restart, %v before: later than its delay allows", is[n].Name, b, a)
			case b.After(a):
				is[n].NextGrant, is[n].Gates = was[n].NextGrant, was[n].Gates
			}
		}
	}
	return nil
}

// withoutDelayed leaves out queues that are not among others and have nothing but a delay.
func (m *model) withoutDelayed(of, others []*dispatch.Queue) []*dispatch.Queue {
	return slices.DeleteFunc(of, func(q *dispatch.Queue) bool {
		known := slices.ContainsFunc(others, func(o *dispatch.Queue) bool { return o.Name == q.Name })
		return !known && q.Waiting+q.Leased == 0 && q.BlockStep == 0 && len(q.Gates) == 1 && !delayOf(q).After(m.longest(q))
	})
}

// longest is until when a queue may wait that was granted from now.
func (m *model) longest(q *dispatch.Queue) time.Time {
	paced := q.Settings.Paced(q.QueueDelay)
	limit := m.world.millisecondEnd().Add(max(paced.MinDelay, paced.MaxDelay))
	if paced.DelayFactor > 0 && paced.MaxDelay == 0 {
		limit = limit.Add(bounds.MaxMinDelay)
	}
	return limit
}

// delayOf is when the delay of a queue ends.
func delayOf(q *dispatch.Queue) (end time.Time) {
	for _, gate := range q.Gates {
		if gate.Kind == dispatch.GateMinDelay {
			end = gate.Until
		}
	}
	return end
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
