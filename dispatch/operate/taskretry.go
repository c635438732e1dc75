package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// RetryTasks makes settled tasks due now, with their body and memo, and with the
// counters of a first attempt: budgets and breaker begin anew. Those that wait
// or are leased stay as they are. The results are in the order of the ids. The error is
// the whole call's: some may be due; repeat all, and those answer [ChangeNotSettled].
// Only the retry itself finds out whether a source's MaxOutstanding allows it.
func (o *Operator) RetryTasks(ctx context.Context, e TaskEdit) ([]TaskChange, error) {
	results := make([]TaskChange, len(e.IDs))
	err := o.changeTasks(ctx, "retry", e.IDs, func(at []int, tasks []*dispatch.Task, _ time.Time) ([]int, error) {
		var settled []*dispatch.Task
		var from []int
		for n, i := range at {
			if results[i] = retryAnswer(tasks[n], e.States); results[i].Code == 0 {
				settled, from = append(settled, tasks[n]), append(from, i)
			}
		}
		retry := o.retrySettled
		if e.DryRun {
			retry = o.wouldRetry
		}
		changes, again, err := retry(ctx, settled)
		for n, i := range from {
			results[i] = changes[n]
		}
		return choose(from, again), err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// retrySettled brings settled tasks back as they were read. again are the places of
// those that have been brought back since, and have settled again.
func (o *Operator) retrySettled(ctx context.Context, tasks []*dispatch.Task) (results []TaskChange, again []int, err error) {
	results = make([]TaskChange, len(tasks))
	var seeds seedsOf
	err = o.d.SubmitAll(ctx, len(tasks), func(i int, known *engine.Known, item *dispatch.Submission) (*dispatch.Source, error) {
		source, err := o.retry(ctx, known.Rules, tasks[i], &seeds, item)
		if retryRefused(err) {
			results[i] = TaskChange{Code: ChangeRefused, State: tasks[i].State, Err: err}
			return nil, nil
		}
		return source, err
	}, func(i int, _ *dispatch.Submission, r dispatch.SubmitResult) {
		switch results[i] = (TaskChange{Code: ChangeRetried, State: r.State}); r.Code {
		case dispatch.SubmitExists: // others have brought it back since it was read
			if results[i].Code = ChangeNotSettled; r.State.Settled() {
				again = append(again, i)
			}
		case dispatch.SubmitLimited:
			results[i].Code = ChangeLimited
		case dispatch.SubmitSourceDeleted:
			err := fmt.Errorf("source_id %q: %w", tasks[i].SourceID, dispatch.ErrSourceNotFound)
			results[i] = TaskChange{Code: ChangeRefused, State: tasks[i].State, Err: err}
		case dispatch.SubmitCreated, dispatch.SubmitRevisit, dispatch.SubmitStaleSource, dispatch.SubmitStaleRules:
		}
	})
	return results, again, err
}

// wouldRetry answers as retrySettled would now.
func (o *Operator) wouldRetry(ctx context.Context, tasks []*dispatch.Task) (results []TaskChange, again []int, err error) {
	results = make([]TaskChange, len(tasks))
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return results, nil, fmt.Errorf("read queue rules: %w", err)
	}
	var seeds seedsOf
	for i, t := range tasks {
		results[i] = TaskChange{Code: ChangeRetried, State: dispatch.StateReady}
		_, err := o.retry(ctx, book, t, &seeds, new(dispatch.Submission))
		switch {
		case retryRefused(err):
			results[i] = TaskChange{Code: ChangeRefused, State: t.State, Err: err}
		case err != nil:
			return results, nil, err
		}
	}
	return results, nil, nil
}

// retryAnswer is what a task answers to a retry of those in the states of only; the
// code is 0 of one that has settled so.
func retryAnswer(t *dispatch.Task, only []dispatch.State) TaskChange {
	switch {
	case t == nil:
		return TaskChange{Code: ChangeNotFound}
	case !t.State.Settled():
		return TaskChange{Code: ChangeNotSettled, State: t.State}
	default:
		return unlessOther(t, only)
	}
}

// retryRefused reports whether an error of [Operator.retry] is the task's own.
func retryRefused(err error) bool {
	return errors.Is(err, dispatch.ErrSourceNotFound) || errors.Is(err, dispatch.ErrInvalid)
}

// retry makes the item that brings a settled task back as it was. The error
// wraps ErrSourceNotFound or ErrInvalid when it cannot come back.
func (o *Operator) retry(ctx context.Context, rules *engine.RuleBook, t *dispatch.Task, seeds *seedsOf, item *dispatch.Submission) (*dispatch.Source, error) {
	source, err := o.catalog.SourceOf(ctx, t)
	if errors.Is(err, dispatch.ErrSourceNotFound) || err == nil && source.Deleted {
		err = fmt.Errorf("source_id %q: %w", t.SourceID, dispatch.ErrSourceNotFound)
	}
	if err != nil {
		return nil, err
	}
	if t.URL == "" && t.Key == "" {
		return nil, dispatch.Invalid("task_ids", t.ID, "has succeeded, and what it was about is not kept: submit it again")
	}
	if t.Recurring {
		ids, err := seeds.ids(source, rules)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, t.ID) { // it would recur under no source
			return nil, dispatch.Invalid("task_ids", t.ID, fmt.Sprintf("was a seed of source %q, and is none any more", source.ID))
		}
	}
	*item = dispatch.Submission{
		ID: t.ID, SourceUID: t.SourceUID, Scope: source.Scope(), Queue: t.Queue, URL: t.URL, Key: t.Key, Kind: t.Kind,
		Recurring: t.Recurring, Relation: t.Relation, Redirect: t.Redirect, Depth: t.Depth, Run: t.Run, Priority: t.Priority, FirstDue: t.FirstDue,
		Metadata: t.Metadata, Payload: t.Payload, IfExists: dispatch.IfExistsRetry, Revision: t.Revision,
	}
	return source, nil
}

// seedsOf is what the seeds of the source that was asked for last are, by the
// rules as they were then.
type seedsOf struct {
	source *dispatch.Source
	rules  *engine.RuleBook
	found  []dispatch.TaskID
}

func (s *seedsOf) ids(source *dispatch.Source, rules *engine.RuleBook) ([]dispatch.TaskID, error) {
	if s.source == source && s.rules == rules {
		return s.found, nil
	}
	_, ids, err := seedSubmissions(source, rules)
	if err == nil {
		*s = seedsOf{source, rules, ids}
	}
	return ids, err
}
