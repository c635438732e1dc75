package server

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// maxPoolLabels is how many pools are told apart: others count as otherPools. Producers choose their names.
const (
	maxPoolLabels = 100
	otherPools    = "other"
)

// poolMetrics show by pool what the tasks of collectors come to.
type poolMetrics struct {
	outcomes, pages, pageBytes *prometheus.CounterVec
	fetchTime, queueWait       *prometheus.HistogramVec

	mu     sync.RWMutex // guards what follows
	byName map[string]*poolSeries
}

// poolSeries are those of one pool.
type poolSeries struct {
	succeeded, released, expired, otherwise prometheus.Counter
	failed                                  map[dispatch.FailureReason]prometheus.Counter
	pages, pageBytes                        prometheus.Counter
	fetchTime, queueWait                    prometheus.Observer
}

func newPoolMetrics() *poolMetrics {
	pool := []string{"pool"}
	m := &poolMetrics{
		outcomes: prometheus.NewCounterVec(counter("waggle_outcomes_total",
			"Leases that ended, by pool and how: succeeded, released, expired, or the reason of a failure."), []string{"pool", "outcome"}),
		pages:     prometheus.NewCounterVec(counter("waggle_pages_total", "Pages fetched with success, by pool."), pool),
		pageBytes: prometheus.NewCounterVec(counter("waggle_page_bytes_total", "Bytes of these pages, as collectors report them."), pool),
		fetchTime: prometheus.NewHistogramVec(histogram("waggle_fetch_duration_seconds",
			"Time that fetches of pages took, failed ones included, as collectors report it.", .05, .1, .25, .5, 1, 2.5, 5, 10, 30), pool),
		queueWait: prometheus.NewHistogramVec(histogram("waggle_queue_wait_seconds",
			"Time from when a task was due to its grant: politeness, holds and the wait for a collector.", .1, 1, 10, 60, 600, 3600, 6*3600, 86400), pool),
		byName: make(map[string]*poolSeries),
	}
	m.of(dispatch.DefaultPool) // from the start, with 0
	return m
}

// of finds the series of a pool, or makes all of them, with 0.
func (m *poolMetrics) of(pool string) *poolSeries {
	m.mu.RLock()
	found := m.byName[pool]
	m.mu.RUnlock()
	if found != nil {
		return found
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if found := m.byName[pool]; found != nil {
		return found
	}
	if len(m.byName) >= maxPoolLabels {
		pool = otherPools
		if found := m.byName[pool]; found != nil {
			return found
		}
	}
	outcome := func(name string) prometheus.Counter { return m.outcomes.WithLabelValues(pool, name) }
	found = &poolSeries{
		succeeded: outcome("succeeded"), released: outcome("released"), expired: outcome("expired"), otherwise: outcome("other"),
		failed: make(map[dispatch.FailureReason]prometheus.Counter, len(pb.FailureReason_name)),
		pages:  m.pages.WithLabelValues(pool), pageBytes: m.pageBytes.WithLabelValues(pool),
		fetchTime: m.fetchTime.WithLabelValues(pool), queueWait: m.queueWait.WithLabelValues(pool),
	}
	for number, name := range pb.FailureReason_name {
		if number != 0 {
			found.failed[dispatch.FailureReason(number)] = outcome(strings.ToLower(strings.TrimPrefix(name, "FAILURE_REASON_")))
		}
	}
	m.byName[pool] = found
	return found
}

// Granted notes how long granted tasks were due. What a repeated call gets again does not count.
func (m *Metrics) Granted(pool string, now time.Time, grants [][]dispatch.Grant) {
	series := m.pools.of(pool)
	for _, of := range grants {
		for i := range of {
			if of[i].Bytes > 0 {
				series.queueWait.Observe(max(now.Sub(of[i].Task.Due), 0).Seconds())
			}
		}
	}
}

// Ended counts ends of leases.
func (m *Metrics) Ended(ends []engine.End) {
	var series *poolSeries
	for i := range ends {
		if i == 0 || ends[i].Pool != ends[i-1].Pool {
			series = m.pools.of(ends[i].Pool)
		}
		series.ended(&ends[i])
	}
}

func (series *poolSeries) ended(end *engine.End) {
	switch end.Result {
	case dispatch.ResultSucceeded:
		series.succeeded.Inc()
		series.pages.Inc()
		series.pageBytes.Add(float64(max(end.Bytes, 0)))
	case dispatch.ResultFailed:
		failed := series.failed[end.Reason]
		if failed == nil {
			failed = series.otherwise
		}
		failed.Inc()
	case dispatch.ResultReleased:
		series.released.Inc()
	default:
		series.expired.Inc()
	}
	if end.FetchDuration > 0 {
		series.fetchTime.Observe(end.FetchDuration.Seconds())
	}
}
