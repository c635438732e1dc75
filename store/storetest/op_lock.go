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
		if t.lockUntil.After(m.world.now()) {
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
			if t.tampered = true; t.Lease != nil {
				t.loose = true
			} else {
				m.world.count("delete lock of an orphan")
				t.lookBy = m.world.highest.Add(dispatch.OrphanLook)
			}
			t.lockUntil = time.Time{}
			return nil
		},
	}
}

// genSetLock sets a lock by hand, on a waiting task or over that of a lease.
func (m *model) genSetLock() step {
	var free []*modelTask
	for _, t := range m.waiting() {
		if !t.tampered {
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
			if t.lockUntil = noEnd; ttl > 0 {
				t.lockUntil = m.world.now().Add(ttl)
			}
			if t.tampered = true; t.Lease != nil {
				m.world.count("set lock over a lease's")
				t.loose = true
			}
			return nil
		},
	}
}

// locksStep reads the locks of tasks: that of a lease shows its holder, for as long as it holds it (P2).
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
				t := m.world.task(ids[n])
				if t == nil || t.Lease == nil || t.loose || !t.Lease.Deadline.After(m.world.now()) {
					continue
				}
				if want := fmt.Sprint(t.Lease.Token, " for ", t.Lease.Deadline.Sub(m.world.now())); lock != want {
					return broken("the lock of %s is %s, want %s (P2)", ids[n], lock, want)
				}
			}
			return nil
		},
	}
}
