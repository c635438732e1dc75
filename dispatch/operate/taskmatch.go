package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	// matchLooks is how many tasks one call of MatchTasks looks at, and those of the
	// list that it is in then; a list counts as placeLooks of them at least.
	matchLooks = 10_000
	placeLooks = 50
	// matchPlaces is how many sources or queues it reads at a time.
	matchPlaces = 100
)

// TaskQuery selects tasks for an operator's call. All that is set must hold.
type TaskQuery struct {
	SourceID    string           // tasks of this source
	Sources     SourceQuery      // of sources that match; its Health is not looked at
	Queue       string           // in this queue
	QueueSuffix string           // in the queue of this name, and those below it
	Collector   string           // leased to this collector
	States      []dispatch.State // in one of these; required, and none of them done
	// Reasons of the failure that went wrong last.
	Reasons []dispatch.FailureReason
	// Created at or after CreatedFrom, and before CreatedBefore.
	CreatedFrom, CreatedBefore time.Time
	// Standing leaves out leases that were granted, and tasks that settled, after the
	// first page was read: what is changed by the pages would match again.
	Standing bool
	// Whole: the matches come with their tasks.
	Whole bool
}

// TaskMatch is a task that a query has found; Fence is that of its lease, 0 where
// it has none.
type TaskMatch struct {
	ID    dispatch.TaskID
	Fence uint64
	Task  *dispatch.Task // nil unless the query is Whole
}

// MatchTasks lists tasks that q selects, wherever they are. A page may hold fewer
// than limit, even none; next continues, the end is an empty next. A task that
// moves meanwhile can be seen in two pages, or in none. Errors: ErrSourceNotFound.
func (o *Operator) MatchTasks(ctx context.Context, q *TaskQuery, cursor string, limit int) (found []TaskMatch, next string, err error) {
	w := &taskWalk{o: o, q: q, limit: limit, looks: matchLooks, seen: make(map[dispatch.TaskID]bool)}
	if err := w.begin(ctx, cursor); err != nil {
		return nil, "", err
	}
	if err := w.walk(ctx); err != nil {
		return nil, "", fmt.Errorf("look for tasks: %w", err)
	}
	if !w.ended {
		next = fmt.Sprintf("%d %s %s", w.began.UnixMilli(), w.place, w.inside)
	}
	return w.found, next, nil
}

// taskWalk looks for tasks of a query in one place after the other: sources or
// queues. Whatever the query says, it is one walk, so that its cursor goes on in it.
type taskWalk struct {
	o            *Operator
	q            *TaskQuery
	limit, looks int       // what is left of them
	began        time.Time // by the store's clock, the first page
	// place is the source or queue that is read, after inside, or was read, when
	// inside is empty.
	place, inside string
	ended         bool
	found         []TaskMatch
	seen          map[dispatch.TaskID]bool
}

// begin reads where the page begins.
func (w *taskWalk) begin(ctx context.Context, cursor string) (err error) {
	if cursor == "" {
		if !w.q.Standing {
			return nil
		}
		w.began, err = w.o.Now(ctx)
		return err
	}
	began, rest, _ := strings.Cut(cursor, " ")
	ms, err := strconv.ParseInt(began, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
	}
	w.began = time.UnixMilli(ms)
	w.place, w.inside, _ = strings.Cut(rest, " ")
	return nil
}

// taskList lists tasks of one place.
type taskList func(ctx context.Context, cursor string, limit int) (dispatch.TaskPage, error)

// walk takes the way with the fewest places. It does not search the queues of a suffix for settled
// tasks: queues that hold no others may not exist.
func (w *taskWalk) walk(ctx context.Context) (err error) {
	q, everySource := w.q, w.q.Sources.Prefix == "" && w.q.Sources.Pool == "" && len(w.q.Sources.Labels) == 0
	switch {
	case q.SourceID != "":
		source, err := w.o.liveSource(ctx, q.SourceID)
		if err != nil {
			return err
		}
		if w.ended = !q.Sources.matches(source); !w.ended {
			w.ended, err = w.read(ctx, w.in(w.ofSource(source)))
		}
		return err
	case !everySource:
		return w.places(ctx, w.sources, w.restOfSource)
	case q.Queue != "":
		w.ended, err = w.read(ctx, w.in(w.ofQueue(q.Queue)))
		return err
	case q.QueueSuffix != "" && !slices.ContainsFunc(q.States, dispatch.State.Settled):
		return w.places(ctx, w.queues, w.restOfQueue)
	case q.Collector != "":
		w.ended, err = w.read(ctx, w.leases)
		return err
	default:
		return w.places(ctx, w.sources, w.restOfSource)
	}
}

