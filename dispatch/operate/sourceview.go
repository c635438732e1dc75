package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/history"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

// SourceView is a source with what is known of it.
type SourceView struct {
	Source dispatch.Source
	Status SourceStatus
	Health SourceHealth
	// NewByDay are the new entries on each of the last [newDays] days, today last; nil unless Status has a History.
	NewByDay []int64

	next   *dispatch.Task // the seed that is due next; nil: none waits
	first  time.Time      // when the first of its seeds was due first, if none of its tasks has succeeded
	failed *dispatch.Task // of the seeds that have not succeeded since they failed, the one that failed most; nil: none
}

// SourceStatus is what is known of a source, by its shards and its seeds' records.
type SourceStatus struct {
	dispatch.SourceStatus
	DeadSeeds     int64 // seeds that the breaker took out
	CanceledSeeds int64 // seeds that an operator took out
	GivenUpCycles int   // in a row, of the seed with the most
	// LastError of its seeds; where details are read, also one that a success
	// has followed.
	LastError       *dispatch.Failure
	NextDue         time.Time // of the seeds; zero = none waits
	Lag             time.Duration
	PendingVersions int64 // versions that not all shards have yet
	// Outstanding tasks have not settled; seeds that rest until their next
	// cycle are not counted. Like Counts, not of one instant.
	Outstanding int64
	// Gates hold the seed that is due next; only [Operator.Source] looks. In a list
	// that is asked for them they are holds, that no collector takes its tasks, and the
	// block of the seed's queue.
	Gates []dispatch.Gate
	// CollectorUnknown: there are too many collectors to find out whether one takes its tasks.
	CollectorUnknown bool
	// ShortestInterval and LongestInterval of the seeds, of an adaptive
	// schedule.
	ShortestInterval, LongestInterval time.Duration
	// Released are tasks that were released again and again, with their details.
	Released []*dispatch.Task
	// Moves are where the seeds redirect to; a list has them if it is asked for them.
	Moves []engine.Move
	// Rates are what has ended lately; only [Operator.Source] looks.
	Rates engine.Rates
}

// SourceHealth sums a source's status up.
type SourceHealth uint8

// The healths of a source.
const (
	HealthOK SourceHealth = iota + 1
	// HealthLate: a seed has been due for longer than its interval, or for an
	// hour without a schedule.
	HealthLate
	// HealthFailing: seeds have failed since the last success.
	HealthFailing
	// HealthBackedOff: a seed gave cycles up, or is dead.
	HealthBackedOff
	// HealthHeld: a hold stops it, or of its seeds none can be fetched before an operator
	// wants it: each is canceled.
	HealthHeld
	// HealthStuck: a seed is due, and a gate that does not open by itself keeps it. It is
	// found only where gates are read.
	HealthStuck
	// HealthEmpty: the documents of its seeds have nothing of what they are for.
	HealthEmpty
	// HealthQuiet: it succeeds, and nothing is new for longer than is usual, or than its spec allows.
	HealthQuiet
	// HealthPagesFail: its seeds succeed, and most of the last pages have failed.
	HealthPagesFail
)

const (
	// quietIntervals of its schedule are no silence yet, whatever the usual gap: see [history.QuietGaps].
	quietIntervals = 3
	// newDays are shown in a list.
	newDays = 30
)

// SourceQuery selects sources. All that is set must hold.
type SourceQuery struct {
	Prefix string
	Pool   string
	Labels map[string]string
	Health []SourceHealth
	// Gates adds to the listed sources what holds them, as far as that costs the same
	// for a page of any size: see [SourceStatus]. Errors adds the last error of the seed that failed most. Moves adds
	// where the seeds redirect to, by a read a seed.
	Gates, Errors, Moves bool
	// Histories adds what is remembered of each.
	Histories bool
}

// silent reports whether the query asks for nothing but sources that succeed and give nothing.
func (q *SourceQuery) silent() bool {
	return len(q.Health) > 0 && !slices.ContainsFunc(q.Health, func(h SourceHealth) bool { return h < HealthEmpty })
}

// stuckAfter is how long a seed is due before its source can be stuck: a collector may be about to
// come.
const stuckAfter = time.Second

