package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// changePage is how many tasks an operator's call reads at once: they come with
// their payloads.
const changePage = 100

// CancelTasks takes tasks out. One that waits is canceled at once. The holder of
// one that is leased is told by its next heartbeat, and however the lease ends,
// the task ends canceled. only are the states of the tasks that are meant, as they
// were found: one in another by now stays as it is; none: any. note stands in the
// history of those that this call takes out. The results are in the order of the
// ids. The error is the whole call's: some may be canceled; repeat all.
func (d *Dispatcher) CancelTasks(ctx context.Context, ids []TaskID, note Note, only ...State) ([]TaskChange, error) {
	results, asked := make([]TaskChange, len(ids)), make([]bool, len(ids))
	err := d.changeTasks(ctx, "cancel", ids, func(at []int, tasks []*Task, now time.Time) ([]int, error) {
		var waiting []*Task
		var from, again []int
		var leased []TaskID
		for n, i := range at {
			t := tasks[n]
			switch results[i] = cancelAnswer(t, asked[i], only); {
			case results[i].Code != 0:
			case t.State.Waiting():
				waiting, from = append(waiting, t), append(from, i)
			default: // The lease may end before it is marked: look again.
				asked[i] = true
				leased, again = append(leased, t.ID), append(again, i)
			}
		}
		if len(leased) > 0 {
			if err := d.store.RequestCancel(ctx, leased, CancelTask, note.canceled(now)); err != nil {
				return nil, err
			}
		}
		applied, err := d.endLeases(ctx, waiting, now, func(t *Task, spec *SourceSpec, now time.Time) Transition {
			return d.policy.Cancel(t, spec, note, now)
		})
		if err != nil {
			return nil, err
		}
		for n, i := range from {
			if applied[n].Code == Applied {
				results[i] = TaskChange{Code: ChangeCanceled, State: applied[n].State}
			} else {
				again = append(again, i)
			}
		}
		return again, nil
	})
	return results, err
}

// cancelAnswer is what a task answers to a cancel of those in the states of only;
// asked: this call has asked its holder to stop. The code is 0 of one that is to be
// canceled, or whose holder has to be asked.
func cancelAnswer(t *Task, asked bool, only []State) TaskChange {
	switch {
	case t == nil:
		return TaskChange{Code: ChangeNotFound}
	case t.State.Waiting():
		return unlessOther(t, only)
	case t.State == StateCanceled && asked:
		return TaskChange{Code: ChangeCanceled, State: t.State}
	case t.State.Settled():
		return TaskChange{Code: ChangeAlreadySettled, State: t.State}
	case t.CancelRequested == CancelNone:
		return unlessOther(t, only)
	case asked:
		return TaskChange{Code: ChangeCancelRequested, State: t.State}
	default:
		return TaskChange{Code: ChangeAlreadyRequested, State: t.State}
	}
}

// unlessOther answers for a task that is to be changed if it is in one of the states
// of only; none: any. The code is 0 of one that is.
func unlessOther(t *Task, only []State) TaskChange {
	if len(only) == 0 || slices.Contains(only, t.State) {
		return TaskChange{}
	}
	return TaskChange{Code: ChangeOtherState, State: t.State}
}

// RevokeLeases ends the leases of tasks, which are due again at once with no
// attempt spent; note stands in their history. fences are those of the leases that
// are meant, in the order of the ids, 0 for any; nil: any. Renewals and reports of
// those who held them are answered [LostRevoked]. The results are in the order of
// the ids. The error is the whole call's: some may be revoked; repeat all.
func (d *Dispatcher) RevokeLeases(ctx context.Context, ids []TaskID, fences []uint64, note Note) ([]TaskChange, error) {
	results := make([]TaskChange, len(ids))
	revoke := func(t *Task, spec *SourceSpec, now time.Time) Transition {
		return d.policy.Revoke(t, spec, note, now)
	}
	err := d.changeTasks(ctx, "revoke the lease of", ids, func(at []int, tasks []*Task, now time.Time) ([]int, error) {
		var leased []*Task
		var from, again []int
		for n, i := range at {
			if results[i] = revokeAnswer(tasks[n], fences, i); results[i].Code == 0 {
				leased, from = append(leased, tasks[n]), append(from, i)
			}
		}
		applied, err := d.endLeases(ctx, leased, now, revoke)
		if err != nil {
			return nil, err
		}
		for n, i := range from {
			if applied[n].Code == Applied {
				results[i] = TaskChange{Code: ChangeRevoked, State: applied[n].State}
			} else {
				again = append(again, i)
			}
		}
		return again, nil
	})
	return results, err
}

// revokeAnswer is what the i-th task answers to the end of its lease; the code is 0
// where that is to be ended.
func revokeAnswer(t *Task, fences []uint64, i int) TaskChange {
	switch {
	case t == nil:
		return TaskChange{Code: ChangeNotFound}
	case t.State != StateLeased:
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
func (d *Dispatcher) changeTasks(ctx context.Context, what string, ids []TaskID,
	act func(at []int, tasks []*Task, now time.Time) (again []int, err error),
) error {
	for from := 0; from < len(ids); from += changePage {
		var open []int
		for i := from; i < min(from+changePage, len(ids)); i++ {
			open = append(open, i)
		}
		for try := 0; len(open) > 0; try++ {
			if try == settleTries {
				return fmt.Errorf("%s task %s: it was changed %d times in between: %w", what, ids[open[0]], settleTries, ErrStoreUnavailable)
			}
			tasks, now, err := d.store.Tasks(ctx, pick(ids, open), false)
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
