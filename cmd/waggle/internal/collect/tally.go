package collect

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/collector"
)

const (
	// maxTallied bounds the hosts whose failures are counted apart; those of later ones are counted together.
	maxTallied = 1000

	otherHosts = "(other hosts)"
)

// tally counts what becomes of the tasks that a collector works on.
type tally struct {
	mu     sync.Mutex // guards the rest
	counts totals
	hosts  map[string]*hostFailures
}

// totals are counts since the start.
type totals struct {
	pages  int64
	bytes  int64
	failed int64

	// begun tasks had a due time, and began waited after theirs, all together, by the clock of this machine.
	begun  int64
	waited time.Duration

	answers map[int]int64    // by HTTP status
	reasons map[string]int64 // by why tasks failed
}

// hostFailures are the failures of one host.
type hostFailures struct {
	host  string
	count int64
	last  string // why the last one failed
}

func newTally() *tally {
	return &tally{
		counts: totals{answers: make(map[int]int64), reasons: make(map[string]int64)},
		hosts:  make(map[string]*hostFailures),
	}
}

// counting counts what a handler does.
func (t *tally) counting(h collector.Handler) collector.Handler {
	return collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
		t.begin(task, time.Now())
		done, err := h.Handle(ctx, task)
		t.end(ctx, task, done, err)
		return done, err
	})
}

func (t *tally) begin(task *collector.Task, now time.Time) {
	if task.DueTime.IsZero() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.begun++
	t.counts.waited += max(now.Sub(task.DueTime), 0)
}

// end counts an outcome. What was given back or interrupted is none.
func (t *tally) end(ctx context.Context, task *collector.Task, done collector.Succeeded, err error) {
	var released *collector.Released
	if err != nil && (ctx.Err() != nil || errors.As(err, &released)) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.counts.pages++
		t.counts.bytes += done.Bytes
		t.answer(done.HTTPStatus)
		return
	}
	failed := &collector.Failed{Reason: collector.ReasonHandler}
	errors.As(err, &failed)
	t.answer(failed.HTTPStatus)
	reason := human.Word(failed.Reason, "FAILURE_REASON_")
	t.counts.failed++
	t.counts.reasons[reason]++
	t.fail(task.Queue, reason)
}

// answer counts an HTTP status. Called with mu held.
func (t *tally) answer(status int) {
	if status > 0 {
		t.counts.answers[status]++
	}
}

// fail counts a failure of a host. Called with mu held.
func (t *tally) fail(host, reason string) {
	if t.hosts[host] == nil && len(t.hosts) >= maxTallied {
		host = otherHosts
	}
	if t.hosts[host] == nil {
		t.hosts[host] = &hostFailures{host: host}
	}
	t.hosts[host].count++
	t.hosts[host].last = reason
}

// snapshot is a copy of the counts.
func (t *tally) snapshot() totals {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := t.counts
	counts.answers, counts.reasons = maps.Clone(counts.answers), maps.Clone(counts.reasons)
	return counts
}

// failing are the hosts with the most failures, the worst first, at most n.
func (t *tally) failing(n int) []hostFailures {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []hostFailures
	for _, h := range t.hosts {
		list = append(list, *h)
	}
	slices.SortFunc(list, func(a, b hostFailures) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.host, b.host))
	})
	return list[:min(n, len(list))]
}

// pace is how fast counts rose between two moments.
type pace struct {
	pages, bytes float64       // a second
	lag          time.Duration // how long after their due times tasks began
}

func paceOf(from, to totals, took time.Duration) pace {
	var p pace
	if seconds := took.Seconds(); seconds > 0 {
		p.pages = float64(to.pages-from.pages) / seconds
		p.bytes = float64(to.bytes-from.bytes) / seconds
	}
	if begun := to.begun - from.begun; begun > 0 {
		p.lag = (to.waited - from.waited) / time.Duration(begun)
	}
	return p
}

// sample is the counts of a moment.
type sample struct {
	at     time.Time
	stats  collector.Stats
	totals totals
}
