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

// followed is a step with others right after it, which are made when it has been seen.
func (m *model) followed(s step, then func() []step) step {
	see := s.see
	s.see = func(answer any) error {
		if see != nil {
			if err := see(answer); err != nil {
				return err
			}
		}
		m.queued = append(m.queued, then()...)
		return nil
	}
	return s
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
		wants := []dispatch.Want{{Poll: poll, Max: 2, MaxBytes: manyBytes, Noted: true}}
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
