package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// TaskChange is what became of a task that an operator would end, retry or take
// from its holder. Err is why one was refused: it wraps [ErrSourceNotFound] or
// [ErrInvalid].
type TaskChange struct {
	Code  ChangeCode
	State dispatch.State // of the task now; StateUnknown of one that does not exist
	Err   error
}

// ChangeCode is what became of a task in CancelTasks, RetryTasks or RevokeLeases.
type ChangeCode uint8

// The answers to a change of a task.
const (
	// ChangeNotFound: no task has that id.
	ChangeNotFound ChangeCode = iota + 1
	// ChangeCanceled: it is canceled now.
	ChangeCanceled
	// ChangeCancelRequested: its holder is asked to stop, and it ends canceled with its
	// lease.
	ChangeCancelRequested
	// ChangeAlreadyRequested: somebody had asked for that before.
	ChangeAlreadyRequested
	// ChangeAlreadySettled: there is nothing to cancel.
	ChangeAlreadySettled
	// ChangeRetried: it had settled and is due now.
	ChangeRetried
	// ChangeNotSettled: it waits or is leased, and stays as it is.
	ChangeNotSettled
	// ChangeLimited: its source has MaxOutstanding tasks in the shard.
	ChangeLimited
	// ChangeRefused: it cannot come back; TaskChange.Err is why.
	ChangeRefused
	// ChangeRevoked: its lease has ended.
	ChangeRevoked
	// ChangeNotLeased: nobody holds it.
	ChangeNotLeased
	// ChangeOtherLease: it is held under another lease than the one meant.
	ChangeOtherLease
	// ChangeOtherState: it is in none of the states meant.
	ChangeOtherState
)

// changePage is how many tasks an operator's call reads at once: they come with
// their payloads.
const changePage = 100

// TaskEdit is what a change of tasks is about.
type TaskEdit struct {
	IDs []dispatch.TaskID
	// States are those of the tasks that are meant, as they were found: one in another by
	// now stays as it is; none: any. Not of leases that are revoked.
	States []dispatch.State
	// Fences are those of the leases that are revoked, in the order of the ids, 0 for
	// any; nil: any.
	Fences []uint64
	// Note stands in the history of tasks that are canceled, or whose leases are revoked.
	Note dispatch.Note
	// DryRun answers as the change would now, and changes nothing.
	DryRun bool
}

// CancelTasks takes tasks out. One that waits is canceled at once. The holder of
// one that is leased learns it by its next heartbeat, and however the lease ends,
// the task ends canceled. The results are in the order of the ids. The error is the
// whole call's: some may be canceled; repeat all.
func (o *Operator) CancelTasks(ctx context.Context, e TaskEdit) ([]TaskChange, error) {
	results, asked := make([]TaskChange, len(e.IDs)), make([]bool, len(e.IDs))
	err := o.changeTasks(ctx, "cancel", e.IDs, func(at []int, tasks []*dispatch.Task, now time.Time) ([]int, error) {
		var waiting []*dispatch.Task
		var from, again []int
		var leased []dispatch.TaskID
		for n, i := range at {
			t := tasks[n]
			switch results[i] = cancelAnswer(t, asked[i], e.States); {
			case results[i].Code != 0:
			case e.DryRun && t.State.Waiting():
				results[i] = TaskChange{Code: ChangeCanceled, State: dispatch.StateCanceled}
			case e.DryRun:
				results[i] = TaskChange{Code: ChangeCancelRequested, State: t.State}
			case t.State.Waiting():
				waiting, from = append(waiting, t), append(from, i)
			default: // The lease may end before it is marked: look again.
				asked[i] = true
				leased, again = append(leased, t.ID), append(again, i)
			}
		}
		if len(leased) > 0 {
			if err := o.store.RequestCancel(ctx, leased, dispatch.CancelTask, e.Note.Canceled(now)); err != nil {
				return nil, err
			}
		}
		applied, err := o.d.EndLeases(ctx, waiting, now, func(t *dispatch.Task, spec *dispatch.SourceSpec, now time.Time) dispatch.Transition {
			return o.policy.Cancel(t, spec, e.Note, now)
		})
		return noteApplied(results, from, applied, ChangeCanceled, again), err
	})
	return results, err
}

