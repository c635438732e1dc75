package collector

import (
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// lapsedReason is why a lease was lost that the collector gave up itself: it could not be renewed in time.
const lapsedReason = "not_renewed"

// metrics are what a Collector shows of itself, over all its Runs. Every series is there from the start.
type metrics struct {
	of *Collector

	tasks    *prometheus.CounterVec
	bytes    prometheus.Counter
	handling prometheus.Histogram
	lost     *prometheus.CounterVec

	slots, busy, leases, connected, held, problem, answered, unsent *prometheus.Desc
}

func newMetrics(of *Collector) *metrics {
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("waggle_collector_"+name, help, nil, nil)
	}
	m := &metrics{
		of: of,
		tasks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waggle_collector_tasks_total",
			Help: "Tasks whose end a dispatcher has taken from this collector, by outcome: succeeded, released, or the reason of the failure.",
		}, []string{"outcome"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waggle_collector_page_bytes_total", Help: "Bytes of the pages of the tasks that succeeded, as the handler gave them.",
		}),
		handling: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "waggle_collector_handler_duration_seconds", Help: "Time that the handler took for a task, whatever came of it.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}, NativeHistogramBucketFactor: 1.1,
			NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waggle_collector_lost_leases_total",
			Help: "Leases that ended before the task was reported, by the reason that a dispatcher gave, or not_renewed.",
		}, []string{"reason"}),
		slots:     gauge("slots", "Tasks that may be worked on at once."),
		busy:      gauge("busy_slots", "Handlers that have not returned, stuck ones too."),
		leases:    gauge("leases", "Leases held: tasks that are worked on, or whose report no dispatcher has answered."),
		connected: gauge("connected", "1 if a dispatcher has answered the last call, 0 if not, or if the collector does not run."),
		held:      gauge("held", "1 while a hold stops the collector."),
		problem:   gauge("problem", "1 while something keeps the collector itself from its work, such as pages that are not taken where it sends them."),
		answered:  gauge("last_answer_timestamp_seconds", "When a dispatcher last answered anything; 0: never."),
		unsent:    gauge("unsent_reports", "Reports that no dispatcher has answered yet."),
	}
	for number := range wagglev1.FailureReason_name {
		if number != 0 {
			m.tasks.WithLabelValues(outcomeLabel(wagglev1.FailureReason(number)))
		}
	}
	m.tasks.WithLabelValues("succeeded")
	m.tasks.WithLabelValues("released")
	for number := range wagglev1.LostReason_name {
		if number != 0 {
			m.lost.WithLabelValues(lostLabel(wagglev1.LostReason(number)))
		}
	}
	m.lost.WithLabelValues(lapsedReason)
	return m
}

// Metrics are the metrics of this Collector for a registry of Prometheus, all named waggle_collector_..., over all its Runs;
// deploy/metrics.md lists them. None is labeled by source, queue, task or collector, so a registry takes those of one Collector; for
// more wrap it with prometheus.WrapRegistererWith. Each call returns the same.
func (c *Collector) Metrics() prometheus.Collector { return c.metrics }

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, part := range m.counted() {
		part.Describe(out)
	}
	for _, desc := range []*prometheus.Desc{m.slots, m.busy, m.leases, m.connected, m.held, m.problem, m.answered, m.unsent} {
		out <- desc
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, part := range m.counted() {
		part.Collect(out)
	}
	stats, held, last := m.of.Stats(), 0, 0.
	if r := m.of.current.Load(); r != nil {
		held = r.leases.held()
	}
	if !stats.LastAnswer.IsZero() {
		last = float64(stats.LastAnswer.UnixMilli()) / 1000
	}
	running := m.of.running.Load()
	_, problem := m.of.cfg.problem()
	for desc, value := range map[*prometheus.Desc]float64{
		m.slots: float64(stats.Slots), m.busy: float64(stats.Running), m.leases: float64(held), m.unsent: float64(stats.Reports),
		m.connected: truth(running && stats.connected()), m.held: truth(running && stats.Held), m.problem: truth(problem != nil), m.answered: last,
	} {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
}

// counted are those that count by themselves.
func (m *metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{m.tasks, m.bytes, m.handling, m.lost}
}

// reported counts an outcome that a dispatcher has taken.
func (m *metrics) reported(outcome *wagglev1.Outcome) {
	switch result := outcome.GetResult().(type) {
	case *wagglev1.Outcome_Succeeded:
		m.tasks.WithLabelValues("succeeded").Inc()
		m.bytes.Add(float64(result.Succeeded.GetBytes()))
	case *wagglev1.Outcome_Failed:
		m.tasks.WithLabelValues(outcomeLabel(result.Failed.GetReason())).Inc()
	case *wagglev1.Outcome_Released:
		m.tasks.WithLabelValues("released").Inc()
	}
}

// outcomeLabel is a reason as a label. Those that this build does not know are one.
func outcomeLabel(reason wagglev1.FailureReason) string {
	name, known := wagglev1.FailureReason_name[int32(reason)]
	if !known || reason == 0 {
		name = wagglev1.FailureReason_FAILURE_REASON_OTHER.String()
	}
	return strings.ToLower(strings.TrimPrefix(name, "FAILURE_REASON_"))
}

// lostLabel is why a lease was lost as a label.
func lostLabel(reason wagglev1.LostReason) string {
	name, known := wagglev1.LostReason_name[int32(reason)]
	if !known || reason == 0 {
		return lapsedReason
	}
	return strings.ToLower(strings.TrimPrefix(name, "LOST_REASON_"))
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// connected reports whether a dispatcher answers.
func (s *Stats) connected() bool {
	return s.LastError == nil && !s.LastAnswer.IsZero() && time.Since(s.LastAnswer) <= healthySilence
}

// Ready returns nil while the Collector takes tasks: Run goes on, a dispatcher answers, no hold stops it, it does not stop, and a slot
// is not stuck. It is meant for a readiness probe; see also Health.
func (c *Collector) Ready() error {
	if err := c.Health(); err != nil {
		return err
	}
	switch stats := c.Stats(); {
	case stats.Stopping:
		return errors.New("collector is stopping")
	case stats.LastAnswer.IsZero():
		return errors.New("no dispatcher has answered yet")
	case stats.LastError != nil:
		return stats.LastError
	case stats.Held:
		return errors.New("a hold stops the collector; `waggle hold list` shows it")
	}
	return nil
}
