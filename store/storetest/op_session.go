package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func (m *model) genPoll() step {
	c := one(m, m.collectors...)
	token, call := m.token()
	p := dispatch.Poll{Collector: c.id, Session: c.session(), ClientToken: token, Call: call}
	if m.chance(10) && c.number > 1 {
		p.Session = "s" + strconv.Itoa(1+m.rand.IntN(c.number-1))
	}
	if len(m.recent) > 0 && m.chance(60) {
		s := m.repeated(m.recent[m.rand.IntN(len(m.recent))].shard)
		if m.config.Shards == 1 || m.world.remembers(s.at) {
			p.Collector, p.ClientToken = s.collector, s.token
			p.Session = m.collector(s.collector).session()
		}
	}
	return m.pollStep(p)
}

func (m *model) pollStep(p dispatch.Poll) step {
	return step{
		name: "poll", text: fmt.Sprint(p),
		do:  func(i *Instance) (any, error) { return i.Store.BeginPoll(m.ctx, p) },
		see: func(answer any) error { return m.world.polled(p, as[dispatch.PollState](answer)) },
	}
}

func (m *model) genBeats() step {
	var beats []dispatch.CollectorInfo
	for range one(m, 1, 3) {
		c := one(m, m.collectors...)
		info := dispatch.CollectorInfo{
			ID: c.id, Session: c.session(), Version: "1", Hostname: "h", Labels: map[string]string{"a": "b"},
			Pools: []string{pool}, Slots: m.rand.IntN(5), StuckSlots: m.rand.IntN(3), Problem: "p", ProblemDuration: time.Second, Client: "waggle-go/0.1.0",
		}
		if m.chance(5) && c.number > 1 {
			info.Session = "s" + strconv.Itoa(c.number-1)
		}
		if info.Ended = m.chance(10); info.Ended && m.chance(50) {
			info.Session = "s" + strconv.Itoa(c.number) + "x"
		}
		beats = append(beats, info)
	}
	return m.beatStep(beats)
}

func (m *model) beatStep(beats []dispatch.CollectorInfo) step {
	return step{
		name: "beat", text: fmt.Sprint(beats),
		do: func(i *Instance) (any, error) {
			states := make([]dispatch.PollState, len(beats))
			for n, beat := range beats {
				var err error
				if states[n], err = i.Store.Beat(m.ctx, beat); err != nil {
					return nil, err
				}
			}
			return states, nil
		},
		see: func(answer any) error {
			for n, got := range as[[]dispatch.PollState](answer) {
				m.world.met(beats[n].ID, beats[n].Session, got)
			}
			return nil
		},
	}
}

// genNewSession begins a new session of a collector and, mostly, ends the older
// ones in all shards.
func (m *model) genNewSession() step {
	c := one(m, m.collectors...)
	c.number++
	token, call := m.token()
	if m.chance(94) {
		for shard := range m.world.shards {
			m.queued = append(m.queued, m.endSessionStep(shard, c.id, c.session()))
		}
	}
	return m.pollStep(dispatch.Poll{Collector: c.id, Session: c.session(), ClientToken: token, Call: call})
}

func (m *model) endSessionStep(shard int, collector, keep string) step {
	const limit = 100 // more than one holds, since which ones a page has is the store's own
	return step{
		name: "end session", text: fmt.Sprintf("shard=%d %s keep=%s limit=%d", shard, collector, keep, limit),
		do: func(i *Instance) (any, error) {
			held, err := i.Store.EndSession(m.ctx, shard, collector, keep, limit)
			slices.SortFunc(held, func(a, b *dispatch.Task) int { return cmp.Compare(a.ID, b.ID) })
			return held, err
		},
		see: func(answer any) error {
			m.world.parts[shard].keeps[collector] = keep
			m.world.lasting = append(m.world.lasting, m.world.now().Add(dispatch.CollectorMemory))
			tasks := as[[]*dispatch.Task](answer)
			if len(tasks) == 0 {
				return nil
			}
			m.world.count("session ended a lease")
			var transitions []dispatch.Transition
			var renewals []dispatch.Renewal
			for _, task := range tasks {
				transitions = append(transitions, replaced(task))
				renewals = append(renewals, dispatch.Renewal{ID: task.ID, Token: task.Lease.Token})
			}
			next := []step{m.applyStep(transitions), m.endSessionStep(shard, collector, keep)}
			if m.chance(30) {
				next = append(next, m.renewStep(renewals))
			}
			m.queued = append(next, m.queued...)
			return nil
		},
	}
}

func (m *model) genForget() step {
	before := m.world.now().Add(-time.Hour)
	return step{
		name: "forget collectors",
		do:   func(i *Instance) (any, error) { return i.Store.Forget(m.ctx, nil, before, 100) },
	}
}
