package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// staleTries limits the retries of a submit after a source or the queue rules changed meanwhile.
const staleTries = 5

// NewTask is a task that a producer submits.
type NewTask struct {
	SourceID, URL, Key, Queue, Kind string
	Priority                        int
	Due                             time.Time // zero: now
	Metadata                        map[string]string
	Payload                         []byte
	Traceparent                     string            // W3C trace context of the call that submits it; empty: it is not sampled
	IfExists                        dispatch.IfExists // Keep, Sooner or Again
}

// NewTaskResult answers a NewTask. Err is nil, or wraps [ErrInvalid] or
// [ErrSourceNotFound]; then the item was not taken.
type NewTaskResult struct {
	ID    dispatch.TaskID
	Code  dispatch.SubmitCode
	State dispatch.State
	Err   error
}

// SubmitTasks submits tasks of producers. The results are in the order of the tasks; an invalid task has its error
// there and does not fail the others. An error is for the whole call: some tasks may be taken. Repeat all; those get
// SubmitExists.
func (d *Dispatcher) SubmitTasks(ctx context.Context, tasks []NewTask) ([]NewTaskResult, error) {
	now, err := d.nowFor(ctx, tasks)
	if err != nil {
		return nil, err
	}
	results := make([]NewTaskResult, len(tasks))
	if err := d.readSourcesOf(ctx, tasks); err != nil {
		return results, err
	}
	err = d.SubmitAll(ctx, len(tasks), func(i int, known *Known, item *dispatch.Submission) (*dispatch.Source, error) {
		source, _, err := known.source(ctx, tasks[i].SourceID)
		if err != nil || source.Deleted {
			if err == nil || errors.Is(err, dispatch.ErrSourceNotFound) {
				results[i].Err = fmt.Errorf("source_id %q: %w", tasks[i].SourceID, dispatch.ErrSourceNotFound)
				return nil, nil
			}
			return nil, err
		}
		if err := known.submission(source, &tasks[i], now, item); err != nil {
			results[i].Err = err
			return nil, nil
		}
		return source, nil
	}, func(i int, item *dispatch.Submission, r dispatch.SubmitResult) {
		if r.Code == dispatch.SubmitSourceDeleted {
			results[i].Err = fmt.Errorf("source_id %q: %w", tasks[i].SourceID, dispatch.ErrSourceNotFound)
			return
		}
		results[i].ID, results[i].Code, results[i].State = item.ID, r.Code, r.State
	})
	return results, err
}

// readSourcesOf reads the sources of all tasks into the cache, in one call.
func (d *Dispatcher) readSourcesOf(ctx context.Context, tasks []NewTask) error {
	var ids []string
	for i := range tasks {
		if id := tasks[i].SourceID; len(ids) == 0 || ids[len(ids)-1] != id {
			ids = append(ids, id)
		}
	}
	for _, found := range d.catalog.lookup(ctx, ids) {
		if found.err != nil && !errors.Is(found.err, dispatch.ErrSourceNotFound) {
			return found.err
		}
	}
	return nil
}

// nowFor reads the store's clock if a task has a due time, since a past due time becomes now. Tasks without one are due
// when the store takes them.
func (d *Dispatcher) nowFor(ctx context.Context, tasks []NewTask) (time.Time, error) {
	if !slices.ContainsFunc(tasks, func(t NewTask) bool { return !t.Due.IsZero() }) {
		return time.Time{}, nil
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return now, fmt.Errorf("read the store's clock: %w", err)
	}
	return now, nil
}

// Known is the data that the items of one submit are prepared from.
type Known struct {
	catalog *Catalog
	// Rules are the queue rules.
	Rules *RuleBook
	// id has been looked up last.
	id     string
	found  *dispatch.Source
	follow *Follower
	// steps are those that the patterns could take for the items of task so far, see bounds.MaxPatternSteps.
	task  *dispatch.Task
	steps int
}

