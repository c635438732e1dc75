package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
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
func (o *Operator) CancelTasks(ctx context.Context, ids []dispatch.TaskID, note dispatch.Note, only ...dispatch.State) ([]TaskChange, error) {
	results, asked := make([]TaskChange, len(ids)), make([]bool, len(ids))
	err := o.changeTasks(ctx, "cancel", ids, func(at []int, tasks []*dispatch.Task, now time.Time) ([]int, error) {
		var waiting []*dispatch.Task
		var from, again []int
		var leased []dispatch.TaskID
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
			if err := o.store.RequestCancel(ctx, leased, dispatch.CancelTask, note.Canceled(now)); err != nil {
				return nil, err
			}
		}
		applied, err := o.d.EndLeases(ctx, waiting, now, func(t *dispatch.Task, spec *dispatch.SourceSpec, now time.Time) dispatch.Transition {
			return o.policy.Cancel(t, spec, note, now)
		})
		if err != nil {
			return nil, err
		}
		for n, i := range from {
			if applied[n].Code == dispatch.Applied {
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
	case t.CancelRequested == dispatch.CancelNone:
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
// attempt spent; note stands in their history. fences are those of the leases that
// are meant, in the order of the ids, 0 for any; nil: any. Renewals and reports of
// those who held them are answered [LostRevoked]. The results are in the order of
// the ids. The error is the whole call's: some may be revoked; repeat all.
func (o *Operator) RevokeLeases(ctx context.Context, ids []dispatch.TaskID, fences []uint64, note dispatch.Note) ([]TaskChange, error) {
	results := make([]TaskChange, len(ids))
	revoke := func(t *dispatch.Task, spec *dispatch.SourceSpec, now time.Time) dispatch.Transition {
		return o.policy.Revoke(t, spec, note, now)
	}
	err := o.changeTasks(ctx, "revoke the lease of", ids, func(at []int, tasks []*dispatch.Task, now time.Time) ([]int, error) {
		var leased []*dispatch.Task
		var from, again []int
		for n, i := range at {
			if results[i] = revokeAnswer(tasks[n], fences, i); results[i].Code == 0 {
				leased, from = append(leased, tasks[n]), append(from, i)
			}
		}
		applied, err := o.d.EndLeases(ctx, leased, now, revoke)
		if err != nil {
			return nil, err
		}
		for n, i := range from {
			if applied[n].Code == dispatch.Applied {
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

// Cancellation is who canceled a task that is CANCELED, or asked for it while it is LEASED,
// when and why; nil of any other, or where nobody said. A deletion of its source is that
// only of what was not CANCELED before it. It takes a task with details.
func Cancellation(t *dispatch.Task) *dispatch.Gate {
	if t.State != dispatch.StateCanceled && t.CancelRequested == dispatch.CancelNone {
		return nil
	}
	deletion := t.SourceDeleted
	for i := len(t.History) - 1; i >= 0; i-- {
		a := &t.History[i]
		if a.Result != dispatch.ResultCanceled {
			continue
		}
		if deletion == nil || !a.Ended.Before(deletion.Time) || t.State == dispatch.StateCanceled && t.SettledAt.Before(deletion.Time) {
			return &dispatch.Gate{By: a.By, Reason: a.Reason, Time: a.Ended}
		}
		break
	}
	return deletion
}
