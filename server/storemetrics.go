package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// overviewTimeout bounds how long a scrape waits for the store.
const overviewTimeout = 2 * time.Second

// gauge is numbers of an overview, with a value for each label.
type gauge struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*operate.Overview, show)
}

// show takes a value, with the values of its labels.
type show func(value float64, labels ...string)

// storeCollector shows the counts of the store and of the dispatcher, counted at
// most once an interval however often it is scraped: O(shards) at the store. How the sources are is not counted by a scrape, but in the
// background ([operate.SourceCounts]).
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
	c.gauges = slices.Concat(workGauges(), holdGauges(), roomGauges())
	return c
}

// numbers is a metric with one value, or with one for each of its labels.
func numbers(kind prometheus.ValueType, name, help string, of func(*operate.Overview, show), labels ...string) gauge {
	return gauge{prometheus.NewDesc(name, help, labels, nil), kind, of}
}

func single(name, help string, value func(*operate.Overview) float64) gauge {
	return numbers(prometheus.GaugeValue, name, help, func(o *operate.Overview, show show) { show(value(o)) })
}

// workGauges are of tasks, leases and who works on them.
func workGauges() []gauge {
	total := func(name, help string, value func(*dispatch.StoreStats) int64) gauge {
		return numbers(prometheus.CounterValue, name, help, func(o *operate.Overview, show show) { show(float64(value(&o.Store))) })
	}
	// Of a pool without work there is a 0 if it is the default one.
	pool := func(name, help string, value func(*dispatch.Pool) float64) gauge {
		return numbers(prometheus.GaugeValue, name, help, func(o *operate.Overview, show show) {
			for _, p := range labeledPools(o.Store.Pools) {
				show(value(&p), p.Name)
			}
		}, "pool")
	}
	return []gauge{
		numbers(prometheus.GaugeValue, "waggle_tasks", "Tasks by state, of all sources.", func(o *operate.Overview, show show) {
			c := &o.Store.Counts
			show(float64(c.Scheduled), "scheduled")
			show(float64(c.Ready), "ready")
			show(float64(c.Leased), "leased")
			show(float64(c.Done), "done")
			show(float64(c.Dead), "dead")
			show(float64(c.Canceled), "canceled")
		}, "state"),
		pool("waggle_grantable_tasks", "Tasks that could be granted at once if a collector asked, by pool: one of each host with a delay. Holds do not count.",
			func(p *dispatch.Pool) float64 { return float64(p.Grantable) }),
		pool("waggle_oldest_grantable_task_seconds", "How long the host that waits longest could have been granted from, by pool: work that waits for a collector. 0: none does.",
			func(p *dispatch.Pool) float64 { return p.OldestGrantable.Seconds() }),
		pool("waggle_oldest_lease_seconds", "Age of the oldest lease, by pool. 0: there is none.",
			func(p *dispatch.Pool) float64 { return p.OldestLease.Seconds() }),
		single("waggle_queues", "Queues that hold tasks or have a gate.", func(o *operate.Overview) float64 { return float64(o.Store.Queues) }),
		single("waggle_collectors", "Collectors heard from in the last 45 s that have not ended.", func(o *operate.Overview) float64 { return float64(o.Store.Collectors) }),
		single("waggle_overdue_lease_seconds", "How far the most overdue lease is past its deadline.",
			func(o *operate.Overview) float64 { return o.Store.OldestOverdue.Seconds() }),
		single("waggle_parked_fetches", "FetchTask calls parked here.", func(o *operate.Overview) float64 { return float64(o.Parked) }),
		single("waggle_draining", "1 while this dispatcher is about to stop.", func(o *operate.Overview) float64 { return oneIf(o.Draining) }),
		total("waggle_leases_granted_total", "Leases given since the store was made.", func(s *dispatch.StoreStats) int64 { return s.Granted }),
		total("waggle_leases_settled_total", "Leases that a report ended.", func(s *dispatch.StoreStats) int64 { return s.Settled }),
		total("waggle_leases_expired_total", "Leases that ran out.", func(s *dispatch.StoreStats) int64 { return s.Expired }),
		total("waggle_orphaned_tasks_total", "Tasks found ready while a lock still stood.", func(s *dispatch.StoreStats) int64 { return s.Orphaned }),
	}
}