// ofSource selects the tasks of a source.
func (w *taskWalk) ofSource(source *dispatch.Source) dispatch.TaskFilter {
	return dispatch.TaskFilter{SourceUID: source.UID, Queue: w.q.Queue, States: w.q.States}
}

// ofQueue selects the tasks of a queue.
func (w *taskWalk) ofQueue(name string) dispatch.TaskFilter {
	return dispatch.TaskFilter{Queue: name, States: w.q.States}
}

// in lists the tasks of a filter.
func (w *taskWalk) in(filter dispatch.TaskFilter) taskList {
	return func(ctx context.Context, cursor string, limit int) (dispatch.TaskPage, error) {
		return w.o.store.ListTasks(ctx, filter, cursor, limit)
	}
}

// leases lists what is leased, wherever it is.
func (w *taskWalk) leases(ctx context.Context, cursor string, limit int) (dispatch.TaskPage, error) {
	leased, next, err := w.o.store.ListLeases(ctx, cursor, limit)
	return dispatch.TaskPage{Tasks: leased, Next: next, Looked: len(leased)}, err
}

// read reads on in a place, and reports whether it came to its end. Tasks come with
// their payloads, of which no more than those of a changePage are in memory.
func (w *taskWalk) read(ctx context.Context, list taskList) (end bool, err error) {
	for w.room() {
		page, err := list(ctx, w.inside, min(w.limit, changePage))
		if err != nil {
			return false, err
		}
		w.looks -= max(page.Looked, placeLooks)
		w.keep(page.Tasks)
		if w.inside = page.Next; page.Next == "" {
			return true, nil
		}
	}
	return false, nil
}

func (w *taskWalk) room() bool { return w.limit > 0 && w.looks > 0 }

// place is a source or queue that may have matching tasks.
type place struct {
	name  string
	tasks dispatch.TaskFilter
}

// places reads one place after another: the rest of w.place, and those after it. list returns a page of
// places and the last name that it looked at, which is empty at the end.
func (w *taskWalk) places(ctx context.Context, list func(context.Context) (page []place, last string, err error), rest taskList) error {
	if w.inside != "" {
		if end, err := w.read(ctx, rest); err != nil || !end {
			return err
		}
	}
	for w.room() {
		page, last, err := list(ctx)
		if err != nil {
			return err
		}
		w.looks -= placeLooks
		for _, p := range page {
			if !w.room() {
				return nil
			}
			w.place = p.name
			if end, err := w.read(ctx, w.in(p.tasks)); err != nil || !end {
				return err
			}
		}
		if w.ended = last == ""; w.ended {
			return nil
		}
		w.place = last
	}
	return nil
}

func (w *taskWalk) restOfQueue(ctx context.Context, cursor string, limit int) (dispatch.TaskPage, error) {
	return w.o.store.ListTasks(ctx, w.ofQueue(w.place), cursor, limit)
}

// restOfSource is empty if the source was deleted since the last page.
func (w *taskWalk) restOfSource(ctx context.Context, cursor string, limit int) (dispatch.TaskPage, error) {
	source, err := w.o.liveSource(ctx, w.place)
	if errors.Is(err, dispatch.ErrSourceNotFound) {
		return dispatch.TaskPage{}, nil
	}
	if err != nil {
		return dispatch.TaskPage{}, err
	}
	return w.o.store.ListTasks(ctx, w.ofSource(source), cursor, limit)
}

