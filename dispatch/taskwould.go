package dispatch

import (
	"context"
	"fmt"
	"time"
)

// WouldCancelTasks answers as [Dispatcher.CancelTasks] would now, and changes nothing.
func (d *Dispatcher) WouldCancelTasks(ctx context.Context, ids []TaskID, only ...State) ([]TaskChange, error) {
	return d.wouldChange(ctx, "cancel", ids, func(_ int, t *Task) (TaskChange, error) {
		switch answer := cancelAnswer(t, false, only); {
		case answer.Code != 0:
			return answer, nil
		case t.State.Waiting():
			return TaskChange{Code: ChangeCanceled, State: StateCanceled}, nil
		default:
			return TaskChange{Code: ChangeCancelRequested, State: t.State}, nil
		}
	})
}

// WouldRetryTasks answers as [Dispatcher.RetryTasks] would now, and changes nothing.
// Whether a source's MaxOutstanding allows it, only the retry itself can tell.
func (d *Dispatcher) WouldRetryTasks(ctx context.Context, ids []TaskID, only ...State) ([]TaskChange, error) {
	book, err := d.catalog.ruleBook(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	known := knowledge{catalog: d.catalog, rules: book}
	var seeds seedsOf
	return d.wouldChange(ctx, "retry", ids, func(_ int, t *Task) (TaskChange, error) {
		answer := retryAnswer(t, only)
		if answer.Code != 0 {
			return answer, nil
		}
		switch _, err := known.retry(ctx, t, &seeds, new(Submission)); {
		case retryRefused(err):
			return TaskChange{Code: ChangeRefused, State: t.State, Err: err}, nil
		case err != nil:
			return TaskChange{}, err
		}
		return TaskChange{Code: ChangeRetried, State: StateReady}, nil
	})
}

// WouldRevokeLeases answers as [Dispatcher.RevokeLeases] would now, and changes
// nothing.
func (d *Dispatcher) WouldRevokeLeases(ctx context.Context, ids []TaskID, fences []uint64) ([]TaskChange, error) {
	return d.wouldChange(ctx, "revoke the lease of", ids, func(i int, t *Task) (TaskChange, error) {
		answer := revokeAnswer(t, fences, i)
		if answer.Code == 0 {
			answer = TaskChange{Code: ChangeRevoked, State: StateReady}
			if t.CancelRequested != CancelNone {
				answer.State = StateCanceled
			}
		}
		return answer, nil
	})
}

// wouldChange reads tasks and has answer say what would become of each.
func (d *Dispatcher) wouldChange(ctx context.Context, what string, ids []TaskID, answer func(i int, t *Task) (TaskChange, error)) ([]TaskChange, error) {
	results := make([]TaskChange, len(ids))
	err := d.changeTasks(ctx, what, ids, func(at []int, tasks []*Task, _ time.Time) (again []int, err error) {
		for n, i := range at {
			if results[i], err = answer(i, tasks[n]); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return results, err
}
