package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func (m *model) genClaim() step {
	shard, pool := m.rand.IntN(m.world.shards), one(m, modelPools()...)
	wants := make([]dispatch.Want, one(m, 1, 1, 1, 2, 3))
	text := fmt.Sprintf("shard=%d pool=%s", shard, pool)
	for n := range wants {
		c := one(m, m.collectors...)
		token, call := m.token()
		w := dispatch.Want{
			Poll: dispatch.Poll{Collector: c.id, Session: c.session(), ClientToken: token, Call: call},
			Max:  one(m, 1, 1, 2, 5, 30), MaxBytes: one(m, manyBytes, manyBytes, manyBytes, 1, 120, 1000),
			Bytes: one(m, 0, 0, 0, 0, 500), Lease: one(m, 0, 0, time.Second, 5*time.Second, 1500*time.Millisecond, time.Hour),
		}
		if m.chance(12) {
			w.SourceUIDs = []string{one(m, m.sources...).gate.UID, one(m, m.sources...).gate.UID}
		}
		if m.chance(12) {
			w.Queues = []string{one(m, modelQueues()...), one(m, modelQueues()...)}
		}
		if m.chance(4) && c.number > 1 {
			w.Session = "s" + strconv.Itoa(c.number-1)
		}
		if s := m.repeated(shard); s != nil && m.chance(12) {
			w.Collector, w.Session, w.ClientToken = s.collector, s.session, s.token
		}
		wants[n] = w
		text += fmt.Sprintf(" {%s/%s/%s max=%d bytes=%d of %d lease=%v src=%v q=%v}",
			w.Collector, w.Session, w.ClientToken, w.Max, w.Bytes, w.MaxBytes, w.Lease, w.SourceUIDs, w.Queues)
	}
	if m.world.holds.version > 0 && m.chance(4) {
		return m.staleClaimStep(shard, pool, wants, text)
	}
	return m.claimStep(shard, pool, wants, text)
}

// staleClaimStep claims with an older version of the holds, which is refused and changes
// nothing.
func (m *model) staleClaimStep(shard int, pool string, wants []dispatch.Want, text string) step {
	version := one(m, 0, m.world.holds.version-1)
	return step{
		name: "claim by older holds", text: fmt.Sprintf("holds=%d %s", version, text),
		do: func(i *Instance) (any, error) {
			reply, err := i.Store.Claim(m.ctx, shard, pool, version, wants, nil)
			switch {
			case errors.Is(err, dispatch.ErrStaleHolds):
				return nil, nil
			case err == nil:
				err = broken("a claim by version %d of the holds was answered %+v, though %d stands", version, reply, m.world.holds.version)
			}
			return nil, err
		},
	}
}

// repeated is a claim of the shard that was made not long ago, most often the
// last one.
func (m *model) repeated(shard int) *spent {
	var of []*spent
	for n := range m.recent {
		if m.recent[n].shard == shard {
			of = append(of, &m.recent[n])
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of[max(0, len(of)-1-m.rand.IntN(one(m, 1, 4, 60)))]
}

func (m *model) claimStep(shard int, pool string, wants []dispatch.Want, text string) step {
	return step{
		name: "claim", text: text,
		do: func(i *Instance) (any, error) {
			return i.Store.Claim(m.ctx, shard, pool, m.world.holds.version, wants, nil)
		},
		see: func(answer any) error {
			reply := as[dispatch.ClaimReply](answer)
			if m.instances[0].Undoes {
				m.world.touchLocked()
			}
			unmet, err := m.world.claimed(shard, pool, wants, reply)
			if err != nil {
				return err
			}
			if err := m.checkIdle(shard, pool, wants, unmet, reply); err != nil {
				return err
			}
			for n, w := range wants {
				if !reply.Used[n] {
					continue
				}
				m.keep(spent{w.Collector, w.Session, w.ClientToken, w.Call, shard, reply.Grants[n], m.world.now()})
			}
			return nil
		},
	}
}

// keep remembers a claim for steps to come.
func (m *model) keep(s spent) {
	if len(m.recent) == 60 {
		m.recent = m.recent[1:]
	}
	m.recent = append(m.recent, s)
}

func (m *model) genRenew() step {
	var renewals []dispatch.Renewal
	leased := m.leased()
	for range one(m, 1, 2, 5) {
		var r dispatch.Renewal
		g := m.stale()
		switch {
		case m.chance(12) && g != nil:
			r.ID, r.Token = g.Task.ID, g.Token
		case m.chance(3) && g != nil: // in wrong hands
			r.ID, r.Token = g.Task.ID, g.Token
			r.Token.Collector += "x"
		case len(leased) == 0 && m.chance(80):
			return m.genClaim()
		case len(leased) == 0:
			unknown := item(one(m, m.sources...).gate, one(m, modelQueues()...), "unknown")
			r.ID, r.Token = unknown.ID, dispatch.LeaseToken{Collector: "c0", ClientToken: "t", Fence: 1}
		default:
			t := one(m, leased...)
			r.ID, r.Token = t.ID, t.Lease.Token
		}
		if m.chance(20) {
			r.Cursor = []byte(one(m, "", "page 2", "page 3"))
		}
		renewals = append(renewals, r)
	}
	return m.renewStep(renewals)
}

func (m *model) renewStep(renewals []dispatch.Renewal) step {
	return step{
		name: "renew", text: fmt.Sprint(renewals),
		do:  func(i *Instance) (any, error) { return i.Store.Renew(m.ctx, renewals) },
		see: func(answer any) error { return m.world.renewed(renewals, as[[]dispatch.RenewResult](answer)) },
	}
}

func (m *model) genGiveBack() step {
	if len(m.recent) == 0 {
		return m.genClaim()
	}
	s := m.recent[m.rand.IntN(len(m.recent))]
	if m.chance(60) {
		s = m.recent[len(m.recent)-1]
	}
	if m.chance(10) {
		s.call = "another"
	}
	give := step{
		name: "give back", text: fmt.Sprintf("shard=%d %s/%s call=%s", s.shard, s.collector, s.token, s.call),
		do: func(i *Instance) (any, error) {
			return i.Store.GiveBack(m.ctx, s.shard, s.collector, s.token, s.call)
		},
		see: func(answer any) error {
			return m.world.gaveBack(s.shard, s.collector, s.token, as[int](answer))
		},
	}
	note := m.world.parts[s.shard].notes[[2]string{s.collector, s.token}]
	if note == nil || !m.chance(15) {
		return give
	}
	held := m.world.stillHeld(note)
	if len(held) == 0 {
		return give
	}
	m.queued = append(m.queued, give)
	return m.cancelStep([]dispatch.TaskID{one(m, held...).Task.ID}, one(m, dispatch.CancelTask, dispatch.CancelHeld), nil)
}
