package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// CollectorView is a collector with what holds it.
type CollectorView struct {
	dispatch.CollectorRecord
	// Holds are those on it and on labels that it has, the one that ends last first.
	Holds []*dispatch.Hold
	// Outcomes are how its tasks ended lately; nil: not known.
	Outcomes *dispatch.Outcomes
}

// Gone reports whether the collector has been silent for [dispatch.GoneAfter].
func (c *CollectorView) Gone(now time.Time) bool { return now.Sub(c.Seen) > dispatch.GoneAfter }

// collectorsPerPage bounds a page of ListCollectors: each may have labels and names of
// 24 KiB, and pages are bounded by [bounds.MaxPageBytes].
const collectorsPerPage = 100

// ListCollectors lists collectors by id from the first after after, with the
// store's time of the look. A page may hold fewer than limit; next continues, the end is
// an empty next.
func (o *Operator) ListCollectors(ctx context.Context, after string, limit int) (collectors []CollectorView, next string, now time.Time, err error) {
	limit = min(limit, collectorsPerPage)
	records, err := o.store.ListCollectors(ctx, dispatch.CollectorFilter{Held: true}, after, limit)
	if err != nil {
		return nil, "", now, fmt.Errorf("list collectors: %w", err)
	}
	at, err := o.snapshot(ctx)
	if err != nil {
		return nil, "", now, err
	}
	for _, r := range records {
		collectors = append(collectors, CollectorView{
			CollectorRecord: *r, Holds: at.book.Collector(r.Info.ID, r.Info.Labels), Outcomes: o.d.Outcomes(r),
		})
	}
	if len(records) == limit {
		next = records[limit-1].Info.ID
	}
	return collectors, next, at.now, nil
}

// Collectors are read page by page. The first is short, since one that takes what is
// wanted is mostly among the first.
const (
	collectorsAtFirst = 20
	collectorsPerLook = 200
	// collectorsLookedAt bounds how many are looked at.
	collectorsLookedAt = 1000
)

// eachPresent visits the collectors that are neither gone nor ended, until it has visited most of
// them, or visit returns false. all reports whether there are no others.
func (o *Operator) eachPresent(ctx context.Context, most int, now time.Time, visit func(*dispatch.CollectorInfo) (more bool)) (all bool, err error) {
	present, err := o.store.ListCollectors(ctx, dispatch.CollectorFilter{Since: now.Add(-dispatch.GoneAfter)}, "", most+1)
	if err != nil {
		return false, fmt.Errorf("list collectors that are present: %w", err)
	}
	all = len(present) <= most
	ids := make([]string, min(len(present), most))
	for i := range ids {
		ids[i] = present[i].Info.ID
	}
	for size := collectorsAtFirst; len(ids) > 0; size = collectorsPerLook {
		page := ids[:min(len(ids), size)]
		records, err := o.store.ListCollectors(ctx, dispatch.CollectorFilter{IDs: page}, "", 0)
		if err != nil {
			return false, fmt.Errorf("read collectors: %w", err)
		}
		for i, r := range records {
			if r == nil { // it was forgotten since
				r = &dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: page[i]}}
			}
			if !visit(&r.Info) {
				return false, nil
			}
		}
		ids = ids[len(page):]
	}
	return all, nil
}

// eachCollector visits the collectors that are remembered, by id, page by page, until
// most were looked at, or visit returns false. all reports whether it came to the end.
func (o *Operator) eachCollector(ctx context.Context, most int, visit func(*dispatch.CollectorRecord) (more bool)) (all bool, err error) {
	after, size := "", collectorsAtFirst
	for looked := 0; looked < most; {
		page, err := o.store.ListCollectors(ctx, dispatch.CollectorFilter{}, after, size)
		if err != nil {
			return false, fmt.Errorf("list collectors: %w", err)
		}
		for _, c := range page {
			if !visit(c) {
				return false, nil
			}
		}
		if len(page) < size {
			return true, nil
		}
		looked += size
		after, size = page[len(page)-1].Info.ID, collectorsPerLook
	}
	return false, nil
}

// collector reads what is known of a collector; nil if nothing is.
func (o *Operator) collector(ctx context.Context, id string) (*dispatch.CollectorRecord, error) {
	records, err := o.store.ListCollectors(ctx, dispatch.CollectorFilter{IDs: []string{id}}, "", 0)
	if err != nil {
		return nil, fmt.Errorf("read collector %q: %w", id, err)
	}
	return records[0], nil
}
