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
	case hasProblem(v):
		return findCollector, v.Seen.Add(-v.Info.ProblemDuration)
	case l.failsAlone(v):
		return findFetchesFail, v.Outcomes.FailingSince
	case l.deaf(v):
		return findDeaf, l.now.Add(-l.idle(v.Info.ID))
	}
	return "", time.Time{}
}

// problemLeast is how long a collector reports a problem before that is a finding: what takes its pages may be restarted.
const problemLeast = 2 * dispatch.IdleBeat

// hasProblem reports whether a collector has been reporting for a while that something keeps it from its work.
func hasProblem(v *CollectorView) bool {
	return v.Info.Problem != "" && v.Info.ProblemDuration >= problemLeast
}

// failsAlone reports whether all tasks of a collector fail, for whatever reason, and it is alone or another collector succeeds.
func (l *look) failsAlone(v *CollectorView) bool {
	o := v.Outcomes
	if o == nil || o.FailedInRow < failedLeast || l.now.Sub(o.FailingSince) < failingLeast {
		return false
	}
	alone := true
	for i := range l.collectors {
		other := &l.collectors[i]
		switch {
		case other.Info.ID == v.Info.ID || other.Info.Ended || other.Gone(l.now) || other.Outcomes == nil:
		case other.Outcomes.LastSuccess.After(o.FailingSince):
			return true
		default:
			alone = false
		}
	}
	return alone
}

// deaf reports whether a collector has neither fetched nor reported for long, though it could and there is work. A collector that
// sends no beats is never deaf: its silence makes it gone.
func (l *look) deaf(v *CollectorView) bool {
	free := v.Held < int64(max(v.Info.Slots-v.Info.StuckSlots, 1))
	return free && !v.Info.Stuck() && l.idle(v.Info.ID) >= deafAfter && l.workFor(v)
}

// idle is how long a collector has neither fetched nor reported though it could, by the clock of this process; 0 if that is not known.
func (l *look) idle(collector string) time.Duration {
	since := l.d.IdleSince(collector)
	if since.IsZero() {
		return 0
	}
	return time.Since(since)
}

// workFor reports whether tasks of the pools of a collector can be handed out now, or other collectors work on such.
func (l *look) workFor(v *CollectorView) bool {
	takes := func(pool string) bool {
		return takesOf(&v.Info, wanted{pool: pool}) != takesNone && !l.book.StopsPool(pool)
	}
	if slices.ContainsFunc(l.pools, func(p *PoolView) bool { return p.Open > 0 && takes(p.Name) }) {
		return true
	}
	return slices.ContainsFunc(l.collectors, func(other CollectorView) bool {
		pools := other.Info.Pools
		if len(pools) == 0 {
			pools = []string{dispatch.DefaultPool}
		}
		return other.Info.ID != v.Info.ID && other.Held > 0 && slices.ContainsFunc(pools, takes)
	})
}

// message is what is wrong with a collector, beside what it reports of itself.
func (l *look) message(kind FindingKind, v *CollectorView) string {
	switch kind {
	case findCollector:
		if v.Outcomes.Unable() {
			return ""
		}
		return v.Info.Problem
	case findDeaf:
		free := int64(max(v.Info.Slots-v.Info.StuckSlots, 1)) - v.Held
		return fmt.Sprintf("it beats, but has not fetched or reported for %v, with %s and work for it",
			l.idle(v.Info.ID).Truncate(time.Second), counted(free, "free slot"))
	case findFetchesFail:
		return counted(int64(v.Outcomes.FailedInRow), "failure") + " in a row"
	default:
		return ""
	}
}

// findCollectors finds collectors that can do nothing, that hold leases and are not heard from, that are gone since a short
// while, and those with handlers that go on after their leases.
func (l *look) findCollectors() {
	type cause struct {
		kind   FindingKind
		reason dispatch.FailureReason // of COLLECTOR: each needs another remedy; 0: it reports a problem, or gives tasks back
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
			f.Worst, f.Since, f.Next, f.Message = v, since, next, l.message(of.kind, v)
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
			if kind == findCollector && v.Outcomes.Unable() && v.Outcomes.LastError != nil {
				of.reason = v.Outcomes.LastError.Reason
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
