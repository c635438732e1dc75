package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// lateWithoutSchedule is how late a seed may be before its source is late; one
// interval where there is one.
const lateWithoutSchedule = time.Hour

// maxQuoted bounds what a gate quotes of a failure, in bytes.
const maxQuoted = 300

// seedsPerRead bounds one read of seed records.
const seedsPerRead = 1000

// views completes sources with what is known of them. Details costs one more
// read a seed, for the last error, and one of a queue a source, for its gates.
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
		read, _, err := d.store.Tasks(ctx, page, details)
		if err != nil {
			return nil, fmt.Errorf("read seeds: %w", err)
		}
		tasks = append(tasks, read...)
	}
	views := make([]*SourceView, len(sources))
	for i, source := range sources {
		n := len(source.AppliedSeeds)
		views[i] = newSourceView(source, statuses[i], tasks[:n], now)
		if details {
			if views[i].Status.Gates, err = d.seedGates(ctx, source, tasks[:n], now); err != nil {
				return nil, err
			}
		}
		tasks = tasks[n:]
	}
	return views, nil
}

func newSourceView(source *Source, status SourceStatus, seeds []*Task, now time.Time) *SourceView {
	status.PendingVersions = source.Version - source.Applied
	status.Outstanding = status.Counts.Scheduled + status.Counts.Ready + status.Counts.Leased
	for _, t := range seeds {
		if t == nil {
			continue
		}
		if t.State == StateDead {
			status.DeadSeeds++
		}
		status.GivenUpCycles = max(status.GivenUpCycles, int(t.Counters.GivenUp))
		if e := t.lastFailure(); e != nil && (status.LastError == nil || e.Time.After(status.LastError.Time)) {
			status.LastError = e
		}
		if a := source.Spec.Schedule.Adaptive; source.Spec.Schedule.adaptive() {
			interval := a.Interval(t)
			status.LongestInterval = max(status.LongestInterval, interval)
			if status.ShortestInterval == 0 || interval < status.ShortestInterval {
				status.ShortestInterval = interval
			}
		}
		if !t.State.Waiting() {
			continue
		}
		if t.resting(now) && t.SourceUID == source.UID {
			status.Outstanding--
		}
		if status.NextDue.IsZero() || t.Due.Before(status.NextDue) {
			status.NextDue = t.Due
		}
		status.Lag = max(status.Lag, now.Sub(t.Due))
	}
	status.Outstanding = max(status.Outstanding, 0)
	return &SourceView{Source: *source, Status: status, Health: healthOf(source, &status, now)}
}

// resting reports whether a seed waits for its next cycle, and not for the next
// attempt in one that has begun.
func (t *Task) resting(now time.Time) bool { return t.Due.After(now) && t.Counters.Attempt == 0 }

// lastFailure is the last thing that went wrong with a task, of what was read
// of it: its history knows failures that a success has followed.
func (t *Task) lastFailure() *Failure {
	last := t.LastError
	for i := range t.History {
		if e := t.History[i].Failure; e != nil && (last == nil || e.Time.After(last.Time)) {
			last = e
		}
	}
	return last
}

// seedGates are what holds the seed of a source that is due next, from the
// source to its pool and queue.
func (d *Dispatcher) seedGates(ctx context.Context, source *Source, seeds []*Task, now time.Time) ([]Gate, error) {
	var gates []Gate
	if p := source.Paused; p != nil && (p.Until.IsZero() || p.Until.After(now)) {
		gates = append(gates, *p)
	}
	var next *Task
	for _, t := range seeds {
		if t != nil && t.State.Waiting() && (next == nil || t.Due.Before(next.Due)) {
			next = t
		}
	}
	if next != nil && next.Due.After(now) {
		gates = append(gates, next.dueGate(source.Spec.Schedule.Once()))
	}
	gate, err := d.poolGate(ctx, source.Spec.Pool, now)
	if err != nil {
		return nil, err
	}
	if gate != nil {
		gates = append(gates, *gate)
	}
	if next == nil {
		return gates, nil
	}
	queue, err := d.store.Queue(ctx, next.Queue)
	if errors.Is(err, ErrQueueNotFound) {
		return gates, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read queue %q of a seed: %w", next.Queue, err)
	}
	return append(gates, queue.Gates...), nil
}

// collectorsLookedAt bounds, page by page, how many collectors are looked at for
// one that takes a pool's tasks. The first page is short, since one that does is
// mostly among the first.
const (
	collectorsAtFirst  = 20
	collectorsPerLook  = 200
	collectorsLookedAt = 1000
)

// poolGate is there when no collector that is active takes tasks of the pool.
func (d *Dispatcher) poolGate(ctx context.Context, pool string, now time.Time) (*Gate, error) {
	after, size := "", collectorsAtFirst
	for looked := 0; looked < collectorsLookedAt; {
		page, err := d.store.ListCollectors(ctx, after, size)
		if err != nil {
			return nil, fmt.Errorf("list the collectors of pool %q: %w", pool, err)
		}
		for _, c := range page {
			if !c.Gone(now) && !c.Info.Draining && c.takes(pool) {
				return nil, nil
			}
		}
		if len(page) < size {
			return &Gate{Kind: GateNoCollector, Reason: fmt.Sprintf("no active collector takes tasks of pool %q", pool)}, nil
		}
		looked += size
		after, size = page[len(page)-1].Info.ID, collectorsPerLook
	}
	return nil, nil // too many to tell
}

// dueGate is why a seed is not due, and until when.
func (t *Task) dueGate(once bool) Gate {
	gate := Gate{Kind: GateNotDue, Until: t.Due, By: "waggle", Reason: "its next cycle has not come"}
	switch {
	case t.Counters.Attempt > 0:
		gate.Reason = "it waits for its next attempt"
		if e := t.LastError; e != nil && e.Message != "" {
			gate.Reason += " after: " + strings.ToValidUTF8(e.Message[:min(len(e.Message), maxQuoted)], "")
		}
	case t.Counters.GivenUp > 0:
		gate.Kind, gate.Reason = GateBreaker, fmt.Sprintf("cycles given up in a row: %d", t.Counters.GivenUp)
	case once:
		gate.Reason = "it is due at a time that was asked for"
	}
	return gate
}

func healthOf(source *Source, status *SourceStatus, now time.Time) SourceHealth {
	late := max(source.Spec.Schedule.Interval(now), status.LongestInterval)
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
