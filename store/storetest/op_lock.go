package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func (m *model) genDeleteLock() step {
	tasks := m.leased()
	for _, t := range m.waiting() {
		if t.orphanUntil.After(m.world.now()) {
			tasks = append(tasks, t)
		}
	}
	if len(tasks) == 0 {
		return m.genClaim()
	}
	return m.deleteLockStep(one(m, tasks...))
}

func (m *model) deleteLockStep(t *modelTask) step {
	return step{
		name: "delete lock", text: string(t.ID),
		do: func(i *Instance) (any, error) {
			i.DeleteLock(t.ID)
			value, ttl := i.LockValue(t.ID)
			return fmt.Sprint(value, ttl), nil
		},
		see: func(any) error {
			if now := m.world.now(); t.Lease != nil {
				t.lockGone, t.foreignUntil = true, time.Time{}
			} else if t.orphanUntil.After(now) {
				m.world.count("delete lock of an orphan")
				t.orphanUntil, t.lookBy = now, m.world.highest.Add(dispatch.OrphanLook)
			}
			return nil
		},
	}
}

// genSetLock sets a lock by hand, on a waiting task or over that of a lease.
func (m *model) genSetLock() step {
	var free []*modelTask
	for _, t := range m.waiting() {
		if !t.underLock(m.world.now()) {
			free = append(free, t)
		}
	}
	var leased []*modelTask
	for _, t := range m.leased() {
		if !t.Lease.Deadline.After(m.world.now().Add(bounds.MaxLeaseDuration)) { // else a sweep is to cut it
			leased = append(leased, t)
		}
	}
	if m.chance(50) && len(leased) > 0 {
		free = leased
	}
	if len(free) == 0 {
		return m.genSubmit()
	}
	t := one(m, free...)
	ttl := one(m, 500*time.Millisecond, 3*time.Second, 20*time.Second, time.Minute, 0)
	return step{
		name: "set lock", text: fmt.Sprint(t.ID, ttl),
		do: func(i *Instance) (any, error) {
			i.SetLock(t.ID, foreign, ttl)
			value, left := i.LockValue(t.ID)
			return fmt.Sprint(value, left), nil
		},
		see: func(any) error {
			until := noEnd
			if ttl > 0 {
				until = m.world.now().Add(ttl)
			}
			if t.Lease != nil {
				m.world.count("set lock over a lease's")
				t.lockGone, t.foreignUntil = false, until
			} else {
				t.orphan, t.orphanUntil = true, until
			}
			return nil
		},
	}
}

// locksStep reads the locks of tasks.
func (m *model) locksStep(ids []dispatch.TaskID) step {
	return step{
		name: "read locks",
		do: func(i *Instance) (any, error) {
			locks := make([]string, len(ids))
			for n, id := range ids {
				value, ttl := i.LockValue(id)
				locks[n] = fmt.Sprint(value, " for ", ttl)
			}
			return locks, nil
		},
		see: func(answer any) error {
			for n, lock := range as[[]string](answer) {
				if t := m.world.task(ids[n]); t != nil && lock != m.world.lock(t) {
					return broken("the lock of %s is %s, want %s", ids[n], lock, m.world.lock(t))
				}
			}
			return nil
		},
	}
}

// lock is what stands in the lock of a task, and how long, 0 = it has no end or is none.
func (w *world) lock(t *modelTask) string {
	now := w.now()
	value, until := foreign, t.orphanUntil
	switch {
	case t.Lease != nil && !t.foreignUntil.IsZero():
		until = t.foreignUntil
	case t.Lease != nil && t.lockGone:
		until = now
	case t.Lease != nil:
		value, until = t.Lease.Token.String(), t.Lease.Deadline
	}
	switch {
	case until.Equal(noEnd):
		return value + " for 0s"
	case until.After(now):
		return fmt.Sprint(value, " for ", until.Sub(now))
	}
	return " for 0s"
}
