package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// WouldCancelTasks answers as [Operator.CancelTasks] would now, and changes nothing.
func (o *Operator) WouldCancelTasks(ctx context.Context, ids []dispatch.TaskID, only ...dispatch.State) ([]TaskChange, error) {
	return o.wouldChange(ctx, "cancel", ids, func(_ int, t *dispatch.Task) (TaskChange, error) {
		switch answer := cancelAnswer(t, false, only); {
		case answer.Code != 0:
			return answer, nil
		case t.State.Waiting():
			return TaskChange{Code: ChangeCanceled, State: dispatch.StateCanceled}, nil
		default:
			return TaskChange{Code: ChangeCancelRequested, State: t.State}, nil
		}
	})
}

// WouldRetryTasks answers as [Operator.RetryTasks] would now, and changes nothing.
// Whether a source's MaxOutstanding allows it, only the retry itself can tell.
func (o *Operator) WouldRetryTasks(ctx context.Context, ids []dispatch.TaskID, only ...dispatch.State) ([]TaskChange, error) {
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	var seeds seedsOf
	return o.wouldChange(ctx, "retry", ids, func(_ int, t *dispatch.Task) (TaskChange, error) {
		answer := retryAnswer(t, only)
		if answer.Code != 0 {
			return answer, nil
		}
		switch _, err := o.retry(ctx, book, t, &seeds, new(dispatch.Submission)); {
		case retryRefused(err):
			return TaskChange{Code: ChangeRefused, State: t.State, Err: err}, nil
		case err != nil:
			return TaskChange{}, err
		}
		return TaskChange{Code: ChangeRetried, State: dispatch.StateReady}, nil
	})
}

// WouldRevokeLeases answers as [Operator.RevokeLeases] would now, and changes
// nothing.
func (o *Operator) WouldRevokeLeases(ctx context.Context, ids []dispatch.TaskID, fences []uint64) ([]TaskChange, error) {
	return o.wouldChange(ctx, "revoke the lease of", ids, func(i int, t *dispatch.Task) (TaskChange, error) {
		answer := revokeAnswer(t, fences, i)
		if answer.Code == 0 {
			answer = TaskChange{Code: ChangeRevoked, State: dispatch.StateReady}
			if t.CancelRequested != dispatch.CancelNone {
				answer.State = dispatch.StateCanceled
			}
		}
		return answer, nil
	})
}

// wouldChange reads tasks and has answer say what would become of each.
func (o *Operator) wouldChange(ctx context.Context, what string, ids []dispatch.TaskID, answer func(i int, t *dispatch.Task) (TaskChange, error)) ([]TaskChange, error) {
	results := make([]TaskChange, len(ids))
	err := o.changeTasks(ctx, what, ids, func(at []int, tasks []*dispatch.Task, _ time.Time) (again []int, err error) {
		for n, i := range at {
			if results[i], err = answer(i, tasks[n]); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return results, err
}
