// Package holdbook has the holds of operators that are in force, as dispatchers apply them and
// operators look at them.
package holdbook

import (
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Book is the holds of [dispatch.Holds] that are in force at one time. It is not changed once
// made; nil is one of no holds.
type Book struct {
	Version int64
	// All that are in force, by key.
	All []dispatch.Hold
	// Next is when the next of them ends by itself; zero: none does.
	Next time.Time

	everything []*dispatch.Hold
	pools      map[string][]*dispatch.Hold
	queues     map[string][]*dispatch.Hold
	collectors map[string][]*dispatch.Hold
	labels     []*dispatch.Hold
}

// New makes the book of those of the holds that are in force.
func New(holds []dispatch.Hold, version int64, now time.Time) *Book {
	b := &Book{Version: version, pools: make(map[string][]*dispatch.Hold), queues: make(map[string][]*dispatch.Hold), collectors: make(map[string][]*dispatch.Hold)}
	b.All = slices.DeleteFunc(slices.Clone(holds), func(h dispatch.Hold) bool { return h.Over(now) })
	slices.SortFunc(b.All, func(x, y dispatch.Hold) int { return strings.Compare(x.Key(), y.Key()) })
	for i := range b.All {
		h := &b.All[i]
		if !h.Until.IsZero() && (b.Next.IsZero() || h.Until.Before(b.Next)) {
			b.Next = h.Until
		}
		switch t := &h.Target; {
		case t.Everything:
			b.everything = append(b.everything, h)
		case t.Pool != "":
			b.pools[t.Pool] = append(b.pools[t.Pool], h)
		case t.Queue != "":
			b.queues[t.Queue] = append(b.queues[t.Queue], h)
		case t.Collector != "":
			b.collectors[t.Collector] = append(b.collectors[t.Collector], h)
		case len(t.Labels) > 0:
			b.labels = append(b.labels, h)
		}
	}
	return b
}

// Everything are the holds on everything.
func (b *Book) Everything() []*dispatch.Hold {
	if b == nil {
		return nil
	}
	return b.everything
}

// Pool are the holds on a pool, without those on everything.
func (b *Book) Pool(pool string) []*dispatch.Hold {
	if b == nil {
		return nil
	}
	return b.pools[pool]
}

// Queue are the holds on a queue and on patterns that match it, without those on
// everything.
func (b *Book) Queue(queue string) (holds []*dispatch.Hold) {
	if b == nil || len(b.queues) == 0 {
		return nil
	}
	for _, name := range dispatch.SettingsNames(queue) {
		holds = append(holds, b.queues[name]...)
	}
	return holds
}

// Collector are the holds on a collector with these labels, without those on everything:
// the one that ends last first.
func (b *Book) Collector(collector string, labels map[string]string) (holds []*dispatch.Hold) {
	if b == nil {
		return nil
	}
	holds = append(holds, b.collectors[collector]...)
	for _, h := range b.labels {
		if Has(&h.Target, collector, labels) {
			holds = append(holds, h)
		}
	}
	slices.SortStableFunc(holds, func(x, y *dispatch.Hold) int { return y.End().Compare(x.End()) })
	return holds
}

// StopsCollector reports whether a hold stops a collector with these labels. Those on
// everything do not count: the collector is asked nothing by them.
func (b *Book) StopsCollector(collector string, labels map[string]string) bool {
	return len(b.Collector(collector, labels)) > 0
}

// StopsPool reports whether a hold on the pool, or on everything, stops grants of it.
func (b *Book) StopsPool(pool string) bool {
	return len(b.Everything())+len(b.Pool(pool)) > 0
}

// LastEnd is when the last of the holds ends that are not over; zero when all are.
func LastEnd(holds []dispatch.Hold, now time.Time) (last time.Time) {
	for i := range holds {
		if end := holds[i].End(); !holds[i].Over(now) && end.After(last) {
			last = end
		}
	}
	return last
}

// Has reports whether a target is a collector with these labels, or labels that it has.
func Has(t *dispatch.HoldTarget, collector string, labels map[string]string) bool {
	if t.Collector != "" {
		return t.Collector == collector
	}
	for key, value := range t.Labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return len(t.Labels) > 0
}

// Same reports whether both are equal, except for the time they were set.
func Same(a, b *dispatch.Hold) bool {
	return a.Key() == b.Key() && a.Effect == b.Effect && a.By == b.By && a.Reason == b.Reason && a.Until.Equal(b.Until)
}