// sources lists the sources that match, and have tasks in the states that are meant by their counts.
func (w *taskWalk) sources(ctx context.Context) (page []place, last string, err error) {
	sources, more, err := w.o.store.ListSources(ctx, dispatch.SourceFilter{Prefix: w.q.Sources.Prefix}, w.place, matchPlaces)
	if err != nil {
		return nil, "", fmt.Errorf("list sources: %w", err)
	}
	if more {
		last = sources[len(sources)-1].ID
	}
	sources = slices.DeleteFunc(sources, func(s *dispatch.Source) bool { return s.Deleted || !w.q.Sources.matches(s) })
	uids := make([]string, len(sources))
	for i, source := range sources {
		uids[i] = source.UID
	}
	statuses, err := w.o.store.SourceStatuses(ctx, uids, false)
	if err != nil {
		return nil, "", fmt.Errorf("read source statuses: %w", err)
	}
	for i, source := range sources {
		counts := statuses[i].Counts
		if slices.ContainsFunc(w.q.States, func(s dispatch.State) bool { return countIn(counts, s) > 0 }) {
			page = append(page, place{source.ID, w.ofSource(source)})
		}
	}
	return page, last, nil
}

// countIn counts the tasks that may be in a state. Those that have not settled go from one to
// the other by time alone, before they are counted so.
func countIn(c dispatch.StateCounts, s dispatch.State) int64 {
	switch s {
	case dispatch.StateDead:
		return c.Dead
	case dispatch.StateCanceled:
		return c.Canceled
	case dispatch.StateDone:
		return c.Done
	default:
		return c.Scheduled + c.Ready + c.Leased
	}
}

// queues lists the queues below a suffix.
func (w *taskWalk) queues(ctx context.Context) (page []place, last string, err error) {
	queues, err := w.o.store.ListQueues(ctx, w.q.QueueSuffix, w.place, matchPlaces)
	if err != nil {
		return nil, "", fmt.Errorf("list queues: %w", err)
	}
	for _, queue := range queues {
		page = append(page, place{queue.Name, w.ofQueue(queue.Name)})
	}
	if len(queues) == matchPlaces {
		last = queues[len(queues)-1].Name
	}
	return page, last, nil
}

// keep takes those tasks that match.
func (w *taskWalk) keep(tasks []*dispatch.Task) {
	tasks = slices.DeleteFunc(tasks, func(t *dispatch.Task) bool { return w.seen[t.ID] || !w.q.selects(t) || w.since(t) })
	for _, t := range tasks {
		match := TaskMatch{ID: t.ID}
		if t.Lease != nil {
			match.Fence = t.Lease.Digest.Fence
		}
		if w.q.Whole {
			match.Task = t
		}
		w.seen[t.ID], w.found = true, append(w.found, match)
	}
	w.limit -= len(tasks)
}

// since reports whether a task has become what it is after the first page was read,
// and the query leaves such out.
func (w *taskWalk) since(t *dispatch.Task) bool {
	became := t.SettledAt
	if t.Lease != nil {
		became = t.Lease.Granted
	}
	return w.q.Standing && became.After(w.began)
}

// selects reports whether a task matches in its record and its last error.
func (q *TaskQuery) selects(t *dispatch.Task) bool {
	switch {
	case !slices.Contains(q.States, t.State):
	case q.Queue != "" && t.Queue != q.Queue:
	case q.QueueSuffix != "" && t.Queue != q.QueueSuffix && !strings.HasSuffix(t.Queue, "."+q.QueueSuffix):
	case q.Collector != "" && (t.Lease == nil || t.Lease.Token.Collector != q.Collector):
	case len(q.Reasons) > 0 && !failedBy(t.LastError, q.Reasons):
	case t.Created.Before(q.CreatedFrom) || !q.CreatedBefore.IsZero() && !t.Created.Before(q.CreatedBefore):
	default:
		return true
	}
	return false
}

// failedBy reports whether the failure, if there is one, is a collector's report with one
// of the reasons.
func failedBy(f *dispatch.Failure, reasons []dispatch.FailureReason) bool {
	return f != nil && f.Result == dispatch.ResultFailed && slices.Contains(reasons, f.Reason)
}
