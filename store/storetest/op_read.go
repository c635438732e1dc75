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
				return nil
			}
			if q.QueueDelay > 0 {
				m.world.count("queue delayed by its host")
			}
			for _, gate := range q.Gates {
				m.world.count("queue with the gate " + string(gate.Kind))
			}
			return nil
		},
	}
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
	}
}

func byID(a, b *dispatch.Task) int { return cmp.Compare(a.ID, b.ID) }

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
			statuses, err := i.Store.SourceStatuses(m.ctx, uids, true)
			// Settled records whose time is over may be counted until they are swept.
			stats.Counts.Dead, stats.Counts.Canceled = 0, 0
			stats.Ownership = nil                                                                                  // another store has another owner
			stats.Pools = nil                                                                                      // who waits longest begins anew with each start
			stats.UsedBytes, stats.LimitBytes, stats.DiskBytes, stats.FreeBytes, stats.OldestGroup = 0, 0, 0, 0, 0 // of the backend
			return totals{stats, statuses}, err
		},
	}
}

// checkAll reads everything and holds it against the world and the reference.
func (m *model) checkAll() error {
	for _, s := range append(m.reads(), m.genStats()) {
		if err := m.apply(s); err != nil {
			return err
		}
	}
	return nil
}

// reads are the reads of all that a store keeps.
func (m *model) reads() []step {
	var ids []dispatch.TaskID
	for _, t := range m.world.all() {
		ids = append(ids, t.ID)
	}
	steps := []step{m.readStep(ids, true), m.locksStep(ids), m.listLeases(), m.listSources(), m.readHolds(0)}
	for _, name := range modelQueues() {
		q := step{name: "list queues", do: func(i *Instance) (any, error) {
			return i.Store.ListQueues(m.ctx, name, "", 100)
		}}
		steps = append(steps, q)
	}
	return steps
}
