package engine

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	// outcomePeriod is how long outcomes are counted in one period. The current and the previous one are shown.
	outcomePeriod = 5 * time.Minute
	// maxTallies limits the collectors whose outcomes are counted; beyond it, silent ones are forgotten once in a period, and no
	// others are added.
	maxTallies = 10_000
	// maxReasons limits the reasons that are told apart in a period, since clients choose them; others count as OTHER.
	maxReasons = 50
	// silentAfter is how long after an answer of any host the others are what does not work, rather than the collector.
	silentAfter = time.Hour
	// maxQuoted limits the message of a failure that is kept with a collector, in bytes.
	maxQuoted = 300
)

// outcomes counts how tasks of collectors end, by the reports to this dispatcher. The counts go to the store with the beats.
type outcomes struct {
	mu      sync.Mutex // guards all fields
	tallies map[string]*tally
	swept   time.Time // when silent ones were last forgotten
}

// tally is what is counted of one collector.
type tally struct {
	begun     time.Time // of the current period
	now, past period
	row       dispatch.Outcomes // only what is counted since the last answer
	silent    []string          // queues of hosts that have not answered since then
	answer    time.Time         // the last answer
	success   time.Time         // the last success
	failures  int               // since then
	failing   time.Time         // the first of them
}

// period is a part of the time that is counted.
type period struct {
	answered, released int
	failed             map[dispatch.FailureReason]int
}

func newOutcomes() *outcomes { return &outcomes{tallies: make(map[string]*tally)} }

// note counts a report that was settled. task is nil for a plain success.
func (o *outcomes) note(r *dispatch.Report, task *dispatch.Task) {
	if task != nil && task.CancelRequested == dispatch.CancelHeld {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tallies[r.Token.Collector]
	if t == nil {
		if t = o.add(r.Token.Collector, now); t == nil {
			return
		}
	}
	t.turn(now)
	switch {
	case r.Released != nil:
		t.now.released++
		t.row.ReleasedInRow++
		t.unanswered(now)
	case r.Failed != nil:
		t.failed(r.Failed, task, now)
	default:
		t.success, t.failures, t.failing = now, 0, time.Time{}
		t.answered(now)
	}
}

func (t *tally) answered(now time.Time) {
	t.now.answered++
	t.row, t.silent, t.answer = dispatch.Outcomes{}, nil, now
}

func (t *tally) unanswered(now time.Time) {
	if t.row.Since.IsZero() {
		t.row.Since = now
	}
}

func (t *tally) failed(f *dispatch.Failed, task *dispatch.Task, now time.Time) {
	if t.failures++; t.failing.IsZero() {
		t.failing = now
	}
	if t.now.failed == nil {
		t.now.failed = make(map[dispatch.FailureReason]int, 1)
	}
	counted := f.Reason
	if _, known := t.now.failed[counted]; !known && len(t.now.failed) >= maxReasons {
		counted = dispatch.ReasonOther
	}
	t.now.failed[counted]++
	scope := f.Reason.Scope()
	switch {
	case scope == dispatch.ScopeCollector, f.Reason == dispatch.ReasonHandler:
		t.row.OwnInRow++
	case scope == dispatch.ScopeTask, f.HTTPStatus != 0:
		t.answered(now)
		return
	case task != nil && !(&dispatch.Outcomes{Silent: len(t.silent)}).Unable() && !slices.Contains(t.silent, task.Queue):
		t.silent = append(t.silent, task.Queue)
	}
	t.unanswered(now)
	t.row.LastError = &dispatch.Failure{
		Result: dispatch.ResultFailed, Reason: f.Reason, HTTPStatus: f.HTTPStatus, Time: now,
		Message: strings.ToValidUTF8(f.Message[:min(len(f.Message), maxQuoted)], ""),
	}
}

// turn begins a new period if the current one is over.
func (t *tally) turn(now time.Time) {
	switch age := now.Sub(t.begun); {
	case age < outcomePeriod:
		return
	case age < 2*outcomePeriod:
		t.past = t.now
	default:
		t.past = period{}
	}
	t.begun, t.now = now, period{}
}

// add makes room for a collector; nil: there is none.
func (o *outcomes) add(collector string, now time.Time) *tally {
	if len(o.tallies) >= maxTallies && now.Sub(o.swept) >= outcomePeriod {
		o.swept = now
		maps.DeleteFunc(o.tallies, func(_ string, t *tally) bool { return now.Sub(t.begun) >= 2*outcomePeriod })
	}
	if len(o.tallies) >= maxTallies {
		return nil
	}
	t := &tally{begun: now}
	o.tallies[collector] = t
	return t
}

// of are the counts of a collector; nil if there are none.
func (o *outcomes) of(collector string) *dispatch.Outcomes {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tallies[collector]
	if t == nil {
		return nil
	}
	if t.turn(now); t.now.empty() && t.past.empty() {
		delete(o.tallies, collector)
		return nil
	}
	sum := t.row
	sum.FailedInRow, sum.FailingSince, sum.LastSuccess = t.failures, t.failing, t.success
	sum.Answered, sum.Released = t.now.answered+t.past.answered, t.now.released+t.past.released
	if now.Sub(t.answer) >= silentAfter {
		sum.Silent = len(t.silent)
	}
	sum.Failed = maps.Clone(t.now.failed)
	for reason, n := range t.past.failed {
		if sum.Failed == nil {
			sum.Failed = make(map[dispatch.FailureReason]int, 1)
		}
		sum.Failed[reason] += n
	}
	return &sum
}

func (p *period) empty() bool { return p.answered+p.released+len(p.failed) == 0 }

// forget forgets what an older session of a collector did: its cause may be repaired.
func (o *outcomes) forget(collector string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.tallies, collector)
}

// Outcomes are what is known of how tasks of a collector ended: by its record, whose counts are those of the dispatcher that
// got its last beat, and by the reports that came to this one. If one of the two shows that the collector works, it does. Nil:
// nothing is known.
func (d *Dispatcher) Outcomes(record *dispatch.CollectorRecord) *dispatch.Outcomes {
	kept, own := record.Info.Outcomes, d.outcomes.of(record.Info.ID)
	works := func(o *dispatch.Outcomes) bool { return o != nil && o.Answered > 0 && !o.Unable() }
	if own == nil || works(kept) || kept.Unable() && !works(own) {
		return kept
	}
	return own
}
