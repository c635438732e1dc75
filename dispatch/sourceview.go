package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// lateWithoutSchedule is how late a seed may be before its source is late; one
// interval where there is one.
const lateWithoutSchedule = time.Hour

// seedsPerRead bounds one read of seed records.
const seedsPerRead = 1000

// views completes sources with what is known of them. Details costs one more
// read a seed, for the last error.
func (d *Dispatcher) views(ctx context.Context, sources []*Source, details bool) ([]*SourceView, error) {
	if len(sources) == 0 {
		return nil, nil
	}
	uids := make([]string, len(sources))
	var seeds []TaskID
	for i, source := range sources {
		uids[i] = source.UID
		seeds = append(seeds, source.AppliedSeeds...)
	}
	statuses, err := d.store.SourceStatuses(ctx, uids)
	if err != nil {
		return nil, fmt.Errorf("read source statuses: %w", err)
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	tasks := make([]*Task, 0, len(seeds))
	for page := range slices.Chunk(seeds, seedsPerRead) {
		read, err := d.store.Tasks(ctx, page, details)
		if err != nil {
			return nil, fmt.Errorf("read seeds: %w", err)
		}
		tasks = append(tasks, read...)
	}
	views := make([]*SourceView, len(sources))
	for i, source := range sources {
		n := len(source.AppliedSeeds)
		views[i] = newSourceView(source, statuses[i], tasks[:n], now)
		tasks = tasks[n:]
	}
	return views, nil
}

func newSourceView(source *Source, status SourceStatus, seeds []*Task, now time.Time) *SourceView {
	status.PendingVersions = source.Version - source.Applied
	for _, t := range seeds {
		if t == nil {
			continue
		}
		if t.State == StateDead {
			status.DeadSeeds++
		}
		status.GivenUpCycles = max(status.GivenUpCycles, int(t.Counters.GivenUp))
		if e := t.LastError; e != nil && (status.LastError == nil || e.Time.After(status.LastError.Time)) {
			status.LastError = e
		}
		if !t.State.Waiting() {
			continue
		}
		if status.NextDue.IsZero() || t.Due.Before(status.NextDue) {
			status.NextDue = t.Due
		}
		status.Lag = max(status.Lag, now.Sub(t.Due))
	}
	return &SourceView{Source: *source, Status: status, Health: healthOf(source, &status, now)}
}

func healthOf(source *Source, status *SourceStatus, now time.Time) SourceHealth {
	late := source.Spec.Schedule.Interval(now)
	if late == 0 {
		late = lateWithoutSchedule
	}
	paused := source.Paused
	switch {
	case paused != nil && (paused.Until.IsZero() || paused.Until.After(now)):
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

func (q *SourceQuery) matches(source *Source) bool {
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
