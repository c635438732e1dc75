package storetest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

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
		if m.chance(20) {
			i.Redirect = dispatch.Redirect{Hops: 1 + m.rand.IntN(3), From: one(m, "", "http://head.test/"), Due: one(m, time.Time{}, now)}
		}
		if i.Kind == "feed" {
			i.Traceparent = traceparent
		}
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
		if m.chance(10) && s.before.UID != "" && (s.until.IsZero() || m.world.now().Before(s.until)) {
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
			return m.world.submitted(byUID, items, as[[]dispatch.SubmitResult](answer))
		},
	}
}
