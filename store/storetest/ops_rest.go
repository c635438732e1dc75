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
		p.Collector, p.ClientToken = s.collector, s.token
		p.Session = m.collector(s.collector).session()
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
		do:  func(i *Instance) (any, error) { return i.Store.BeginPolls(m.Context(), polls) },
		see: func(answer any) error { return m.world.polled(polls, as[[]dispatch.PollState](answer)) },
	}
}

func (m *model) genBeats() step {
	var beats []dispatch.CollectorInfo
	for range one(m, 1, 3) {
		c := one(m, m.collectors...)
		info := dispatch.CollectorInfo{
			ID: c.id, Session: c.session(), Version: "1", Hostname: "h", Labels: map[string]string{"a": "b"},
			Pools: []string{pool}, Slots: 3, Leases: m.rand.IntN(5), Interval: 10 * time.Second,
		}
		if m.chance(5) && c.number > 1 {
			info.Session = "s" + strconv.Itoa(c.number-1)
		}
		beats = append(beats, info)
	}
	return step{
		name: "beat", text: fmt.Sprint(beats),
		do:  func(i *Instance) (any, error) { return i.Store.Beats(m.Context(), beats) },
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
			m.todo = append(m.todo, m.endSessionStep(shard, c.id, c.session()))
		}
	}
	return m.pollStep(dispatch.Poll{Collector: c.id, Session: c.session(), ClientToken: token, Call: call})
}

