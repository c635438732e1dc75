package storetest

import (
	"cmp"
	"errors"
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
		if m.config.Shards == 1 || m.world.pollable(s.at) {
			p.Collector, p.ClientToken = s.collector, s.token
			p.Session = m.collector(s.collector).session()
		}
	}
	return m.pollStep(p)
}

func (m *model) collector(id string) *modelCollector {
	return m.collectors[slices.IndexFunc(m.collectors, func(c *modelCollector) bool { return c.id == id })]
}

func (m *model) pollStep(p dispatch.Poll) step {
	polls := []dispatch.Poll{p}
	return step{
		name: "poll", text: fmt.Sprint(p),
		do:  func(i *Instance) (any, error) { return i.Store.BeginPolls(m.ctx, polls) },
		see: func(answer any) error { return m.world.polled(polls, as[[]dispatch.PollState](answer)) },
	}
}

func (m *model) genBeats() step {
	var beats []dispatch.CollectorInfo
	for range one(m, 1, 3) {
		c := one(m, m.collectors...)
		info := dispatch.CollectorInfo{
			ID: c.id, Session: c.session(), Version: "1", Hostname: "h", Labels: map[string]string{"a": "b"},
			Pools: []string{pool}, Slots: m.rand.IntN(5),
		}
		if m.chance(5) && c.number > 1 {
			info.Session = "s" + strconv.Itoa(c.number-1)
		}
		if info.Ended = m.chance(10); info.Ended && m.chance(50) {
			info.Session = "s" + strconv.Itoa(c.number) + "x"
		}
		beats = append(beats, info)
	}
	return step{
		name: "beat", text: fmt.Sprint(beats),
		do:  func(i *Instance) (any, error) { return i.Store.Beats(m.ctx, beats) },
		see: func(answer any) error { return m.world.beaten(beats, as[[]dispatch.PollState](answer)) },
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
			tasks := as[[]*dispatch.Task](answer)
			err := m.world.sessionEnded(shard, collector, keep, limit, tasks, func(t dispatch.LeaseToken) string {
				return m.sessionOf[t.ClientToken]
			})
			if err != nil || len(tasks) == 0 {
				return err
			}
			var transitions []dispatch.Transition
			for _, task := range tasks {
				transitions = append(transitions, replaced(task))
			}
			m.queued = append([]step{m.applyStep(transitions), m.endSessionStep(shard, collector, keep)}, m.queued...)
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
	version := int64(1)
	if held != nil {
		s.UID, version = held.UID, held.Version
		s.Version = version + 1
		s.Deleted = m.chance(20)
	}
	switch m.rand.IntN(4) {
	case 0:
		s.Version = 1
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
		})
	case 2:
		return step{
			name: "mark applied", text: id,
			do: func(i *Instance) (any, error) { return i.Store.MarkApplied(m.ctx, id, s.UID, version, nil) },
			see: func(answer any) error {
				if held != nil && as[bool](answer) && held.Deleted {
					delete(m.world.sources, id)
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
	Sources, Pending []*dispatch.Source
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
			return known{list, pending}, err
		},
		see: func(answer any) error {
			got := as[known](answer).Sources
			if len(got) != len(m.world.sources) {
				return broken("%d sources are listed of %d", len(got), len(m.world.sources))
			}
			for _, s := range got {
				if want := m.world.sources[s.ID]; want == nil || want.UID != s.UID || want.Version != s.Version {
					return broken("source %s is listed as %s in version %d", s.ID, s.UID, s.Version)
				}
			}
			return nil
		},
	}
}

func (m *model) genLeader() step {
	duty, holder := one(m, "keeper", "other"), one(m, "d1", "d2")
	l := m.world.leaders[duty]
	free := l.holder == "" || !l.until.After(m.world.now())
	switch m.rand.IntN(3) {
	case 0:
		return step{
			name: "resign", text: duty + " " + holder,
			do: func(i *Instance) (any, error) { return i.Store.Campaign(m.ctx, duty, holder, 0) },
			see: func(answer any) error {
				want := ""
				if l.holder == holder {
					delete(m.world.leaders, duty)
				} else if !free {
					want = l.holder
				}
				if got := as[string](answer); got != want {
					return broken("the leader of %s after %s resigned is %q, want %q", duty, holder, got, want)
				}
				return nil
			},
		}
	case 1:
		return step{
			name: "leader", text: duty,
			do: func(i *Instance) (any, error) { return i.Store.Campaign(m.ctx, duty, "", 0) },
			see: func(answer any) error {
				want := l.holder
				if free {
					want = ""
				}
				if got := as[string](answer); got != want {
					return broken("the leader of %s is %q, want %q", duty, got, want)
				}
				return nil
			},
		}
	}
	campaign := m.campaignStep(duty, holder)
	if !m.chance(30) {
		return campaign
	}
	return m.followed(campaign, func() []step {
		return []step{m.stepBack(20 * time.Millisecond), m.campaignStep(duty, one(m, "d1", "d2"))}
	})
}

func (m *model) campaignStep(duty, holder string) step {
	return step{
		name: "campaign", text: duty + " " + holder,
		do: func(i *Instance) (any, error) { return i.Store.Campaign(m.ctx, duty, holder, 10*time.Second) },
		see: func(answer any) error {
			l := m.world.leaders[duty]
			want := l.holder == "" || !l.until.After(m.world.now()) || l.holder == holder
			leader := l.holder
			if want {
				leader = holder
			}
			if got := as[string](answer); got != leader {
				return broken("the leader of %s after %s campaigned is %q, want %q", duty, holder, got, leader)
			}
			switch longest := m.world.now().Add(10 * time.Second); {
			case want:
				m.world.leaders[duty] = leadership{holder, longest}
			case l.until.After(longest):
				m.world.count("leadership cut after a step back")
				m.world.leaders[duty] = leadership{l.holder, longest}
			}
			return nil
		},
	}
}

func (m *model) genForget() step {
	before := m.world.now().Add(-time.Hour)
	return step{
		name: "forget collectors",
		do:   func(i *Instance) (any, error) { return i.Store.Forget(m.ctx, before, 100) },
		see: func(any) error {
			for id, s := range m.world.sessions {
				if s.seen.Before(before) {
					delete(m.world.sessions, id)
				}
			}
			return nil
		},
	}
}
