package server

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/server/internal/relay"
	"github.com/waggle-crawl/waggle/server/notify"
)

// Metrics are what /metrics shows: of the calls, of the dispatcher, of the store. It is an [engine.Observer], for
// [engine.Config]. None of them is labeled by source, queue, task or collector, so their number does not grow.
type Metrics struct {
	registry *prometheus.Registry
	calls    *callMetrics

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
}

var _ engine.Observer = (*Metrics)(nil)

// NewMetrics makes metrics in a registry of their own.
func NewMetrics() *Metrics {
	histogram := func(name, help string, buckets ...float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	}
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls:    newCallMetrics(),
		fetchWait: prometheus.NewHistogramVec(histogram("waggle_fetch_wait_seconds",
			"Time from the receipt of a FetchTask to its grant or empty answer, by whether it was granted something.",
			.001, .005, .02, .1, .5, 1, 5, 10, 30), []string{"granted"}),
		granted: prometheus.NewCounter(counter("waggle_fetched_tasks_total", "Tasks handed out by this dispatcher, replays included.")),
		claims: prometheus.NewCounterVec(counter("waggle_claims_total",
			"Claims that this dispatcher made at the store, by result: granted, empty or failed."), []string{"result"}),
		claimTime: prometheus.NewHistogram(histogram("waggle_claim_seconds", "Time that the store took for a claim.",
			prometheus.ExponentialBuckets(.0001, 4, 8)...)),
		claimFor: prometheus.NewHistogram(histogram("waggle_claim_fetches",
			"Fetches for which a claim was made: those that asked at the same time share one.", 1, 2, 4, 8, 16, 32, 64, bounds.MaxClaimTurns)),
		gaveBack: prometheus.NewCounter(counter("waggle_given_back_tasks_total",
			"Tasks granted to callers who had gone, and given back at once.")),
		requeue: prometheus.NewHistogram(histogram("waggle_requeue_lag_seconds",
			"Time from the deadline of a lease that ran out to its end.", .01, .05, .1, .25, .5, 1, 5, 30)),
		owner: &ownerCollector{series: ownerSeries()},
		passed: prometheus.NewCounterVec(counter("waggle_passed_calls_total",
			"Calls that this dispatcher passed to the owner of the store, by class, and by result: answered, or failed: the owner was not reached, or the caller left."),
			[]string{"class", "result"}),
		ownerWait: prometheus.NewHistogram(histogram("waggle_owner_wait_seconds",
			"Time that calls waited while ownership of the store moved; those that did not wait are not counted.", .01, .05, .2, 1, 2, 5)),
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
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.calls.started, m.calls.handled, m.calls.received, m.calls.sent, m.calls.took,
		m.fetchWait, m.granted, m.claims, m.claimTime, m.claimFor, m.gaveBack, m.requeue, m.owner, m.passed, m.ownerWait, m.notices,
	)
	return m
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

// overviewTimeout bounds how long a scrape waits for the store.
const overviewTimeout = 2 * time.Second

// gauge is one number of an overview.
type gauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	label []string // values
	value func(*operate.Overview) float64
}

// storeCollector shows the counts of the store and of the dispatcher, counted at
// most once an interval however often it is scraped: O(shards) at the store.
type storeCollector struct {
	o         atomic.Pointer[operate.Operator] // nil: there is none yet, or another dispatcher owns the store
	elsewhere atomic.Bool                      // another dispatcher owns the store, and counts it
	interval  time.Duration
	gauges    []gauge
	up        *prometheus.Desc
	streams   *prometheus.Desc
	findings  *prometheus.Desc
	open      func() int64

	mu   sync.Mutex // guards the rest
	last *operate.Overview
	read time.Time
}

func newStoreCollector(interval time.Duration, streams func() int64) *storeCollector {
	c := &storeCollector{
		interval: interval, open: streams,
		up:      prometheus.NewDesc("waggle_store_up", "1 when the store could be counted.", nil, nil),
		streams: prometheus.NewDesc("waggle_heartbeat_streams", "Heartbeat streams open here.", nil, nil),
		findings: prometheus.NewDesc("waggle_findings",
			"Things that findings are about, by kind, as of the last look of the store's owner, every 10 s; 0: there is no finding of the kind.", []string{"kind"}, nil),
	}
	c.gauges = storeGauges()
	return c
}

