package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// lateWithoutSchedule is how late a seed may be before its source is late; one
// interval where there is one.
const lateWithoutSchedule = time.Hour

// seedsPerRead bounds one read of seed records.
const seedsPerRead = 1000

// views completes sources with what is known of them. Details costs one more
// read a seed, for the last error, and one of a queue a source, for its gates.
func (o *Operator) views(ctx context.Context, sources []*dispatch.Source, details bool) ([]*SourceView, error) {
	if len(sources) == 0 {
		return nil, nil
	}
	uids := make([]string, len(sources))
	var seeds []dispatch.TaskID
	for i, source := range sources {
		uids[i] = source.UID
		seeds = append(seeds, source.AppliedSeeds...)
	}
	statuses, err := o.store.SourceStatuses(ctx, uids)
	if err != nil {
		return nil, fmt.Errorf("read source statuses: %w", err)
	}
	now, err := o.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	tasks := make([]*dispatch.Task, 0, len(seeds))
	for page := range slices.Chunk(seeds, seedsPerRead) {
		read, _, err := o.store.Tasks(ctx, page, details)
		if err != nil {
			return nil, fmt.Errorf("read seeds: %w", err)
		}
		tasks = append(tasks, read...)
	}
	views := make([]*SourceView, len(sources))
	for i, source := range sources {
		n := len(source.AppliedSeeds)
		views[i] = newSourceView(source, statuses[i], tasks[:n], now, book)
		views[i].next = nextSeed(tasks[:n])
		if details {
			if err := o.addSeedGates(ctx, views[i], now); err != nil {
				return nil, err
			}
		}
		tasks = tasks[n:]
	}
	return views, nil
}

func newSourceView(source *dispatch.Source, known dispatch.SourceStatus, seeds []*dispatch.Task, now time.Time, book *engine.RuleBook) *SourceView {
	status := SourceStatus{SourceStatus: known, PendingVersions: source.Version - source.Applied}
	status.Outstanding = status.Counts.Scheduled + status.Counts.Ready + status.Counts.Leased
	for _, t := range seeds {
		if t == nil {
			continue
		}
		switch t.State {
		case dispatch.StateDead:
			status.DeadSeeds++
		case dispatch.StateCanceled:
			status.CanceledSeeds++
		default:
		}
		status.GivenUpCycles = max(status.GivenUpCycles, int(t.Counters.GivenUp))
		if e := lastFailure(t); e != nil && (status.LastError == nil || e.Time.After(status.LastError.Time)) {
			status.LastError = e
		}
		if a := source.Spec.Schedule.Adaptive; source.Spec.Schedule.IsAdaptive() {
			interval := a.Interval(t)
			status.LongestInterval = max(status.LongestInterval, interval)
			if status.ShortestInterval == 0 || interval < status.ShortestInterval {
				status.ShortestInterval = interval
			}
		}
		if !t.State.Waiting() {
			continue
		}
		if book.DeniesAny && book.Denies(t.Queue) {
			status.DeniedSeeds++
		}
		if resting(t, now) && t.SourceUID == source.UID {
			status.Outstanding--
		}
		if status.NextDue.IsZero() || t.Due.Before(status.NextDue) {
			status.NextDue = t.Due
		}
		status.Lag = max(status.Lag, now.Sub(t.Due))
	}
	status.Outstanding = max(status.Outstanding, 0)
	return &SourceView{Source: *source, Status: status, Paused: pausedAt(source, now), Health: healthOf(source, &status, now)}
}

// resting reports whether a seed waits for its next cycle, and not for the next
// attempt in one that has begun.
func resting(t *dispatch.Task, now time.Time) bool {
	return t.Due.After(now) && t.Counters.Attempt == 0
}

// lastFailure is the last thing that went wrong with a task, of what was read
// of it: its history knows failures that a success has followed.
func lastFailure(t *dispatch.Task) *dispatch.Failure {
	last := t.LastError
	for i := range t.History {
		if e := t.History[i].Failure; e != nil && (last == nil || e.Time.After(last.Time)) {
			last = e
		}
	}
	return last
}

// addSeedGates tells of a source what holds its seed that is due next, from the source to
// its pool and queue, and whether it is not known that a collector takes its tasks.
func (o *Operator) addSeedGates(ctx context.Context, view *SourceView, now time.Time) error {
	holds, who, err := o.holdsOf(ctx, &view.Source, view.next, now)
	if err != nil {
		return err
	}
	view.Status.CollectorUnknown = who.cut
	view.Status.Gates = make([]dispatch.Gate, len(holds))
	for i := range holds {
		view.Status.Gates[i] = holds[i].Gate
	}
	return nil
}

// nextSeed is the seed that is due next, of those that wait; nil when none does.
func nextSeed(seeds []*dispatch.Task) (next *dispatch.Task) {
	for _, t := range seeds {
		if t != nil && t.State.Waiting() && (next == nil || t.Due.Before(next.Due)) {
			next = t
		}
	}
	return next
}

func healthOf(source *dispatch.Source, status *SourceStatus, now time.Time) SourceHealth {
	late := cmp.Or(max(source.Spec.Schedule.Interval(now), status.LongestInterval), lateWithoutSchedule)
	stopped := status.CanceledSeeds + status.DeniedSeeds
	switch {
	case pausedAt(source, now) != nil:
		return HealthPaused
	case stopped > 0 && stopped == int64(len(source.AppliedSeeds)):
		return HealthPaused
	case status.GivenUpCycles > 0 || status.DeadSeeds > 0:
		return HealthBackedOff
	case status.FailuresInARow > 0:
		return HealthFailing
	case status.Lag > late:
		return HealthLate
	default:
		return HealthOK
	}
}

func (q *SourceQuery) matches(source *dispatch.Source) bool {
	if !strings.HasPrefix(source.ID, q.Prefix) || q.Pool != "" && q.Pool != source.Spec.Pool {
		return false
	}
	for key, value := range q.Labels {
		if got, ok := source.Spec.Labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func (q *SourceQuery) matchesHealth(health SourceHealth) bool {
	return len(q.Health) == 0 || slices.Contains(q.Health, health)
}
