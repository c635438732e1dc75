package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// collectorFinding is what is wrong with a collector; empty: nothing is.
func (l *look) collectorFinding(v *CollectorView) (FindingKind, time.Time) {
	age := l.now.Sub(v.Seen)
	switch {
	case v.Info.Ended:
	case v.Held > 0 && age > beatOverdue:
		return findHung, v.Seen
	case v.Gone(l.now):
		if age < goneRecently {
			return findGone, v.Seen
		}
	case v.Info.Stopping || len(v.Holds) > 0:
	case v.Outcomes.Unable():
		return findCollector, v.Outcomes.Since
	}
	return "", time.Time{}
}

// findCollectors finds collectors that can do nothing, that hold leases and are not heard from, that are gone since a short
// while, and those with handlers that go on after their leases.
func (l *look) findCollectors() {
	type cause struct {
		kind   FindingKind
		reason dispatch.FailureReason // of COLLECTOR: each needs another remedy
	}
	found := make(map[cause]*Finding)
	note := func(of cause, v *CollectorView, since time.Time, next string) {
		f := found[of]
		if f == nil {
			f = &Finding{Kind: of.kind}
			found[of] = f
		}
		worse := f.Worst == nil || of.kind != findHandler && since.Before(f.Since) || of.kind == findHandler && working(v) < working(f.Worst.(*CollectorView)) //nolint:forcetypeassert // set below
		if f.Count++; worse {
			f.Worst, f.Since, f.Next = v, since, next
			f.Names = slices.Insert(f.Names, 0, v.Info.ID)
		} else {
			f.Names = append(f.Names, v.Info.ID)
		}
	}
	for i := range l.collectors {
		v := &l.collectors[i]
		only := "waggle collector list --collector " + v.Info.ID
		switch kind, since := l.collectorFinding(v); kind {
		case "":
		case findHung:
			note(cause{kind: kind}, v, since, "waggle lease list --collector "+v.Info.ID)
		case findGone:
			note(cause{kind: kind}, v, since, "waggle collector list")
		default:
			of := cause{kind: kind}
			if e := v.Outcomes.LastError; e != nil {
				of.reason = e.Reason
			}
			note(of, v, since, only)
		}
		if v.Info.StuckSlots > 0 && !v.Info.Ended && !v.Gone(l.now) {
			note(cause{kind: findHandler}, v, time.Time{}, only)
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(found), func(a, b cause) int { return cmp.Compare(a.reason, b.reason) }) {
		l.add(*found[of])
	}
}

// working is how many slots of a collector are not stuck.
func working(v *CollectorView) int { return max(v.Info.Slots-v.Info.StuckSlots, 0) }

// findPools finds pools with work that no collector takes.
func (l *look) findPools(ctx context.Context) {
	taken := map[string]bool{}
	for i := range l.collectors {
		v := &l.collectors[i]
		idle := v.Info.Ended || v.Info.Stopping || v.Gone(l.now) || len(v.Holds) > 0 || v.Info.Stuck()
		if idle || len(v.Info.Sources)+len(v.Info.Queues) > 0 {
			continue
		}
		for _, pool := range v.Info.Pools {
			taken[pool] = true
		}
		taken[dispatch.DefaultPool] = taken[dispatch.DefaultPool] || len(v.Info.Pools) == 0
	}
	asked := 0
	for _, p := range l.pools {
		if taken[p.Name] || asked == askedPools {
			continue
		}
		asked++
		holds, _, err := l.poolHolds(ctx, wanted{pool: p.Name})
		if err == nil && slices.ContainsFunc(holds, func(h Held) bool { return h.Kind == dispatch.GateNoCollector }) {
			l.add(Finding{Kind: findNoCollector, Names: []string{p.Name}, Next: "waggle explain pool " + p.Name, Worst: p})
		}
	}
}

// findLeases finds leases past their deadline, and handlers that take most of the time that their source allows.
func (l *look) findLeases() {
	beats := make(map[string]time.Duration, len(l.collectors)) // the age of the last
	for i := range l.collectors {
		beats[l.collectors[i].Info.ID] = max(l.now.Sub(l.collectors[i].Seen), 0)
	}
	slices.SortStableFunc(l.leases, func(a, b *dispatch.Task) int { return a.Lease.Granted.Compare(b.Lease.Granted) })
	var overdue, slow Finding
	note := func(f *Finding, kind FindingKind, t *dispatch.Task, since time.Time) {
		f.Count++
		f.Names = append(f.Names, string(t.ID))
		if f.Worst == nil {
			f.Kind, f.Since, f.Worst, f.Next = kind, since, t, "waggle lease list --collector "+t.Lease.Token.Collector
			if beat, known := beats[t.Lease.Token.Collector]; known {
				f.Message = fmt.Sprintf("last beat %v ago", beat.Truncate(time.Second))
			}
		}
	}
	for i, t := range l.leases {
		beat, known := beats[t.Lease.Token.Collector]
		switch {
		case beat > beatOverdue: // the collector has a finding
		case t.Lease.Deadline.Before(l.now):
			note(&overdue, findHung, t, t.Lease.Deadline)
		case i < oldestLeases && known && float64(l.now.Sub(t.Lease.Granted)) > handlerShare*float64(t.Lease.MaxHold):
			if slow.MaxHold == 0 {
				slow.MaxHold = t.Lease.MaxHold
			}
			note(&slow, findHandler, t, t.Lease.Granted)
		}
	}
	for _, f := range []Finding{overdue, slow} {
		if f.Worst != nil {
			l.add(f)
		}
	}
}
