package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// jumpToStep moves the clock on by about d, to just before the begin of a step of
// [dispatch.TokenStep]. What follows is a fetch right after that begin, which mostly
// settles what it is granted, a step of the clock back over it, and the fetch once more.
func (m *model) jumpToStep(d time.Duration) step {
	now := m.world.now()
	before := now.Add(d).Truncate(dispatch.TokenMemory).Add(-time.Millisecond)
	return m.followed(m.advanceStep(before.Sub(now)), func() []step {
		next := []step{m.advanceStep(2 * time.Millisecond)}
		if m.chance(50) {
			for shard := range m.world.shards {
				next = append(next, m.sweepStep(shard, 80))
			}
		}
		last := len(next) - 1
		next[last] = m.followed(next[last], m.fetchAndStepBack)
		return next
	})
}

// fetchAndStepBack polls and claims as a dispatcher does, where something waits, settles
// that, steps the clock back and repeats both.
func (m *model) fetchAndStepBack() []step {
	waiting := m.waiting()
	if len(waiting) == 0 {
		return nil
	}
	t, c := one(m, waiting...), one(m, m.collectors...)
	token, call := m.token()
	poll := dispatch.Poll{Collector: c.id, Session: c.session(), ClientToken: token, Call: call}
	claim := func() step {
		wants := []dispatch.Want{{Poll: poll, Max: 2, MaxBytes: manyBytes}}
		return m.claimStep(t.shard, m.world.gate(t).Pool, wants, fmt.Sprintf("shard=%d %v noted", t.shard, poll))
	}
	back := func() []step {
		return []step{m.followed(m.stepBack(3*time.Millisecond), func() []step {
			_, poll.Call = m.token()
			return []step{m.pollStep(poll), claim()}
		})}
	}
	granted := func() step {
		return m.followed(claim(), func() []step {
			note := m.world.parts[t.shard].notes[[2]string{c.id, token}]
			if note == nil || m.chance(40) {
				return back()
			}
			var ends []dispatch.Transition
			for _, g := range note.grants {
				ends = append(ends, m.endingKind(&m.world.task(g.Task.ID).Task))
			}
			return []step{m.followed(m.applyStep(ends), back)}
		})
	}
	return []step{m.followed(m.pollStep(poll), func() []step {
		if _, noted := m.world.polls[token]; !noted {
			return nil // its session was replaced: a dispatcher claims nothing for it
		}
		return []step{granted()}
	})}
}

// genAdvance moves the clock on, mostly a little. Before a longer time it
// mostly sweeps, as an owner does, so that no outage is seen.
func (m *model) genAdvance() step {
	d := one(m,
		300*time.Microsecond, time.Millisecond, time.Millisecond, 10*time.Millisecond, 50*time.Millisecond,
		100*time.Millisecond, 500*time.Millisecond, time.Second, 2*time.Second,
	)
	if m.chance(3) {
		d = one(m, 10*time.Second, 40*time.Second, 90*time.Second)
	}
	if m.steps-m.jumped > 1200 {
		m.jumped = m.steps
		d = one(m, time.Hour, 3*time.Hour, 30*time.Hour)
		if m.chance(40) {
			return m.jumpToStep(d)
		}
		m.back = one(m, 0, 10*time.Minute, 10*time.Minute, time.Hour)
	}
	if m.chance(85) {
		return m.sweptAdvance(d)
	}
	return m.advanceStep(d)
}

// sweptAdvance queues an advance of d with sweeps at least each four seconds.
func (m *model) sweptAdvance(d time.Duration) step {
	var steps []step
	oldest := m.world.now()
	for _, p := range m.world.parts {
		if p.lastSweep.Before(oldest) {
			oldest = p.lastSweep
		}
	}
	since := m.world.now().Sub(oldest)
	for d > 0 {
		part := min(d, 4*time.Second)
		if d > 10*time.Minute {
			part = d // an outage after all
		}
		if since+part > dispatch.OutageAfter {
			for shard := range m.world.shards {
				steps = append(steps, m.sweepStep(shard, 80))
			}
			since = 0
		}
		steps = append(steps, m.advanceStep(part))
		since += part
		d -= part
	}
	m.queued = append(m.queued, steps[1:]...)
	return steps[0]
}

func (m *model) advanceStep(d time.Duration) step {
	return step{
		name: "advance", text: d.String(),
		do: func(i *Instance) (any, error) {
			from := m.clockWas
			i.Clock.Set(from.Add(d))
			return nil, nil
		},
		see: func(any) error {
			from := m.clockWas
			m.clockWas = from.Add(d)
			m.world.moved(from)
			return nil
		},
	}
}

// genClockBack steps the clock back, where that is defined.
func (m *model) genClockBack() step {
	return m.stepBack(one(m, time.Millisecond, 20*time.Millisecond, time.Second, 10*time.Second))
}

func (m *model) stepBack(d time.Duration) step {
	to := m.world.now().Add(-d)
	if !m.world.quiet(to.Add(-time.Millisecond)) || d >= time.Minute && m.world.cutsLocks(to) {
		return m.advanceStep(time.Millisecond)
	}
	back := m.advanceStep(-d)
	back.name = "step back"
	if d >= time.Minute {
		back.name = "step back far"
	}
	return back
}
