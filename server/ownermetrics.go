package server

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waggle-crawl/waggle/dispatch"
)

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