// source finds a source; most items of a submit have the same one.
func (k *Known) source(ctx context.Context, id string) (*dispatch.Source, *Follower, error) {
	if k.found == nil || k.id != id {
		source, follow, err := k.catalog.Source(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		k.id, k.found, k.follow = id, source, follow
	}
	return k.found, k.follow, nil
}

// submission makes the item of a producer's task.
func (k *Known) submission(source *dispatch.Source, t *NewTask, now time.Time, item *dispatch.Submission) error {
	to, err := dispatch.ResolveTarget(source.Spec.CanonicalRules, t.URL, t.Key, t.Queue, k.Rules.QueueOf)
	if err == nil {
		err = metadataFits(source, t.Metadata)
	}
	if err != nil {
		return err
	}
	k.aim(item, source, to)
	item.URL, item.Kind, item.Priority = to.Address, t.Kind, t.Priority
	item.Metadata, item.Payload, item.IfExists, item.Traceparent = t.Metadata, t.Payload, t.IfExists, t.Traceparent
	if !t.Due.IsZero() {
		if item.Due = t.Due; item.Due.Before(now) {
			item.Due = now
		}
	}
	return nil
}

// aim sets the fields of an item that its target and its source decide.
func (k *Known) aim(item *dispatch.Submission, source *dispatch.Source, to dispatch.Target) {
	id := dispatch.Identity{Scope: source.Scope(), Queue: to.Queue, Key: to.Key}
	item.ID, item.SourceUID, item.RevisitAfter = dispatch.NewTaskID(id), source.UID, source.Spec.RevisitAfter
	item.Scope, item.Queue, item.Key = id.Scope, id.Queue, id.Key
}

// SubmitAll submits n items. prepare makes each item from the catalog; if it returns a nil source, it must not have
// changed the item, which is left out. done gets each answer. Items that the store refuses as stale are prepared again
// with fresh data.
func (d *Dispatcher) SubmitAll(ctx context.Context, n int,
	prepare func(i int, known *Known, item *dispatch.Submission) (*dispatch.Source, error),
	done func(i int, item *dispatch.Submission, r dispatch.SubmitResult),
) error {
	open := make([]int, n)
	for i := range open {
		open[i] = i
	}
	for range staleTries {
		if len(open) == 0 {
			return nil
		}
		book, err := d.catalog.Rules(ctx)
		if err != nil {
			return fmt.Errorf("read queue rules: %w", err)
		}
		known := Known{catalog: d.catalog, Rules: book}
		items, from := make([]dispatch.Submission, len(open)), open[:0]
		var gates []dispatch.SourceGate
		gated := make(map[string]bool)
		var last *dispatch.Source
		for _, i := range open {
			source, err := prepare(i, &known, &items[len(from)])
			if err != nil {
				return err
			}
			if source == nil {
				continue
			}
			if source != last && !gated[source.UID] {
				gated[source.UID] = true
				gates = append(gates, source.Gate())
			}
			last = source
			from = append(from, i)
		}
		if open, err = d.submitOnce(ctx, book.Version, gates, items[:len(from)], from, done); err != nil {
			return err
		}
	}
	return fmt.Errorf("submit: sources or queue rules changed %d times in between: %w", staleTries, dispatch.ErrStoreUnavailable)
}

// submitOnce returns the indexes of the items to prepare again. After an error some items may be taken: when all are submitted again,
// these exist.
func (d *Dispatcher) submitOnce(ctx context.Context, rules int64, gates []dispatch.SourceGate, items []dispatch.Submission, from []int,
	done func(i int, item *dispatch.Submission, r dispatch.SubmitResult),
) ([]int, error) {
	if len(items) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	answers, err := d.store.Submit(ctx, rules, gates, items)
	if err != nil {
		return nil, fmt.Errorf("submit tasks: %w", timedOut(ctx.Err(), err))
	}
	var again []int
	for n, answer := range answers {
		switch answer.Code {
		case dispatch.SubmitStaleSource, dispatch.SubmitStaleRules:
			again = append(again, from[n])
		case dispatch.SubmitCreated, dispatch.SubmitExists, dispatch.SubmitRevisit, dispatch.SubmitLimited, dispatch.SubmitSourceDeleted:
			done(from[n], &items[n], answer)
		}
	}
	return again, nil
}

// page is a task and the items that its page leads to.
type page struct {
	task  *dispatch.Task
	items []dispatch.DiscoveredItem
}

// discover submits the items of pages, by their sources' follow rules. The depth is the parent's plus one; for the
// target of a redirect, the parent's. Run and metadata are inherited.
func (d *Dispatcher) discover(ctx context.Context, pages []page) ([][]DiscoverResult, error) {
	type place struct{ page, item int }
	var places []place
	results := make([][]DiscoverResult, len(pages))
	for n := range pages {
		results[n] = make([]DiscoverResult, len(pages[n].items))
		for i := range pages[n].items {
			places = append(places, place{n, i})
		}
	}
	err := d.SubmitAll(ctx, len(places), func(i int, known *Known, item *dispatch.Submission) (*dispatch.Source, error) {
		from, result := &pages[places[i].page], &results[places[i].page][places[i].item]
		source, follow, err := known.source(ctx, from.task.SourceID)
		if errors.Is(err, dispatch.ErrSourceNotFound) || err == nil && (source.Deleted || source.UID != from.task.SourceUID) {
			*result = DiscoverResult{Code: DiscoverFiltered, Message: "the source is deleted"}
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		found := &from.items[places[i].item]
		refusal := known.discovery(source, follow, from.task, found, item)
		if refusal != nil && refusal.Filter == dispatch.FilterHost {
			wide, err := d.widen(ctx, source, follow)
			if err != nil {
				return nil, err
			}
			if wide != nil {
				refusal = known.discovery(source, wide, from.task, found, item)
			}
		}
		if refusal != nil {
			*result = *refusal
			return nil, nil
		}
		return source, d.renewHop(ctx, item)
	}, func(i int, item *dispatch.Submission, r dispatch.SubmitResult) {
		results[places[i].page][places[i].item] = discovered(item, r)
	})
	return results, err
}

// discovery makes the item of a discovered item of t, or returns why there is none.
func (k *Known) discovery(source *dispatch.Source, f *Follower, t *dispatch.Task, found *dispatch.DiscoveredItem, item *dispatch.Submission) *DiscoverResult {
	to, err := dispatch.ResolveTarget(source.Spec.CanonicalRules, found.URL, found.Key, found.Queue, k.Rules.QueueOf)
	if err != nil {
		return &DiscoverResult{Code: DiscoverInvalid, Message: err.Error()}
	}
	depth, relation, redirect := t.Depth+1, max(found.Relation, dispatch.RelationLink), dispatch.Redirect{}
	if found.Relation == dispatch.RelationRedirect {
		// It is the page of the task, in another place.
		depth, relation, redirect = t.Depth, t.Relation, nextHop(t)
		to = hopTarget(t, to, found.URL)
		if redirect.Hops > bounds.MaxRedirects {
			return &DiscoverResult{Code: DiscoverInvalid, Message: fmt.Sprintf("is redirect %d of a chain; at most %d are followed", redirect.Hops, bounds.MaxRedirects)}
		}
	}
	var reason dispatch.FilterReason
	var why string
	move := redirect.Hops > 0 && t.Relation == dispatch.RelationNone
	if move {
		reason, why = f.refusesMove(to)
	} else {
		reason, why = f.refuses(to, depth, passesHost(t, found.Relation))
	}
	if reason == dispatch.FilterNone && f != nil && to.Canonical != "" {
		if k.spend(t, f.patterns.Cost*len(to.Canonical)); k.steps > bounds.MaxPatternSteps {
			return &DiscoverResult{Code: DiscoverInvalid, Message: fmt.Sprintf(
				"the source's patterns take up to %d steps a character of a URL, and those of the items so far over %d; report fewer or simplify follow",
				f.patterns.Cost, bounds.MaxPatternSteps)}
		}
		reason, why = f.refusesURL(to, move)
		runtime.Gosched() // the renewals of others wait for one URL at most, since patterns may take long
	}
	if reason != dispatch.FilterNone {
		return &DiscoverResult{Code: DiscoverFiltered, Message: why, Filter: reason}
	}
	metadata := t.Metadata
	if len(found.Metadata) > 0 {
		metadata = make(map[string]string, len(t.Metadata)+len(found.Metadata))
		maps.Copy(metadata, t.Metadata)
		maps.Copy(metadata, found.Metadata)
	}
	if err := metadataFits(source, metadata); err != nil {
		return &DiscoverResult{Code: DiscoverInvalid, Message: err.Error()}
	}
	k.aim(item, source, to)
	item.URL, item.Kind, item.Priority, item.Modified = to.Address, found.Kind, found.Priority, found.Modified
	item.Depth, item.Run, item.Metadata, item.Payload = depth, t.Run, metadata, found.Payload
	if item.Relation, item.Redirect = relation, redirect; redirect.Hops > 0 {
		item.Priority, item.Traceparent = max(found.Priority, hopPriority(t)), t.Traceparent
	}
	return nil
}

// hopPriority lets the target of a redirect go before other tasks of its queue, since it may be good for a short time only.
// All hops of a chain have the same priority.
func hopPriority(t *dispatch.Task) int {
	if t.Redirect.Hops > 0 {
		return t.Priority
	}
	return min(t.Priority+1, bounds.MaxPriority)
}

// nextHop is what the target of a redirect of t keeps of the chain.
func nextHop(t *dispatch.Task) dispatch.Redirect {
	next := t.Redirect
	if t.Recurring { // a head, also if a redirect has led to it
		next = dispatch.Redirect{}
	}
	if next.Hops++; next.Hops == 1 {
		next.From = t.URL
	}
	if next.Due.IsZero() && (t.Recurring || t.Counters.Cycle > 0) {
		next.Due = t.Due
	}
	return next
}

// hopTarget is the target of a redirect of t to a URL. Another spelling of the URL of t has its own key: that of t, and the number
// of redirects; it keeps its session id. So spellings with session ids are no more tasks than the chain is long.
func hopTarget(t *dispatch.Task, to dispatch.Target, url string) dispatch.Target {
	own := strings.TrimSuffix(t.Key, fmt.Sprintf("#%d", t.Redirect.Hops))
	if to.Key == own && to.Queue == t.Queue {
		to.Key, to.Address = fmt.Sprintf("%s#%d", own, nextHop(t).Hops), canonical.Escape(url)
	}
	return to
}

// renewHop makes the target of a redirect due again, in whatever state it ended, if it settled before the head of the
// chain was due. So heads that are due together fetch it once, and two pages that redirect to each other end. What an
// operator canceled stays canceled.
func (d *Dispatcher) renewHop(ctx context.Context, item *dispatch.Submission) error {
	if item.Redirect.Due.IsZero() {
		return nil
	}
	read, _, err := d.read(ctx, item.ID)
	if err != nil {
		return fmt.Errorf("read the target of a redirect: %w", err)
	}
	t := read[0]
	if t == nil || !t.State.Settled() || !t.SettledAt.Before(item.Redirect.Due) {
		return nil
	}
	if t.State == dispatch.StateCanceled {
		read, _, err := d.store.Tasks(ctx, []dispatch.TaskID{item.ID}, true)
		if err != nil {
			return fmt.Errorf("read the target of a redirect: %w", err)
		}
		if t = read[0]; t == nil || canceledBy(t) != dispatch.HoldWaggle {
			return nil
		}
	}
	item.IfExists, item.Revision = dispatch.IfExistsRetry, t.Revision
	return nil
}

// canceledBy is who canceled a task, by its history.
func canceledBy(t *dispatch.Task) string {
	for _, line := range slices.Backward(t.History) {
		if line.Result == dispatch.ResultCanceled {
			return line.By
		}
	}
	return ""
}

// spend counts steps for an item of t. The items of a task come one after another.
func (k *Known) spend(t *dispatch.Task, steps int) {
	if k.task != t {
		k.task, k.steps = t, 0
	}
	k.steps += steps
}

// discovered converts a store's answer for a discovered item.
func discovered(item *dispatch.Submission, r dispatch.SubmitResult) DiscoverResult {
	switch r.Code {
	case dispatch.SubmitCreated:
		return DiscoverResult{Code: DiscoverCreated, ID: item.ID}
	case dispatch.SubmitRevisit:
		return DiscoverResult{Code: DiscoverRevisit, ID: item.ID}
	case dispatch.SubmitLimited:
		return DiscoverResult{Code: DiscoverLimited, Message: "the source has max_outstanding tasks in the shard"}
	case dispatch.SubmitSourceDeleted:
		return DiscoverResult{Code: DiscoverFiltered, Message: "the source is deleted"}
	case dispatch.SubmitExists, dispatch.SubmitStaleSource, dispatch.SubmitStaleRules:
	}
	return DiscoverResult{Code: DiscoverExists, ID: item.ID}
}
