package storetest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// modelQueues are few, so that what happens to them collides.
func modelQueues() []string {
	return []string{
		"a.test", "b.a.test", "c.a.test", "c.a.test:81", "d.test", "e.org", "f.e.org", "g.e.org:8080", "h.org", "localhost",
	}
}

// spent is a claim that was made, to be repeated or given back.
type spent struct {
	collector, session, token, call string
	shard                           int
	grants                          []dispatch.Grant
	at                              time.Time // when claimed last
}

// modelItem makes a random submission of a source.
func (m *model) modelItem(s *modelSource) dispatch.Submission {
	now := m.world.now()
	due := one(m, time.Time{}, time.Time{}, time.Time{}, now.Add(-time.Minute), now.Add(time.Duration(m.rand.IntN(20))*time.Second), now.Add(time.Hour))
	return item(s.gate, one(m, modelQueues()...), strconv.Itoa(m.rand.IntN(9)), func(i *dispatch.Submission) {
		i.Scope = s.scope
		i.URL += one(m, "", "?a", "?b")
		i.Due, i.Priority, i.Kind = due, one(m, 5, 5, 5, 0, 3, 9), one(m, "", "page", "feed")
		i.Depth = m.rand.IntN(4)
		i.Relation = dispatch.Relation(i.Depth) //nolint:gosec // of 4
		if m.chance(40) {
			i.Run = start.Add(time.Duration(m.rand.IntN(m.steps+1)) * time.Second)
		}
		i.IfExists = one(m, dispatch.IfExistsKeep, dispatch.IfExistsKeep, dispatch.IfExistsSooner, dispatch.IfExistsAgain, dispatch.IfExistsRetry)
		if i.IfExists == dispatch.IfExistsRetry && m.chance(50) {
			i.Revision = uint32(m.rand.IntN(8)) //nolint:gosec // of few
		}
		if m.chance(20) {
			i.Key = "seed" + strconv.Itoa(m.rand.IntN(2))
			i.Recurring, i.IfExists, i.FirstDue = true, dispatch.IfExistsReseed, now.Add(time.Second)
		}
		if m.chance(20) {
			i.RevisitAfter = one(m, 1001*time.Millisecond, 61*time.Second)
		}
		if m.chance(20) {
			i.Modified = now.Add(one(m, time.Minute, 0, -time.Second, -20*time.Second, -time.Hour))
		}
		if m.chance(20) {
			i.Metadata, i.Payload = map[string]string{"m": one(m, "1", "2")}, []byte(one(m, "p", "a longer payload of some bytes"))
		}
	})
}

func (m *model) genSubmit() step {
	n := one(m, 1, 1, 2, 4)
	if m.chance(1) {
		n = 2*bounds.MaxSubmissions + 20
	}
	rules := m.world.rules.version
	if m.chance(3) {
		rules--
	}
	sources := []*modelSource{one(m, m.sources...), one(m, m.sources...)}
	byUID := map[string]dispatch.SourceGate{}
	for _, s := range sources {
		gate := s.gate
		if m.chance(4) && s.before.UID != "" {
			gate = s.before // an older version, or the deleted one of the id
		}
		byUID[gate.UID] = gate
	}
	gates := []dispatch.SourceGate{}
	for _, s := range sources {
		for _, uid := range []string{s.gate.UID, s.before.UID} {
			if g, ok := byUID[uid]; ok && !hasGate(gates, uid) {
				gates = append(gates, g)
			}
		}
	}
	items := make([]dispatch.Submission, 0, n)
	for range n {
		s := one(m, sources...)
		it := m.modelItem(s)
		if _, ok := byUID[s.gate.UID]; !ok {
			it.SourceUID = s.before.UID
			if it.Scope == s.gate.UID {
				it.Scope = s.before.UID
			}
			it.ID = dispatch.NewTaskID(dispatch.Identity{Scope: it.Scope, Queue: it.Queue, Key: it.Key})
		}
		items = append(items, it)
	}
	return m.submitStep(rules, gates, byUID, items)
}

func hasGate(gates []dispatch.SourceGate, uid string) bool {
	for _, g := range gates {
		if g.UID == uid {
			return true
		}
	}
	return false
}

func (m *model) submitStep(rules int64, gates []dispatch.SourceGate, byUID map[string]dispatch.SourceGate, items []dispatch.Submission) step {
	text := ""
	for i := range items[:min(len(items), 4)] {
		it := &items[i]
		text += fmt.Sprintf("{%s %s/%s exists=%d run=%s due=%s prio=%d} ", it.SourceUID, it.Queue, it.Key, it.IfExists,
			clockText(it.Run), clockText(it.Due), it.Priority)
	}
	return step{
		name: "submit", text: text,
		do: func(i *Instance) (any, error) {
			return i.Store.Submit(m.ctx, rules, gates, items)
		},
		see: func(answer any) error {
			return m.world.submitted(byUID, rules, items, as[[]dispatch.SubmitResult](answer))
		},
	}
}

// as is an answer in its type; a step sees what it did itself.
func as[T any](answer any) T {
	typed, ok := answer.(T)
	if !ok {
		panic(fmt.Sprintf("storetest: an answer is a %T", answer))
	}
	return typed
}

// clockText is a time for the history.
func clockText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format("02T15:04:05.000")
}

// token gives a client token and call that nobody has used.
func (m *model) token() (token, call string) {
	m.tokens++
	return "t" + strconv.Itoa(m.tokens), "k" + strconv.Itoa(m.tokens)
}

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
			Lease: one(m, 0, 0, time.Second, 5*time.Second, 1500*time.Millisecond, time.Hour),
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
		text += fmt.Sprintf(" {%s/%s/%s max=%d bytes=%d lease=%v src=%v q=%v}",
			w.Collector, w.Session, w.ClientToken, w.Max, w.MaxBytes, w.Lease, w.SourceUIDs, w.Queues)
	}
	return m.claimStep(shard, pool, wants, text)
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
		do: func(i *Instance) (any, error) { return i.Store.Claim(m.ctx, shard, pool, wants) },
		see: func(answer any) error {
			reply := as[dispatch.ClaimReply](answer)
			if err := m.world.claimed(shard, pool, wants, reply); err != nil {
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
	if _, ok := m.sessionOf[s.token]; !ok {
		m.sessionOf[s.token] = s.session
	}
}

// leased lists tasks that are leased by the world's account.
func (m *model) leased() []*modelTask {
	var tasks []*modelTask
	for _, t := range m.world.all() {
		if t.Lease != nil {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// stale is a grant of a claim not long ago, held or not; nil when none was.
func (m *model) stale() *dispatch.Grant {
	if len(m.recent) == 0 {
		return nil
	}
	if s := m.recent[m.rand.IntN(len(m.recent))]; len(s.grants) > 0 {
		return &s.grants[m.rand.IntN(len(s.grants))]
	}
	return nil
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
	return step{
		name: "give back", text: fmt.Sprintf("shard=%d %s/%s call=%s", s.shard, s.collector, s.token, s.call),
		do: func(i *Instance) (any, error) {
			return i.Store.GiveBack(m.ctx, s.shard, s.collector, s.token, s.call)
		},
		see: func(answer any) error {
			return m.world.gaveBack(s.shard, s.collector, s.token, s.call, as[int](answer))
		},
	}
}
