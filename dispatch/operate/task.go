package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// Task reads a task with all its details, completed by its source.
// ErrTaskNotFound.
func (o *Operator) Task(ctx context.Context, id dispatch.TaskID) (*dispatch.Task, error) {
	t, err := o.taskByID(ctx, id)
	if err != nil {
		return nil, err
	}
	if source, err := o.catalog.SourceOf(ctx, t); err == nil {
		engine.JoinSource(t, source)
	}
	return t, nil
}

// taskByID reads a task with its details. ErrTaskNotFound.
func (o *Operator) taskByID(ctx context.Context, id dispatch.TaskID) (*dispatch.Task, error) {
	tasks, _, err := o.store.Tasks(ctx, []dispatch.TaskID{id}, true)
	if err == nil && tasks[0] == nil {
		err = dispatch.ErrTaskNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", id, err)
	}
	return tasks[0], nil
}

// FindTaskID is the id that a task of the source has, or would have. Errors:
// ErrInvalid, ErrSourceNotFound.
func (o *Operator) FindTaskID(ctx context.Context, sourceID, url, key, queue string) (dispatch.TaskID, error) {
	source, err := o.liveSource(ctx, sourceID)
	if err != nil {
		return "", err
	}
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return "", fmt.Errorf("read queue rules: %w", err)
	}
	to, err := dispatch.ResolveTarget(source.Spec.CanonicalRules, url, key, queue, book.QueueOf)
	if err != nil {
		return "", err
	}
	return dispatch.NewTaskID(dispatch.Identity{Scope: source.Scope(), Queue: to.Queue, Key: to.Key}), nil
}

// ListTasks lists tasks of a source, of a queue, or of a source in a queue, in
// states other than done, with the last error of each. A page may hold fewer than
// limit, also because it is bounded in bytes ([bounds.MaxPageBytes]); next continues, the
// end is an empty next. Errors: ErrSourceNotFound.
func (o *Operator) ListTasks(ctx context.Context, sourceID, queue string, states []dispatch.State, cursor string, limit int) (tasks []*dispatch.Task, next string, err error) {
	filter := dispatch.TaskFilter{Queue: queue, States: states}
	if sourceID != "" {
		source, err := o.liveSource(ctx, sourceID)
		if err != nil {
			return nil, "", err
		}
		filter.SourceUID = source.UID
	}
	page, err := o.store.ListTasks(ctx, filter, cursor, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list tasks: %w", err)
	}
	return page.Tasks, page.Next, nil
}

// ListLeases lists leased tasks that match q, all where it is nil, with the store's time of
// the look. A page is bounded in bytes, too ([bounds.MaxPageBytes]), and may hold fewer than
// limit, even none; next continues, the end is an empty next.
func (o *Operator) ListLeases(ctx context.Context, q *TaskQuery, cursor string, limit int) (leased []*dispatch.Task, next string, now time.Time, err error) {
	if q == nil {
		leased, next, err = o.store.ListLeases(ctx, cursor, limit)
	} else {
		query := *q
		query.States, query.Whole = []dispatch.State{dispatch.StateLeased}, true
		var found []TaskMatch
		found, next, err = o.MatchTasks(ctx, &query, cursor, limit)
		for _, match := range found {
			leased = append(leased, match.Task)
		}
	}
	if err != nil {
		return nil, "", now, fmt.Errorf("list leases: %w", err)
	}
	now, err = o.Now(ctx)
	return leased, next, now, err
}

// Cancellation is who canceled a task that is CANCELED, or asked for it while it is LEASED,
// when and why; nil of any other, or if it is not known. A deletion of its source is that
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
