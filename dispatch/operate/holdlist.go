package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

// HoldQuery selects holds that match each of its conditions. A hold on everything matches all conditions, any other
// only those of its kind of target. Without a condition it selects all.
type HoldQuery struct {
	SourceID, SourcePrefix string
	Pool                   string
	// Queue selects also patterns that match it, and Collector labels that it has.
	Queue, QueueSuffix string
	Collector          string
	// Blocks lists also those that Waggle made itself.
	Blocks bool
}

// selects reports whether a hold matches; labels are those of the query's collector.
func (q *HoldQuery) selects(t *dispatch.HoldTarget, labels map[string]string) bool {
	return t.Everything ||
		(q.SourceID == "" || t.Source == q.SourceID) &&
			(q.SourcePrefix == "" || t.Source != "" && strings.HasPrefix(t.Source, q.SourcePrefix)) &&
			(q.Pool == "" || t.Pool == q.Pool) &&
			(q.Queue == "" || t.Queue != "" && slices.Contains(dispatch.SettingsNames(q.Queue), t.Queue)) &&
			(q.QueueSuffix == "" || t.Queue != "" && below(strings.TrimPrefix(t.Queue, "*."), q.QueueSuffix)) &&
			(q.Collector == "" || holdbook.Has(t, q.Collector, labels))
}

// Where a list of holds is: the holds that are not on sources, those on sources, and blocks.
const (
	listBook    = "h "
	listSources = "s "
	listBlocks  = "q "
)

// ListHolds lists the holds in force from the first after after: by key those that are not
// on sources, by id those on sources, then by queue the blocks. A page may hold fewer than
// limit, even none; next continues, the end is an empty next.
func (o *Operator) ListHolds(ctx context.Context, q HoldQuery, after string, limit int) (holds []dispatch.Hold, next string, err error) {
	if after == "" {
		after = listBook
	}
	place, from := after[:min(len(after), 2)], after[min(len(after), 2):]
	switch place {
	case listBook:
		return o.listBook(ctx, &q, from, limit)
	case listSources:
		return o.listHeldSources(ctx, &q, from, limit)
	case listBlocks:
		return o.listBlocks(ctx, &q, from, limit)
	}
	return nil, "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, after)
}

// lists reports whether holds on sources can match, and blocks of queues.
func (q *HoldQuery) lists() (sources, blocks bool) {
	ofSources, ofQueues := q.SourceID+q.SourcePrefix != "", q.Queue+q.QueueSuffix != ""
	return !ofQueues && q.Pool+q.Collector == "", q.Blocks && !ofSources && q.Pool+q.Collector == ""
}

func (o *Operator) listBook(ctx context.Context, q *HoldQuery, after string, limit int) (holds []dispatch.Hold, next string, err error) {
	all, version, now, err := o.store.Holds(ctx, -1)
	if err != nil {
		return nil, "", fmt.Errorf("read holds: %w", err)
	}
	book := holdbook.New(all, version, now)
	var labels map[string]string
	if q.Collector != "" {
		record, err := o.collector(ctx, q.Collector)
		if err != nil {
			return nil, "", err
		}
		if record != nil {
			labels = record.Info.Labels
		}
	}
	for i := range book.All {
		h := &book.All[i]
		if h.Key() <= after || !q.selects(&h.Target, labels) {
			continue
		}
		if len(holds) == limit {
			return holds, listBook + holds[limit-1].Key(), nil
		}
		holds = append(holds, *h)
	}
	switch sources, blocks := q.lists(); {
	case sources:
		next = listSources
	case blocks:
		next = listBlocks
	}
	if next == "" || len(holds) >= limit {
		return holds, next, nil
	}
	rest, next, err := o.ListHolds(ctx, *q, next, limit-len(holds))
	return append(holds, rest...), next, err
}

// below reports whether the name of a queue is suffix, or ends in it after a dot.
func below(name, suffix string) bool { return name == suffix || strings.HasSuffix(name, "."+suffix) }

// sourcesPerLook is how many held sources, or queues that may be blocked, one look reads.
const sourcesPerLook = 1000

func (o *Operator) listHeldSources(ctx context.Context, q *HoldQuery, after string, limit int) (holds []dispatch.Hold, next string, err error) {
	now, err := o.Now(ctx)
	if err != nil {
		return nil, "", err
	}
	// A page that ends among the holds of a source goes on after the key of its last one.
	id, key, among := strings.Cut(after, " ")
	var sources []*dispatch.Source
	if among {
		kept, err := o.keptSource(ctx, id)
		if err != nil {
			return nil, "", err
		}
		if kept != nil {
			sources = append(sources, kept)
		}
	}
	filter := dispatch.SourceFilter{Prefix: q.SourcePrefix, Held: true}
	if strings.HasPrefix(q.SourceID, q.SourcePrefix) {
		filter.Prefix = q.SourceID
	}
	page, more, err := o.store.ListSources(ctx, filter, id, min(limit, sourcesPerLook))
	if err != nil {
		return nil, "", fmt.Errorf("list held sources: %w", err)
	}
	last := id
	for _, source := range append(sources, page...) {
		for _, hold := range withoutHold(source.Holds, "", now) {
			if !q.selects(&hold.Target, nil) || source.ID == id && hold.Key() <= key {
				continue
			}
			if len(holds) == limit {
				return holds, listSources + holds[limit-1].Target.Source + " " + holds[limit-1].Key(), nil
			}
			holds = append(holds, hold)
		}
		last = source.ID
	}
	switch _, blocks := q.lists(); {
	case more:
		next = listSources + last
	case blocks:
		next = listBlocks
	}
	return holds, next, nil
}

// forgetHeld removes ids that no source has and whose holds are over, in a page of held sources
// after after. next is where to go on; empty: at the beginning.
func (o *Operator) forgetHeld(ctx context.Context, after string) (next string, err error) {
	now, err := o.Now(ctx)
	if err != nil {
		return after, err
	}
	sources, more, err := o.store.ListSources(ctx, dispatch.SourceFilter{Held: true}, after, sourcesPerLook)
	if err != nil {
		return after, fmt.Errorf("list held sources: %w", err)
	}
	for _, source := range sources {
		if source.Gone() && holdbook.LastEnd(source.Holds, now).IsZero() {
			if _, err := o.store.MarkApplied(ctx, source.ID, source.UID, source.Version, nil); err != nil {
				return after, fmt.Errorf("forget the holds on source %q: %w", source.ID, err)
			}
		}
		next = source.ID
	}
	if !more {
		next = ""
	}
	return next, nil
}

func (o *Operator) listBlocks(ctx context.Context, q *HoldQuery, after string, limit int) (holds []dispatch.Hold, next string, err error) {
	if q.Queue != "" {
		queue, err := o.queue(ctx, q.Queue)
		if err != nil || queue == nil {
			return nil, "", err
		}
		if hold := blockOf(queue); hold != nil && q.selects(&hold.Target, nil) {
			holds = append(holds, *hold)
		}
		return holds, "", nil
	}
	queues, err := o.store.ListQueues(ctx, q.QueueSuffix, after, sourcesPerLook)
	if err != nil {
		return nil, "", fmt.Errorf("list queues: %w", err)
	}
	for _, queue := range queues {
		if hold := blockOf(queue); hold != nil {
			holds = append(holds, *hold)
		}
		if len(holds) == limit {
			return holds, listBlocks + queue.Name, nil
		}
	}
	if len(queues) == sourcesPerLook {
		next = listBlocks + queues[len(queues)-1].Name
	}
	return holds, next, nil
}