// labeledPools are the pools as labels have them: the default one in any case, at most [maxPoolLabels] others, and the rest together with
// a pool that is called [otherPools].
func labeledPools(pools []dispatch.Pool) []dispatch.Pool {
	out := []dispatch.Pool{{Name: dispatch.DefaultPool}}
	others, some := dispatch.Pool{Name: otherPools}, false
	for _, p := range pools {
		to := &out[0]
		switch {
		case p.Name == dispatch.DefaultPool:
		case p.Name != otherPools && len(out) <= maxPoolLabels:
			out = append(out, dispatch.Pool{Name: p.Name})
			to = &out[len(out)-1]
		default:
			to, some = &others, true
		}
		to.Grantable += p.Grantable
		to.OldestGrantable, to.OldestLease = max(to.OldestGrantable, p.OldestGrantable), max(to.OldestLease, p.OldestLease)
	}
	if some {
		out = append(out, others)
	}
	return out
}

// holdGauges are of what stops something, and of how the sources are.
func holdGauges() []gauge {
	return []gauge{
		numbers(prometheus.GaugeValue, "waggle_holds", "Holds of operators, by what they are on. Those on sources are counted at each look of the owner for findings.",
			func(o *operate.Overview, show show) {
				var everything, pool, queue, collector float64
				for i := range o.Holds {
					switch t := &o.Holds[i].Target; {
					case t.Everything:
						everything++
					case t.Pool != "":
						pool++
					case t.Queue != "":
						queue++
					default:
						collector++
					}
				}
				show(everything, "everything")
				show(pool, "pool")
				show(float64(o.Sources.Holds), "source")
				show(queue, "queue")
				show(collector, "collector")
			}, "target"),
		single("waggle_oldest_hold_seconds", "Age of the oldest hold without an end; 0: there is none.", func(o *operate.Overview) float64 {
			oldest := o.Sources.OldestHold
			for i := range o.Holds {
				if h := &o.Holds[i]; h.Until.IsZero() && (oldest.IsZero() || h.Created.Before(oldest)) {
					oldest = h.Created
				}
			}
			if oldest.IsZero() {
				return 0
			}
			return max(o.Now.Sub(oldest), 0).Seconds()
		}),
		single("waggle_blocked_queues", "Queues that Waggle has blocked after failures.", func(o *operate.Overview) float64 { return float64(o.Store.Blocked) }),
		numbers(prometheus.GaugeValue, "waggle_sources",
			"Sources by health, as of the last look of the owner for findings; never: none of its tasks has succeeded, and it was due.",
			func(o *operate.Overview, show show) {
				for health, name := range pb.SourceHealth_name {
					if health != 0 {
						show(float64(o.Sources.Health[operate.SourceHealth(health)]), strings.ToLower(strings.TrimPrefix(name, "SOURCE_HEALTH_"))) //nolint:gosec // the same numbers
					}
				}
				show(float64(o.Sources.Never), "never")
			}, "health"),
	}
}

// roomGauges are of what keeps the store.
func roomGauges() []gauge {
	return []gauge{
		single("waggle_store_used_bytes", "Bytes that the store takes: files of the directory, or memory of the fullest Redis.",
			func(o *operate.Overview) float64 { return float64(o.Store.UsedBytes) }),
		single("waggle_store_limit_bytes", "Bytes that the store may take: maxmemory of that Redis; 0: there is no limit.",
			func(o *operate.Overview) float64 { return float64(o.Store.LimitBytes) }),
		numbers(prometheus.GaugeValue, "waggle_store_free_bytes", "Bytes that are free on the disk of a directory; other stores have no such series.",
			func(o *operate.Overview, show show) {
				if o.Store.DiskBytes > 0 {
					show(float64(o.Store.FreeBytes))
				}
			}),
		single("waggle_store_full", "1 while the store takes no more data.", func(o *operate.Overview) float64 { return oneIf(o.Store.Full) }),
		single("waggle_store_group_lag_seconds", "Age of the oldest change that the store has not kept yet.",
			func(o *operate.Overview) float64 { return o.Store.OldestGroup.Seconds() }),
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
		g.of(o, func(value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(g.desc, g.kind, value, labels...)
		})
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