// lateWithoutSchedule is how late a seed may be before its source is late; one
// interval where there is one.
const lateWithoutSchedule = time.Hour

// seedsPerRead bounds one read of seed records.
const seedsPerRead = 1000

// views completes sources with what is known of them. Details costs one more
// read a seed, for the last error, and one of a queue a source, for its gates.
// Only with histories they have what is remembered of them.
func (o *Operator) views(ctx context.Context, sources []*dispatch.Source, details, histories bool) ([]*SourceView, error) {
	if len(sources) == 0 {
		return nil, nil
	}
	uids := make([]string, len(sources))
	var seeds []dispatch.TaskID
	for i, source := range sources {
		uids[i] = source.UID
		seeds = append(seeds, source.AppliedSeeds...)
	}
	statuses, err := o.store.SourceStatuses(ctx, uids, histories)
	if err != nil {
		return nil, fmt.Errorf("read source statuses: %w", err)
	}
	at, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	tasks := make([]*dispatch.Task, 0, len(seeds))
	for page := range slices.Chunk(seeds, seedsPerRead) {
		read, _, err := o.store.Tasks(ctx, page, details)
		if err != nil {
			return nil, fmt.Errorf("read seeds: %w", err)
		}
		tasks = append(tasks, read...)
	}
	released, err := o.releasedTasks(ctx, sources)
	if err != nil {
		return nil, err
	}
	views := make([]*SourceView, len(sources))
	for i, source := range sources {
		n := len(source.AppliedSeeds)
		views[i] = newSourceView(source, statuses[i], tasks[:n], at.now)
		views[i].next = nextSeed(tasks[:n])
		views[i].Status.Released = released[source.UID]
		if details {
			views[i].Status.Rates = o.d.SourceRates(source.ID)
			if err := at.addSeedGates(ctx, views[i]); err != nil {
				return nil, err
			}
		}
		tasks = tasks[n:]
	}
	if details {
		err = o.addMoves(ctx, views)
	}
	return views, err
}

// releasedTasks reads the tasks of sources that were released [bounds.FreeReleases] times in a row or more, by the uids
// of their sources.
func (o *Operator) releasedTasks(ctx context.Context, sources []*dispatch.Source) (map[string][]*dispatch.Task, error) {
	ids := o.d.Released(func(id string) bool {
		return slices.ContainsFunc(sources, func(s *dispatch.Source) bool { return s.ID == id })
	})
	if len(ids) == 0 {
		return nil, nil
	}
	tasks, _, err := o.store.Tasks(ctx, ids, true)
	if err != nil {
		return nil, fmt.Errorf("read released tasks: %w", err)
	}
	released := make(map[string][]*dispatch.Task)
	for i, t := range tasks {
		if t == nil || t.State.Settled() || t.Counters.Released < bounds.FreeReleases {
			o.d.ForgetReleased(ids[i])
			continue
		}
		released[t.SourceUID] = append(released[t.SourceUID], t)
	}
	return released, nil
}

