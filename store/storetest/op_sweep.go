package storetest

import (
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func (m *model) genSweep() step { return m.sweepStep(m.rand.IntN(m.world.shards), 80) }

// sweepStep sweeps a shard and, in percent of the leases found, lets what has
// expired go back.
func (m *model) sweepStep(shard, percent int) step {
	limit := one(m, 3, 50, 1000)
	return step{
		name: "sweep", text: fmt.Sprintf("shard=%d limit=%d", shard, limit),
		do: func(i *Instance) (any, error) { return i.Store.Expired(m.ctx, shard, limit) },
		see: func(answer any) error {
			sweep := as[dispatch.Sweep](answer)
			if err := m.world.swept(shard, min(limit, bounds.MaxExpired), sweep); err != nil {
				return err
			}
			var transitions []dispatch.Transition
			for _, task := range sweep.Expired {
				if m.chance(percent) {
					transitions = append(transitions, expired(task))
				}
			}
			if len(transitions) > 0 {
				m.queued = append([]step{m.applyStep(transitions)}, m.queued...)
			}
			return nil
		},
	}
}

func (m *model) genCancel() step {
	var ids []dispatch.TaskID
	leased := m.leased()
	for range one(m, 1, 2) {
		if len(leased) > 0 && m.chance(70) {
			ids = append(ids, one(m, leased...).ID)
		} else {
			ids = append(ids, m.modelItem(one(m, m.sources...)).ID)
		}
	}
	var line *dispatch.Attempt
	if m.chance(50) {
		line = &dispatch.Attempt{Ended: m.world.now(), Result: dispatch.ResultCanceled, Note: dispatch.Note{By: "ops", Reason: one(m, "", "why")}}
	}
	return m.cancelStep(ids, one(m, dispatch.CancelTask, dispatch.CancelHeld, dispatch.CancelHeld), line)
}

func (m *model) cancelStep(ids []dispatch.TaskID, reason dispatch.CancelReason, line *dispatch.Attempt) step {
	return step{
		name: "request cancel", text: fmt.Sprint(ids, reason, line != nil),
		do: func(i *Instance) (any, error) { return nil, i.Store.RequestCancel(m.ctx, ids, reason, line) },
		see: func(any) error {
			m.world.requestedCancel(ids, reason)
			return nil
		},
	}
}

// deleteRecord is the operation that [ModelConfig.KeepRecords] leaves out.
const deleteRecord = "delete record"

func (m *model) genDeleteRecord() step {
	if m.config.KeepRecords {
		return m.genSubmit()
	}
	var free []*modelTask
	for _, t := range m.waiting() {
		// A source with a limit would count the record on, and in a shared scope
		// another source might make it anew.
		if !m.limited[m.world.gate(t).ID] && !m.shares(t) && !t.tampered {
			free = append(free, t)
		}
	}
	if len(free) == 0 {
		return m.genSubmit()
	}
	t := one(m, free...)
	return step{
		name: deleteRecord, text: string(t.ID),
		do: func(i *Instance) (any, error) {
			i.DeleteRecord(t.ID)
			return nil, nil
		},
		see: func(any) error {
			m.world.remove(t.ID)
			m.world.parts[t.shard].ghosts++
			return nil
		},
	}
}
