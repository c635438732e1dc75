package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// RetryTasks makes settled tasks due now, with their body and memo, and with the
// counters of a first attempt: budgets and breaker begin anew. Those that wait
// or are leased stay as they are, and those that have settled in none of the states
// of only; none: any. The results are in the order of the ids. The error is the
// whole call's: some may be due; repeat all, and those answer [ChangeNotSettled].
func (d *Dispatcher) RetryTasks(ctx context.Context, ids []TaskID, only ...State) ([]TaskChange, error) {
	results := make([]TaskChange, len(ids))
	err := d.changeTasks(ctx, "retry", ids, func(at []int, tasks []*Task, _ time.Time) ([]int, error) {
		var settled []*Task
		var from []int
		for n, i := range at {
			if results[i] = retryAnswer(tasks[n], only); results[i].Code == 0 {
				settled, from = append(settled, tasks[n]), append(from, i)
			}
		}
		changes, again, err := d.retrySettled(ctx, settled)
		for n, i := range from {
			results[i] = changes[n]
		}
		return pick(from, again), err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// retrySettled brings settled tasks back as they were read. again are the places of
// those that have been brought back since, and have settled again.
func (d *Dispatcher) retrySettled(ctx context.Context, tasks []*Task) (results []TaskChange, again []int, err error) {
	results = make([]TaskChange, len(tasks))
	var seeds seedsOf
	err = d.submitAll(ctx, len(tasks), func(i int, known *knowledge, item *Submission) (*Source, error) {
		source, err := known.retry(ctx, tasks[i], &seeds, item)
		if retryRefused(err) {
			results[i] = TaskChange{Code: ChangeRefused, State: tasks[i].State, Err: err}
			return nil, nil
		}
		return source, err
	}, func(i int, _ *Submission, r SubmitResult) {
		switch results[i] = (TaskChange{Code: ChangeRetried, State: r.State}); r.Code {
		case SubmitExists: // others have brought it back since it was read
			if results[i].Code = ChangeNotSettled; r.State.Settled() {
				again = append(again, i)
			}
		case SubmitLimited:
			results[i].Code = ChangeLimited
		case SubmitSourceDeleted:
			err := fmt.Errorf("source_id %q: %w", tasks[i].SourceID, ErrSourceNotFound)
			results[i] = TaskChange{Code: ChangeRefused, State: tasks[i].State, Err: err}
		case SubmitCreated, SubmitRevisit, SubmitStaleSource, SubmitStaleRules:
		}
	})
	return results, again, err
}

// retryAnswer is what a task answers to a retry of those in the states of only; the
// code is 0 of one that has settled so.
func retryAnswer(t *Task, only []State) TaskChange {
	switch {
	case t == nil:
		return TaskChange{Code: ChangeNotFound}
	case !t.State.Settled():
		return TaskChange{Code: ChangeNotSettled, State: t.State}
	default:
		return unlessOther(t, only)
	}
}

// retryRefused reports whether an error of [knowledge.retry] is the task's own.
func retryRefused(err error) bool {
	return errors.Is(err, ErrSourceNotFound) || errors.Is(err, ErrQueueDenied) || errors.Is(err, ErrInvalid)
}

// retry makes the item that brings a settled task back as it was. The error
// wraps ErrSourceNotFound, ErrQueueDenied or ErrInvalid when it cannot come back.
func (k *knowledge) retry(ctx context.Context, t *Task, seeds *seedsOf, item *Submission) (*Source, error) {
	source, err := k.catalog.spec(ctx, t.SourceID, t.SourceUID, 0)
	if errors.Is(err, ErrSourceNotFound) || err == nil && source.Deleted {
		err = fmt.Errorf("source_id %q: %w", t.SourceID, ErrSourceNotFound)
	}
	if err != nil {
		return nil, err
	}
	if k.queueOf(t.Queue).denied {
		return nil, fmt.Errorf("queue %q: %w", t.Queue, ErrQueueDenied)
	}
	if t.Recurring {
		ids, err := seeds.ids(source, k.rules)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, t.ID) { // it would recur under no source
			return nil, Invalid("task_ids", t.ID, fmt.Sprintf("was a seed of source %q, and is none any more", source.ID))
		}
	}
	*item = Submission{
		ID: t.ID, SourceUID: t.SourceUID, Scope: source.Scope(), Queue: t.Queue, URL: t.URL, Key: t.Key, Kind: t.Kind,
		Recurring: t.Recurring, Depth: t.Depth, Run: t.Run, Priority: t.Priority, FirstDue: t.FirstDue,
		Metadata: t.Metadata, Payload: t.Payload, IfExists: IfExistsRetry, Revision: t.Revision,
	}
	return source, nil
}

// seedsOf is what the seeds of the source that was asked for last are, by the
// rules as they were then.
type seedsOf struct {
	source *Source
	rules  *ruleBook
	found  []TaskID
}

func (s *seedsOf) ids(source *Source, rules *ruleBook) ([]TaskID, error) {
	if s.source == source && s.rules == rules {
		return s.found, nil
	}
	_, ids, err := seedSubmissions(source, rules)
	if err == nil {
		*s = seedsOf{source, rules, ids}
	}
	return ids, err
}