func storeGauges() []gauge {
	tasks := prometheus.NewDesc("waggle_tasks", "Tasks by state, of all sources.", []string{"state"}, nil)
	state := func(name string, value func(dispatch.StateCounts) int64) gauge {
		return gauge{tasks, prometheus.GaugeValue, []string{name}, func(o *operate.Overview) float64 {
			return float64(value(o.Store.Counts))
		}}
	}
	one := func(name, help string, value func(*operate.Overview) float64) gauge {
		return gauge{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, nil, value}
	}
	total := func(name, help string, value func(dispatch.StoreStats) int64) gauge {
		return gauge{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, nil, func(o *operate.Overview) float64 {
			return float64(value(o.Store))
		}}
	}
	return []gauge{
		state("scheduled", func(c dispatch.StateCounts) int64 { return c.Scheduled }),
		state("ready", func(c dispatch.StateCounts) int64 { return c.Ready }),
		state("leased", func(c dispatch.StateCounts) int64 { return c.Leased }),
		state("done", func(c dispatch.StateCounts) int64 { return c.Done }),
		state("dead", func(c dispatch.StateCounts) int64 { return c.Dead }),
		state("canceled", func(c dispatch.StateCounts) int64 { return c.Canceled }),
		one("waggle_queues", "Queues that hold tasks or have a gate.", func(o *operate.Overview) float64 { return float64(o.Store.Queues) }),
		one("waggle_collectors", "Collectors heard from in the last 45 s that have not ended.", func(o *operate.Overview) float64 { return float64(o.Store.Collectors) }),
		one("waggle_overdue_lease_seconds", "How far the most overdue lease is past its deadline.",
			func(o *operate.Overview) float64 { return o.Store.OldestOverdue.Seconds() }),
		one("waggle_parked_fetches", "FetchTask calls parked here.", func(o *operate.Overview) float64 { return float64(o.Parked) }),
		one("waggle_draining", "1 while this dispatcher is about to stop.", func(o *operate.Overview) float64 { return oneIf(o.Draining) }),
		total("waggle_leases_granted_total", "Leases given since the store was made.", func(s dispatch.StoreStats) int64 { return s.Granted }),
		total("waggle_leases_settled_total", "Leases that a report ended.", func(s dispatch.StoreStats) int64 { return s.Settled }),
		total("waggle_leases_expired_total", "Leases that ran out.", func(s dispatch.StoreStats) int64 { return s.Expired }),
		total("waggle_orphaned_tasks_total", "Tasks found ready while a lock still stood.", func(s dispatch.StoreStats) int64 { return s.Orphaned }),
	}
}

// Describe implements [prometheus.Collector].
func (c *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.up
	ch <- c.streams
	ch <- c.findings
	for _, g := range c.gauges {
		ch <- g.desc
	}
}

// Collect implements [prometheus.Collector]. A store that is away leaves its
// counts out, rather than showing old ones as if they were new.
func (c *storeCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(c.streams, prometheus.GaugeValue, float64(c.open()))
	var o *operate.Overview
	if from := c.o.Load(); from != nil {
		o = c.overview(from)
		for kind, count := range from.FindingCounts() {
			ch <- prometheus.MustNewConstMetric(c.findings, prometheus.GaugeValue, float64(count), strings.ToLower(string(kind)))
		}
	}
	if !c.elsewhere.Load() {
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, oneIf(o != nil))
	}
	if o == nil {
		return
	}
	for _, g := range c.gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(o), g.label...)
	}
}

func (c *storeCollector) overview(from *operate.Operator) *operate.Overview {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read.IsZero() && time.Since(c.read) < c.interval {
		return c.last
	}
	// A scrape has no context of its own to pass on.
	ctx, cancel := context.WithTimeout(context.Background(), overviewTimeout) //nolint:forbidigo // prometheus.Collector takes none
	defer cancel()
	o, err := from.Overview(ctx)
	if err != nil {
		o = nil
	}
	c.last, c.read = o, time.Now()
	return o
}

// ownedNumber is one number of an ownership.
type ownedNumber struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	label []string // values
	value func(*dispatch.Ownership) float64
}

// ownerCollector shows who owns the store, without a call to it.
type ownerCollector struct {
	of     atomic.Pointer[func() (dispatch.Ownership, bool)] // nil: the store has no owner
	series []ownedNumber
}