func (m *model) endSessionStep(shard int, collector, keep string) step {
	limit := one(m, 2, 100)
	return step{
		name: "end session", text: fmt.Sprintf("shard=%d %s keep=%s limit=%d", shard, collector, keep, limit),
		do: func(i *Instance) (any, error) {
			return i.Store.EndSession(m.Context(), shard, collector, keep, limit)
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
				tr := expired(task)
				tr.Expired = false
				transitions = append(transitions, tr)
			}
			m.todo = append([]step{m.applyStep(transitions), m.endSessionStep(shard, collector, keep)}, m.todo...)
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
		return m.sourceStep("create source", id, func(i *Instance) error { return i.Store.CreateSource(m.Context(), s) }, func() {
			if held == nil { // else it is a repeat
				m.world.sources[id] = s
			}
		})
	case 1:
		if m.chance(20) {
			version += 5
		}
		return m.sourceStep("update source", id, func(i *Instance) error { return i.Store.UpdateSource(m.Context(), s, version) }, func() {
			m.world.sources[id] = s
		})
	case 2:
		return step{
			name: "mark applied", text: id,
			do: func(i *Instance) (any, error) { return i.Store.MarkApplied(m.Context(), id, s.UID, version, nil) },
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
	Sources []*dispatch.Source
	Pending []string
}

func (m *model) listSources() step {
	return step{
		name: "list sources",
		do: func(i *Instance) (any, error) {
			list, err := i.Store.ListSources(m.Context(), "r.", "", 10)
			if err != nil {
				return nil, err
			}
			pending, err := i.Store.PendingSources(m.Context(), 10)
			slices.Sort(pending)
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

func (m *model) genReadTasks() step {
	var ids []dispatch.TaskID
	for range one(m, 1, 5) {
		ids = append(ids, m.modelItem(one(m, m.sources...)).ID)
	}
	return m.readStep(ids, m.chance(50))
}

func (m *model) readStep(ids []dispatch.TaskID, details bool) step {
	return step{
		name: "read tasks", text: fmt.Sprint(ids[:min(len(ids), 5)], details),
		do: func(i *Instance) (any, error) { return i.Store.Tasks(m.Context(), ids, details) },
		see: func(answer any) error {
			tasks := as[[]*dispatch.Task](answer)
			if len(tasks) != len(ids) {
				return broken("a read of %d tasks answered %d", len(ids), len(tasks))
			}
			for n, id := range ids {
				if err := m.world.compare("read", tasks[n], m.world.task(id), details, details); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (m *model) genReadQueue() step {
	name := one(m, modelQueues()...)
	return step{
		name: "read queue", text: name,
		do: func(i *Instance) (any, error) {
			q, err := i.Store.Queue(m.Context(), name)
			if errors.Is(err, dispatch.ErrQueueNotFound) {
				return (*dispatch.Queue)(nil), nil
			}
			return q, err
		},
		see: func(answer any) error {
			q := as[*dispatch.Queue](answer)
			if q == nil {
				q = &dispatch.Queue{}
			}
			return m.world.checkQueue(name, q)
		},
	}
}

// checkQueue holds what a store says of a queue against the world.
func (w *world) checkQueue(name string, q *dispatch.Queue) error {
	waiting, leased := int64(0), int64(0)
	for _, t := range w.all() {
		switch {
		case t.Queue != name:
		case t.Lease != nil:
			leased++
		case t.State.Waiting():
			waiting++
		}
	}
	if q.Leased != leased || q.Waiting < waiting || q.Waiting > waiting && w.parts[w.shardOf(name)].ghosts == 0 {
		return broken("queue %s has %d waiting and %d leased, want %d and %d", name, q.Waiting, q.Leased, waiting, leased)
	}
	return nil
}

func (m *model) genList() step {
	switch m.rand.IntN(4) {
	case 0:
		suffix := one(m, "", "a.test", "org")
		return step{name: "list queues", text: suffix, do: func(i *Instance) (any, error) {
			return i.Store.ListQueues(m.Context(), suffix, "", 100)
		}}
	case 1:
		return step{name: "list collectors", do: func(i *Instance) (any, error) {
			return i.Store.ListCollectors(m.Context(), "", 100)
		}}
	case 2:
		return m.listLeases()
	default:
		return m.listTasks()
	}
}

// listTasks lists by source or queue and one state, and counts what came.
func (m *model) listTasks() step {
	var filter dispatch.TaskFilter
	if m.chance(60) {
		filter.SourceUID = one(m, m.sources...).gate.UID
	}
	if filter.SourceUID == "" || m.chance(30) {
		filter.Queue = one(m, modelQueues()...)
	}
	filter.States = []dispatch.State{one(m,
		dispatch.StateScheduled, dispatch.StateReady, dispatch.StateLeased, dispatch.StateDead, dispatch.StateCanceled)}
	limit := one(m, 2, 100)
	return step{
		name: "list tasks", text: fmt.Sprint(filter, limit),
		do: func(i *Instance) (any, error) {
			var all []*dispatch.Task
			for cursor, calls := "", 0; calls < 10_000; calls++ {
				tasks, next, err := i.Store.ListTasks(m.Context(), filter, cursor, limit)
				all = append(all, tasks...)
				if cursor = next; err != nil || cursor == "" {
					slices.SortFunc(all, byID)
					return all, err
				}
			}
			return nil, broken("the list of tasks by %v does not end", filter)
		},
		see: func(answer any) error { return m.world.listed(filter, as[[]*dispatch.Task](answer)) },
	}
}

func byID(a, b *dispatch.Task) int { return cmp.Compare(a.ID, b.ID) }

// listed checks a whole list of tasks, by id.
func (w *world) listed(filter dispatch.TaskFilter, got []*dispatch.Task) error {
	// What was ended with its source may be listed or not.
	ended := func(t *modelTask) bool { return t != nil && t.State.Settled() && w.gate(t).Deleted }
	got = slices.DeleteFunc(got, func(t *dispatch.Task) bool { return ended(w.task(t.ID)) })
	var want []*modelTask
	for _, t := range w.all() {
		if w.task(t.ID) == nil || ended(t) || filter.SourceUID != "" && t.SourceUID != filter.SourceUID ||
			filter.Queue != "" && t.Queue != filter.Queue || !slices.Contains(filter.States, w.visible(t)) {
			continue
		}
		want = append(want, t)
	}
	if len(got) != len(want) {
		return broken("the list by %+v has %d tasks, want %d", filter, len(got), len(want))
	}
	slices.SortFunc(want, func(a, b *modelTask) int { return cmp.Compare(a.ID, b.ID) })
	for i := range got {
		if err := w.compare("list", got[i], want[i], false, false); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) listLeases() step {
	return step{
		name: "list leases",
		do: func(i *Instance) (any, error) {
			var all []*dispatch.Task
			for cursor, calls := "", 0; calls < 10_000; calls++ {
				tasks, next, err := i.Store.ListLeases(m.Context(), cursor, 7)
				all = append(all, tasks...)
				if cursor = next; err != nil || cursor == "" {
					slices.SortFunc(all, byID) // deadlines tie
					return all, err
				}
			}
			return nil, broken("the list of leases does not end")
		},
		see: func(answer any) error {
			got := as[[]*dispatch.Task](answer)
			want := m.leased()
			if len(got) != len(want) {
				return broken("%d leases are listed, want %d", len(got), len(want))
			}
			for _, task := range got {
				if err := m.world.compare("list leases", task, m.world.task(task.ID), false, false); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (m *model) genStats() step {
	uids := []string{"uid-unknown"}
	for _, s := range m.sources {
		uids = append(uids, s.gate.UID)
	}
	return step{
		name: "stats",
		do: func(i *Instance) (any, error) {
			stats, err := i.Store.Stats(m.Context())
			if err != nil {
				return nil, err
			}
			statuses, err := i.Store.SourceStatuses(m.Context(), uids)
			return totals{stats, statuses}, err
		},
		see: func(answer any) error {
			got := as[totals](answer)
			return m.world.checkTotals(got.Stats, uids, got.Statuses)
		},
	}
}

// totals is all that a store counts.
type totals struct {
	Stats    dispatch.StoreStats
	Statuses []dispatch.SourceStatus
}

// checkTotals holds counts against the world's.
func (w *world) checkTotals(stats dispatch.StoreStats, uids []string, statuses []dispatch.SourceStatus) error {
	waiting, leased := map[string]int64{}, map[string]int64{}
	for _, t := range w.all() {
		switch {
		case t.Lease != nil:
			leased[t.SourceUID]++
			leased[""]++
		case t.State.Waiting():
			waiting[t.SourceUID]++
			waiting[""]++
		}
	}
	ghosts := 0
	for _, p := range w.parts {
		ghosts += p.ghosts
	}
	check := func(what string, c dispatch.StateCounts, uid string) error {
		n := c.Scheduled + c.Ready
		if c.Leased != leased[uid] || n < waiting[uid] || n > waiting[uid] && ghosts == 0 {
			return broken("%s counts %d waiting and %d leased, want %d and %d", what, n, c.Leased, waiting[uid], leased[uid])
		}
		return nil
	}
	if err := check("the store", stats.Counts, ""); err != nil {
		return err
	}
	if granted := int64(w.counts["grant"]); stats.Granted != granted {
		return broken("the store counts %d grants, want %d", stats.Granted, granted)
	}
	for i, uid := range uids {
		if err := check("source "+uid, statuses[i].Counts, uid); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) genLeader() step {
	duty, holder := one(m, "keeper", "other"), one(m, "d1", "d2")
	l := m.world.leaders[duty]
	free := l.holder == "" || !l.until.After(m.world.now())
	switch m.rand.IntN(3) {
	case 0:
		return step{
			name: "resign", text: duty + " " + holder,
			do: func(i *Instance) (any, error) { return nil, i.Store.Resign(m.Context(), duty, holder) },
			see: func(any) error {
				if l.holder == holder {
					delete(m.world.leaders, duty)
				}
				return nil
			},
		}
	case 1:
		return step{
			name: "leader", text: duty,
			do: func(i *Instance) (any, error) { return i.Store.Leader(m.Context(), duty) },
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
	return step{
		name: "campaign", text: duty + " " + holder,
		do: func(i *Instance) (any, error) { return i.Store.Campaign(m.Context(), duty, holder, 10*time.Second) },
		see: func(answer any) error {
			want := free || l.holder == holder
			if as[bool](answer) != want {
				return broken("%s leads %s: %v, want %v", holder, duty, !want, want)
			}
			if want {
				m.world.leaders[duty] = leadership{holder, m.world.now().Add(10 * time.Second)}
			}
			return nil
		},
	}
}

func (m *model) genForget() step {
	before := m.world.now().Add(-time.Hour)
	return step{
		name: "forget collectors",
		do:   func(i *Instance) (any, error) { return i.Store.Forget(m.Context(), before, 100) },
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

// checkAll reads everything and holds it against the world and the reference.
func (m *model) checkAll() error {
	var ids []dispatch.TaskID
	for _, t := range m.world.all() {
		ids = append(ids, t.ID)
	}
	for _, p := range m.world.parts {
		for key, note := range p.notes {
			if !note.until.After(m.world.highest.Add(-24 * time.Hour)) {
				delete(p.notes, key)
			}
		}
	}
	steps := []step{m.readStep(ids, true), m.listLeases(), m.genStats(), m.listSources()}
	for _, name := range modelQueues() {
		q := step{name: "list queues", do: func(i *Instance) (any, error) {
			return i.Store.ListQueues(m.Context(), name, "", 100)
		}}
		steps = append(steps, q)
	}
	for _, s := range steps {
		if err := m.apply(s); err != nil {
			return err
		}
	}
	return nil
}
