package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

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
		do: func(i *Instance) (any, error) {
			tasks, now, err := i.Store.Tasks(m.ctx, ids, details)
			if err == nil && len(ids) > 0 && !now.Equal(m.world.now()) {
				err = broken("a read answered the time %v at %v", now, m.world.now())
			}
			return tasks, err
		},
		see: func(answer any) error {
			tasks := as[[]*dispatch.Task](answer)
			if len(tasks) != len(ids) {
				return broken("a read of %d tasks answered %d", len(ids), len(tasks))
			}
			for n, id := range ids {
				if tasks[n] != nil {
					m.world.settleDeadline(tasks[n])
				}
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
			queues, err := i.Store.QueuesNamed(m.ctx, []string{name})
			if err != nil {
				return nil, err
			}
			return queues[0], nil
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
	of := w.queue(w.shardOf(name), name)
	if q.QueueDelay != of.asked && (q.QueueDelay != 0 || of.askedLow > 0 && waiting+leased > 0) {
		return broken("queue %s has a host that asks for %v, want %v", name, q.QueueDelay, of.asked)
	}
	return nil
}

func (m *model) genList() step {
	switch m.rand.IntN(4) {
	case 0:
		suffix := one(m, "", "a.test", "org")
		return step{name: "list queues", text: suffix, do: func(i *Instance) (any, error) {
			return i.Store.ListQueues(m.ctx, suffix, "", 100)
		}}
	case 1:
		return step{name: "list collectors", do: func(i *Instance) (any, error) {
			return i.collectors(m.ctx)
		}}
	case 2:
		return m.listLeases()
	default:
		return m.listTasks()
	}
}

// collectors are those that are known, those seen of late, and what all of them hold.
func (i *Instance) collectors(ctx context.Context) (any, error) {
	known, err := i.Store.ListCollectors(ctx, dispatch.CollectorFilter{Held: true}, "", 100)
	if err != nil {
		return nil, err
	}
	ids := []string{"nobody"}
	for _, c := range known {
		ids = append(ids, c.Info.ID)
	}
	named, err := i.Store.ListCollectors(ctx, dispatch.CollectorFilter{IDs: ids, Held: true}, "", 0)
	if err != nil {
		return nil, err
	}
	now, err := i.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	present, err := i.Store.ListCollectors(ctx, dispatch.CollectorFilter{Since: now.Add(-time.Minute)}, "", 100)
	var seen []string
	for _, c := range present {
		seen = append(seen, c.Info.ID)
	}
	slices.Sort(seen)
	return []any{known, named, seen}, err
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
				page, err := i.Store.ListTasks(m.ctx, filter, cursor, limit)
				all = append(all, page.Tasks...)
				if cursor = page.Next; err != nil || cursor == "" {
					// What was ended with its source may be listed or not.
					all = slices.DeleteFunc(all, func(t *dispatch.Task) bool {
						return t.State.Settled() && m.world.gone[t.SourceUID]
					})
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
	var want []*modelTask
	for _, t := range w.all() {
		if w.task(t.ID) == nil || t.State.Settled() && w.gate(t).Deleted || filter.SourceUID != "" && t.SourceUID != filter.SourceUID ||
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
				tasks, next, err := i.Store.ListLeases(m.ctx, cursor, 7)
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
			stats, err := i.Store.Stats(m.ctx)
			if err != nil {
				return nil, err
			}
			statuses, err := i.Store.SourceStatuses(m.ctx, uids)
			if err == nil {
				err = m.world.checkSettled(&stats.Counts)
			}
			return totals{stats, statuses}, err
		},
		see: func(answer any) error {
			got := as[totals](answer)
			return m.world.checkTotals(got.Stats, uids, got.Statuses)
		},
	}
}

// checkSettled holds the counts of settled records against the world's, and
// takes them out: those whose time is over may be counted until they are swept.
func (w *world) checkSettled(c *dispatch.StateCounts) error {
	var kept dispatch.StateCounts
	for _, t := range w.all() {
		switch {
		case w.task(t.ID) == nil:
		case t.State == dispatch.StateDead:
			kept.Dead++
		case t.State == dispatch.StateCanceled:
			kept.Canceled++
		}
	}
	if c.Dead < kept.Dead || c.Canceled < kept.Canceled {
		return broken("the store counts %d dead and %d canceled, want at least %d and %d", c.Dead, c.Canceled, kept.Dead, kept.Canceled)
	}
	c.Dead, c.Canceled = 0, 0
	return nil
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

// checkAll reads everything and holds it against the world and the reference.
func (m *model) checkAll() error {
	var ids []dispatch.TaskID
	for _, t := range m.world.all() {
		ids = append(ids, t.ID)
	}
	steps := []step{m.readStep(ids, true), m.locksStep(ids), m.listLeases(), m.genStats(), m.listSources()}
	for _, name := range modelQueues() {
		q := step{name: "list queues", do: func(i *Instance) (any, error) {
			return i.Store.ListQueues(m.ctx, name, "", 100)
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