func ownerSeries() []ownedNumber {
	number := func(kind prometheus.ValueType) func(name, help string, value func(*dispatch.Ownership) float64) ownedNumber {
		return func(name, help string, value func(*dispatch.Ownership) float64) ownedNumber {
			return ownedNumber{prometheus.NewDesc(name, help, nil, nil), kind, nil, value}
		}
	}
	now, total := number(prometheus.GaugeValue), number(prometheus.CounterValue)
	standbys := prometheus.NewDesc("waggle_owner_standby", "Shards that this dispatcher owns, by whether a standby has them in memory too: named, or none.", []string{"state"}, nil)
	standby := func(state string, value func(*dispatch.Ownership) int) ownedNumber {
		return ownedNumber{standbys, prometheus.GaugeValue, []string{state}, func(o *dispatch.Ownership) float64 { return float64(value(o)) }}
	}
	takeovers := prometheus.NewDesc("waggle_owner_takeovers_total",
		"Shards that this dispatcher has acquired, by kind: forced, as the standby of an owner that died; warm, in memory already; loaded, from the store.", []string{"kind"}, nil)
	takeover := func(kind string, value func(*dispatch.Ownership) int64) ownedNumber {
		return ownedNumber{takeovers, prometheus.CounterValue, []string{kind}, func(o *dispatch.Ownership) float64 { return float64(value(o)) }}
	}
	return []ownedNumber{
		now("waggle_owner", "1 while this dispatcher owns the store.", func(o *dispatch.Ownership) float64 { return oneIf(o.Owning) }),
		now("waggle_owner_epoch", "The highest epoch that this dispatcher has seen.", func(o *dispatch.Ownership) float64 { return float64(o.Epoch) }),
		now("waggle_owner_shards_away", "Shards of the store without an owner.", func(o *dispatch.Ownership) float64 { return float64(len(o.Away)) }),
		standby("named", func(o *dispatch.Ownership) int { return o.WithStandby }),
		standby("none", func(o *dispatch.Ownership) int { return o.WithoutStandby }),
		takeover("forced", func(o *dispatch.Ownership) int64 { return o.Forced }),
		takeover("warm", func(o *dispatch.Ownership) int64 { return o.Warm }),
		takeover("loaded", func(o *dispatch.Ownership) int64 { return o.Loaded }),
		total("waggle_owner_changes_total", "Changes of owner that this dispatcher has seen.", func(o *dispatch.Ownership) float64 { return float64(o.Changes) }),
		total("waggle_owner_self_fences_total", "Terms of this dispatcher that ran out before it could renew them.",
			func(o *dispatch.Ownership) float64 { return float64(o.SelfFences) }),
		total("waggle_owner_lost_tasks_total", "Changes of tasks that earlier owners had kept and that were gone when this dispatcher loaded the store: a failover has lost them.",
			func(o *dispatch.Ownership) float64 { return float64(o.LostTasks) }),
		total("waggle_ownerless_seconds_total", "Time without an owner, of a shard or the whole store.",
			func(o *dispatch.Ownership) float64 { return o.OwnerlessTotal.Seconds() }),
		total("waggle_store_groups_total", "Groups of changes that this dispatcher has kept in the store.", func(o *dispatch.Ownership) float64 { return float64(o.Groups) }),
		total("waggle_store_group_bytes_total", "Bytes of these groups.", func(o *dispatch.Ownership) float64 { return float64(o.GroupBytes) }),
		total("waggle_store_group_seconds_total", "Time of these groups from the first send to the confirmation, added up.",
			func(o *dispatch.Ownership) float64 { return o.GroupTime.Seconds() }),
		total("waggle_store_groups_refused_total", "Groups of this dispatcher that were not kept, because the store had another epoch.",
			func(o *dispatch.Ownership) float64 { return float64(o.Refused) }),
		now("waggle_store_load_seconds", "How long the last load of the store or of a shard took.", func(o *dispatch.Ownership) float64 { return o.LoadTime.Seconds() }),
		now("waggle_store_load_items", "Items of the last load.", func(o *dispatch.Ownership) float64 { return float64(o.LoadedItems) }),
		total("waggle_store_rewritten_items_total", "Items that were written again after a failover had lost them.",
			func(o *dispatch.Ownership) float64 { return float64(o.Rewritten) }),
		total("waggle_store_deleted_items_total", "Items that a failover had brought back, and that were deleted again.",
			func(o *dispatch.Ownership) float64 { return float64(o.Deleted) }),
	}
}

// Describe implements [prometheus.Collector].
func (c *ownerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, n := range c.series {
		ch <- n.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *ownerCollector) Collect(ch chan<- prometheus.Metric) {
	of := c.of.Load()
	if of == nil {
		return
	}
	ownership, owned := (*of)()
	if !owned {
		return
	}
	for _, n := range c.series {
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, n.value(&ownership), n.label...)
	}
}