func newSourceView(source *dispatch.Source, known dispatch.SourceStatus, seeds []*dispatch.Task, now time.Time) *SourceView {
	status := SourceStatus{SourceStatus: known, PendingVersions: source.Version - source.Applied}
	status.Outstanding = status.Counts.Scheduled + status.Counts.Ready + status.Counts.Leased
	var first time.Time
	var failed *dispatch.Task
	for _, t := range seeds {
		if t == nil {
			continue
		}
		if known.LastSuccess.IsZero() {
			if due := source.FirstDue(t.Created, t.ID).Add(source.Spec.Schedule.Offset(t.ID)); first.IsZero() || due.Before(first) {
				first = due
			}
		}
		if tries := triesOf(t); tries > 0 && (failed == nil || tries > triesOf(failed)) {
			failed = t
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
		if resting(t, now) && t.SourceUID == source.UID {
			status.Outstanding--
		}
		if status.NextDue.IsZero() || t.Due.Before(status.NextDue) {
			status.NextDue = t.Due
		}
		status.Lag = max(status.Lag, now.Sub(t.Due))
	}
	status.Outstanding = max(status.Outstanding, 0)
	return &SourceView{
		Source: *source, Status: status, Health: healthOf(source, &status, now), NewByDay: newByDay(status.History, now), first: first, failed: failed,
	}
}

// newByDay are the new entries of the last days.
func newByDay(h *history.History, now time.Time) []int64 {
	if h == nil {
		return nil
	}
	days, today := make([]int64, newDays), history.DayOf(now.UnixMilli())
	for _, d := range h.Days {
		if ago := int(today - history.DayOf(d.Date.UnixMilli())); ago >= 0 && ago < newDays {
			days[newDays-1-ago] += d.New
		}
	}
	return days
}

// triesOf is how often a seed was tried since its last success, as far as its counters have it; 0 while it is tried first.
func triesOf(t *dispatch.Task) int {
	tries := 1000*int(t.Counters.GivenUp) + int(t.Counters.Attempt)
	if t.State == dispatch.StateLeased {
		tries--
	}
	return tries
}

// addMoves adds where the seeds of sources redirect to, and the last error there.
func (o *Operator) addMoves(ctx context.Context, views []*SourceView) error {
	sources := make([]*dispatch.Source, len(views))
	for i, v := range views {
		sources[i] = &v.Source
	}
	moves, err := o.d.Moves(ctx, sources)
	if err != nil {
		return err
	}
	for i, v := range views {
		v.Status.Moves = moves[i]
		for _, m := range moves[i] {
			if e := m.Failure; e != nil && (v.Status.LastError == nil || e.Time.After(v.Status.LastError.Time)) {
				v.Status.LastError = e
			}
		}
	}
	return nil
}

// seedErrorsPerRead bounds one read of seeds with their details.
const seedErrorsPerRead = 100

// addListedErrors adds to listed sources the last error of the seed that failed most, or of where a seed redirects to.
func (o *Operator) addListedErrors(ctx context.Context, views []*SourceView) error {
	var ids []dispatch.TaskID
	var of, moved []*SourceView
	for _, v := range views {
		switch {
		case v.failed != nil:
			ids, of = append(ids, v.failed.ID), append(of, v)
		case v.Status.FailuresInARow > 0:
			moved = append(moved, v)
		}
	}
	if err := o.addMoves(ctx, moved); err != nil {
		return err
	}
	for page := range slices.Chunk(ids, seedErrorsPerRead) {
		tasks, _, err := o.store.Tasks(ctx, page, true)
		if err != nil {
			return fmt.Errorf("read the errors of seeds: %w", err)
		}
		for i, t := range tasks {
			if t != nil {
				of[i].Status.LastError = t.LastError
			}
		}
		of = of[len(page):]
	}
	return nil
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

// addSeedGates adds to a source what holds its seed that is due next.
func (s *snapshot) addSeedGates(ctx context.Context, view *SourceView) error {
	holds, who, err := s.holdsOf(ctx, &view.Source, view.next)
	if err == nil {
		view.setGates(holds, who)
	}
	return err
}

// setGates sets what holds the source, and whether it is stuck by that.
func (v *SourceView) setGates(holds []Held, who takers) {
	v.Status.CollectorUnknown = who.cut
	v.Status.Gates = gatesOf(holds)
	staying := []dispatch.GateKind{
		dispatch.GateEverythingHeld, dispatch.GatePoolHeld, dispatch.GateQueueHeld, dispatch.GateCollectorHeld,
		dispatch.GateNoCollector, dispatch.GateLocked,
	}
	stays := func(g dispatch.Gate) bool { return g.Until.IsZero() && slices.Contains(staying, g.Kind) }
	if v.Health != HealthHeld && v.next != nil && v.Status.Lag >= stuckAfter && slices.ContainsFunc(v.Status.Gates, stays) {
		v.Health = HealthStuck
	}
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

// lateAfter is how long a seed of a source is due before that is late.
func lateAfter(source *dispatch.Source, status *SourceStatus, now time.Time) time.Duration {
	return cmp.Or(max(source.Spec.Schedule.Interval(now), status.LongestInterval), lateWithoutSchedule)
}

func healthOf(source *dispatch.Source, status *SourceStatus, now time.Time) SourceHealth {
	switch {
	case !holdbook.LastEnd(source.Holds, now).IsZero():
		return HealthHeld
	case status.CanceledSeeds > 0 && status.CanceledSeeds == int64(len(source.AppliedSeeds)):
		return HealthHeld
	case status.GivenUpCycles > 0 || status.DeadSeeds > 0:
		return HealthBackedOff
	case status.FailuresInARow > 0:
		return HealthFailing
	case status.Lag > lateAfter(source, status, now):
		return HealthLate
	case status.EmptyCycles >= history.EmptyCycles:
		return HealthEmpty
	case status.Pages.Fail():
		return HealthPagesFail
	case quiet(source, status, now):
		return HealthQuiet
	default:
		return HealthOK
	}
}

// quiet reports whether a source that succeeds has no news for too long.
func quiet(source *dispatch.Source, status *SourceStatus, now time.Time) bool {
	after := source.Spec.QuietAfter
	switch {
	case status.LastSuccess.IsZero(), after == 0 && (status.UsualGap == 0 || source.Spec.Schedule.Once()):
		return false
	case after == 0:
		after = max(history.QuietGaps*status.UsualGap, history.QuietLeast, quietIntervals*max(source.Spec.Schedule.Interval(now), status.LongestInterval))
	}
	return now.Sub(quietSince(source, status)) > after
}

// quietSince is when a source last had news, or else its begin.
func quietSince(source *dispatch.Source, status *SourceStatus) time.Time {
	if status.LastNew.IsZero() {
		return source.Created
	}
	return status.LastNew
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

// collectorsListed is [collectorsLookedAt] for a page of listed sources.
const collectorsListed = 200

// addListedGates adds to listed sources what holds them beside their due times: holds, that no
// collector takes their tasks, and the block of the queue of the seed that is due next. It leaves
// out the delay and the limit on leases, which hold every busy queue for a moment.
func (s *snapshot) addListedGates(ctx context.Context, views []*SourceView) error {
	wants := make([]wanted, len(views))
	queues := make(map[string]*dispatch.Queue, len(views))
	for i, v := range views {
		wants[i] = wantedOf(&v.Source, v.next)
		if v.next != nil {
			queues[v.next.Queue] = nil
		}
	}
	names := slices.Collect(maps.Keys(queues))
	read, err := s.store.QueuesNamed(ctx, names)
	if err != nil {
		return fmt.Errorf("read queues: %w", err)
	}
	for i, name := range names {
		queues[name] = read[i]
	}
	nobody, err := s.takers(ctx, collectorsListed, wants)
	if err != nil {
		return err
	}
	passing := []dispatch.GateKind{
		dispatch.GateNotDue, dispatch.GateBreaker, dispatch.GateLocked, dispatch.GateMinDelay, dispatch.GateMaxInFlight,
	}
	for i, v := range views {
		holds := s.allHolds(&v.Source, v.next, nobody[wants[i]], queues[wants[i].queue])
		holds = slices.DeleteFunc(holds, func(h Held) bool { return h.beside || slices.Contains(passing, h.Kind) })
		v.setGates(holds, nobody[wants[i]])
	}
	return nil
}

func (o *Operator) liveSource(ctx context.Context, id string) (*dispatch.Source, error) {
	source, err := o.keptSource(ctx, id)
	if err == nil && (source == nil || source.Deleted) {
		err = fmt.Errorf("source %q: %w", id, dispatch.ErrSourceNotFound)
	}
	if err != nil {
		return nil, err
	}
	return source, nil
}

// keptSource reads a source, also one that is being deleted; nil: none has the id.
func (o *Operator) keptSource(ctx context.Context, id string) (*dispatch.Source, error) {
	found, err := o.store.SourcesByID(ctx, []string{id})
	if err != nil {
		return nil, fmt.Errorf("source %q: %w", id, err)
	}
	return found[0], nil
}

// owns reports whether a source, nil for none, still is that of a task.
func owns(source *dispatch.Source, t *dispatch.Task) bool {
	return source != nil && source.UID == t.SourceUID && !source.Deleted
}