// cancelAnswer is what a task answers to a cancel of those in the states of only;
// asked: this call has asked its holder to stop. The code is 0 of one that is to be
// canceled, or whose holder has to be asked.
func cancelAnswer(t *dispatch.Task, asked bool, only []dispatch.State) TaskChange {
	switch {
	case t == nil:
		return TaskChange{Code: ChangeNotFound}
	case t.State.Waiting():
		return unlessOther(t, only)
	case t.State == dispatch.StateCanceled && asked:
		return TaskChange{Code: ChangeCanceled, State: t.State}
	case t.State.Settled():
		return TaskChange{Code: ChangeAlreadySettled, State: t.State}
	case t.CancelRequested == dispatch.CancelNone || t.CancelRequested == dispatch.CancelHeld:
		return unlessOther(t, only)
	case asked:
		return TaskChange{Code: ChangeCancelRequested, State: t.State}
	default:
		return TaskChange{Code: ChangeAlreadyRequested, State: t.State}
	}
}

// unlessOther answers for a task that is to be changed if it is in one of the states
// of only; none: any. The code is 0 of one that is.
func unlessOther(t *dispatch.Task, only []dispatch.State) TaskChange {
	if len(only) == 0 || slices.Contains(only, t.State) {
		return TaskChange{}
	}
	return TaskChange{Code: ChangeOtherState, State: t.State}
}

// RevokeLeases ends the leases of tasks, which are due again at once with no
// attempt spent. Renewals and reports of those who held them are answered
// [dispatch.LostRevoked]. The results are in the order of the ids. The error is the whole
// call's: some may be revoked; repeat all.
func (o *Operator) RevokeLeases(ctx context.Context, e TaskEdit) ([]TaskChange, error) {
	results := make([]TaskChange, len(e.IDs))
	err := o.changeTasks(ctx, "revoke the lease of", e.IDs, func(at []int, tasks []*dispatch.Task, now time.Time) ([]int, error) {
		var leased []*dispatch.Task
		var from []int
		for n, i := range at {
			t := tasks[n]
			switch results[i] = revokeAnswer(t, e.Fences, i); {
			case results[i].Code != 0:
			case e.DryRun && t.CancelRequested != dispatch.CancelNone && t.CancelRequested != dispatch.CancelHeld:
				results[i] = TaskChange{Code: ChangeRevoked, State: dispatch.StateCanceled}
			case e.DryRun:
				results[i] = TaskChange{Code: ChangeRevoked, State: dispatch.StateReady}
			default:
				leased, from = append(leased, t), append(from, i)
			}
		}
		applied, err := o.d.EndLeases(ctx, leased, now, func(t *dispatch.Task, spec *dispatch.SourceSpec, now time.Time) dispatch.Transition {
			return o.policy.Revoke(t, spec, e.Note, now)
		})
		return noteApplied(results, from, applied, ChangeRevoked, nil), err
	})
	return results, err
}

// noteApplied notes the code for the tasks at from that were changed as they were read;
// the others come to again.
func noteApplied(results []TaskChange, from []int, applied []dispatch.ApplyResult, code ChangeCode, again []int) []int {
	for n, r := range applied {
		if r.Code == dispatch.Applied {
			results[from[n]] = TaskChange{Code: code, State: r.State}
		} else {
			again = append(again, from[n])
		}
	}
	return again
}

// revokeAnswer is what the i-th task answers to the end of its lease; the code is 0
// where that is to be ended.
func revokeAnswer(t *dispatch.Task, fences []uint64, i int) TaskChange {
	switch {
	case t == nil:
		return TaskChange{Code: ChangeNotFound}
	case t.State != dispatch.StateLeased:
		return TaskChange{Code: ChangeNotLeased, State: t.State}
	case len(fences) > 0 && fences[i] != 0 && fences[i] != t.Lease.Digest.Fence:
		return TaskChange{Code: ChangeOtherLease, State: t.State}
	default:
		return TaskChange{}
	}
}

// changeTasks reads tasks and lets act change them: at are their places among
// the ids, and act returns the places of those that were changed under it, to be
// read again. what names the change in errors.
func (o *Operator) changeTasks(ctx context.Context, what string, ids []dispatch.TaskID,
	act func(at []int, tasks []*dispatch.Task, now time.Time) (again []int, err error),
) error {
	for from := 0; from < len(ids); from += changePage {
		var open []int
		for i := from; i < min(from+changePage, len(ids)); i++ {
			open = append(open, i)
		}
		for try := 0; len(open) > 0; try++ {
			if try == changeTries {
				return fmt.Errorf("%s task %s: it was changed %d times in between: %w", what, ids[open[0]], changeTries, dispatch.ErrStoreUnavailable)
			}
			tasks, now, err := o.store.Tasks(ctx, choose(ids, open), false)
			if err == nil {
				open, err = act(open, tasks, now)
			}
			if err != nil {
				return fmt.Errorf("%s tasks: %w", what, err)
			}
		}
	}
	return nil
}

// choose has the items at the indexes.
func choose[T any](items []T, indexes []int) []T {
	chosen := make([]T, len(indexes))
	for n, i := range indexes {
		chosen[n] = items[i]
	}
	return chosen
}
