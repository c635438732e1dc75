package server

import (
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/server/internal/relay"
	"github.com/waggle-crawl/waggle/server/notify"
)

// Metrics are what /metrics shows: of the calls, of the dispatcher, of the store. It is an [engine.Observer], for
// [engine.Config]. None of them is labeled by source, queue, task or collector, so their number does not grow.
type Metrics struct {
	registry *prometheus.Registry
	calls    *rpcMetrics
	pools    *poolMetrics

	fetchWait *prometheus.HistogramVec
	granted   prometheus.Counter
	claims    *prometheus.CounterVec
	claimTime prometheus.Histogram
	claimFor  prometheus.Histogram
	gaveBack  prometheus.Counter
	requeue   prometheus.Histogram
	owner     *ownerCollector
	passed    *prometheus.CounterVec
	ownerWait prometheus.Histogram
	notices   *prometheus.CounterVec
	steps     prometheus.Counter
	groupTime prometheus.Histogram
	groupSize prometheus.Histogram
}

var _ engine.Observer = (*Metrics)(nil)

// NewMetrics makes metrics in a registry of their own.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls:    newRPCMetrics(),
		pools:    newPoolMetrics(),
		fetchWait: prometheus.NewHistogramVec(histogram("waggle_fetch_wait_seconds",
			"Time from the receipt of a FetchTask to its grant or empty answer, by whether it was granted something.",
			.001, .005, .02, .1, .5, 1, 5, 10, 30), []string{"granted"}),
		granted: prometheus.NewCounter(counter("waggle_fetched_tasks_total", "Tasks handed out by this dispatcher, replays included.")),
		claims: prometheus.NewCounterVec(counter("waggle_claims_total",
			"Claims that this dispatcher made at the store, by result: granted, empty or failed."), []string{"result"}),
		claimTime: prometheus.NewHistogram(histogram("waggle_claim_seconds", "Time that the store took for a claim.",
			prometheus.ExponentialBuckets(.0001, 5, 6)...)),
		claimFor: prometheus.NewHistogram(histogram("waggle_claim_fetches",
			"Fetches for which a claim was made: those that asked at the same time share one.", 1, 4, 16, 64, bounds.MaxClaimTurns)),
		gaveBack: prometheus.NewCounter(counter("waggle_given_back_tasks_total",
			"Tasks granted to callers who had gone, and given back at once.")),
		requeue: prometheus.NewHistogram(histogram("waggle_requeue_lag_seconds",
			"Time from the deadline of a lease that ran out to its end.", .05, .1, .25, .5, 1, 5)),
		owner: &ownerCollector{series: ownerSeries()},
		passed: prometheus.NewCounterVec(counter("waggle_passed_calls_total",
			"Calls that this dispatcher passed to the owner of the store, by class, and by result: answered, or failed: the owner was not reached, or the caller left."),
			[]string{"class", "result"}),
		ownerWait: prometheus.NewHistogram(histogram("waggle_owner_wait_seconds",
			"Time that calls waited while ownership of the store moved; those that did not wait are not counted.", .01, .05, .2, 1, 2, 5)),
		steps: prometheus.NewCounter(counter("waggle_clock_steps_total", "Steps of the store's clock by more than a second that this dispatcher has seen as the owner.")),
		groupTime: prometheus.NewHistogram(histogram("waggle_store_group_duration_seconds",
			"Time from the first change of a group to when the store has kept it.", prometheus.ExponentialBuckets(.0005, 5, 6)...)),
		groupSize: prometheus.NewHistogram(histogram("waggle_store_group_size_bytes", "Bytes of the groups that the store has kept.",
			prometheus.ExponentialBuckets(1<<8, 8, 5)...)),
	}
	m.notices = prometheus.NewCounterVec(counter("waggle_notices_total",
		"Messages of findings that this dispatcher posted, by result: sent, failed (and sent again), dropped."), []string{"result"})
	for _, result := range []notify.Result{notify.Sent, notify.Failed, notify.Dropped} {
		m.notices.WithLabelValues(string(result))
	}
	for _, result := range []string{"granted", "empty", "failed"} {
		m.claims.WithLabelValues(result) // from the start, with 0
	}
	for class := range relay.Classes {
		for _, result := range []string{"answered", "failed"} {
			m.passed.WithLabelValues(relay.Class(class).String(), result)
		}
	}
	for _, granted := range []string{"true", "false"} {
		m.fetchWait.WithLabelValues(granted)
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled(), collectors.WithGoCollectorRuntimeMetrics(memoryMetrics)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.calls.took, m.pools.outcomes, m.pools.pages, m.pools.pageBytes, m.pools.fetchTime, m.pools.queueWait, m.steps, m.groupTime, m.groupSize,
		m.fetchWait, m.granted, m.claims, m.claimTime, m.claimFor, m.gaveBack, m.requeue, m.owner, m.passed, m.ownerWait, m.notices,
	)
	return m
}

// memoryMetrics are what is shown of Go's memory: all of its statistics are 70 lines, and stop the process for a moment.
var memoryMetrics = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/memory/classes/(heap/objects|total):bytes$`)}

// histogram has classic buckets for all, and a native histogram for those who scrape that: it costs no lines.
func histogram(name, help string, buckets ...float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}

func counter(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: name, Help: help}
}

// Registry is where programs that embed the server add metrics of their own.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// ShowOwnership makes the metrics show who owns the store, as this process knows it, and what it has done of that: of is asked at each
// scrape, by several at once, and must not wait. While it returns false the series are left out, else all are there, with 0 too.
func (m *Metrics) ShowOwnership(of func() (dispatch.Ownership, bool)) { m.owner.of.Store(&of) }

// Claimed counts one claim.
func (m *Metrics) Claimed(fetches, granted int, took time.Duration, err error) {
	result := "granted"
	switch {
	case err != nil:
		result = "failed"
	case granted == 0:
		result = "empty"
	}
	m.claims.WithLabelValues(result).Inc()
	m.claimTime.Observe(took.Seconds())
	m.claimFor.Observe(float64(fetches))
}

// GaveBack counts tasks that were given back at once.
func (m *Metrics) GaveBack(tasks int) { m.gaveBack.Add(float64(tasks)) }

// Requeued notes how late a lease that ran out was ended (P5).
func (m *Metrics) Requeued(lag time.Duration) { m.requeue.Observe(lag.Seconds()) }

// Noticed counts what became of a message of a finding.
func (m *Metrics) Noticed(result notify.Result) { m.notices.WithLabelValues(string(result)).Inc() }

// ClockStepped counts a step of the store's clock.
func (m *Metrics) ClockStepped(time.Duration) { m.steps.Inc() }

// GroupKept notes a group that a backend has kept, for [store.Store.Measure].
func (m *Metrics) GroupKept(bytes int, took time.Duration) {
	m.groupTime.Observe(took.Seconds())
	m.groupSize.Observe(float64(bytes))
}

// passedOn counts a call that was passed on.
func (m *Metrics) passedOn(class relay.Class, err error) {
	result := "answered"
	if err != nil {
		result = "failed"
	}
	m.passed.WithLabelValues(class.String(), result).Inc()
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
