package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/waggle-crawl/waggle/dispatch"
)

// page is a task whose page leads to items.
type page struct {
	task  *dispatch.Task
	items []dispatch.DiscoveredItem
}

// discover submits what pages lead to, by their sources' follow rules. Depth
// is the parent's plus one, or the parent's where its own page went by a
// redirect; run and metadata are inherited.
func (d *Dispatcher) discover(ctx context.Context, pages []page) ([][]dispatch.DiscoverResult, error) {
	type place struct{ page, item int }
	var places []place
	results := make([][]dispatch.DiscoverResult, len(pages))
	for n := range pages {
		results[n] = make([]dispatch.DiscoverResult, len(pages[n].items))
		for i := range pages[n].items {
			places = append(places, place{n, i})
		}
	}
	err := d.SubmitAll(ctx, len(places), func(i int, known *Known, item *dispatch.Submission) (*dispatch.Source, error) {
		from, result := &pages[places[i].page], &results[places[i].page][places[i].item]
		source, follow, err := known.source(ctx, from.task.SourceID)
		if errors.Is(err, dispatch.ErrSourceNotFound) || err == nil && (source.Deleted || source.UID != from.task.SourceUID) {
			*result = dispatch.DiscoverResult{Code: dispatch.DiscoverFiltered, Message: "the source is deleted"}
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if refusal := known.discovery(source, follow, from.task, &from.items[places[i].item], item); refusal != nil {
			*result = *refusal
			return nil, nil
		}
		return source, nil
	}, func(i int, item *dispatch.Submission, r dispatch.SubmitResult) {
		results[places[i].page][places[i].item] = discovered(item, r)
	})
	return results, err
}

// discovery makes the item of what a page of t's leads to, or says why there is none.
func (k *Known) discovery(source *dispatch.Source, f *dispatch.Follower, t *dispatch.Task, found *dispatch.DiscoveredItem, item *dispatch.Submission) *dispatch.DiscoverResult {
	to, err := dispatch.ResolveTarget(source.Spec.CanonicalRules, found.URL, found.Key, found.Queue, k.Rules.QueueOf)
	if err != nil {
		return &dispatch.DiscoverResult{Code: dispatch.DiscoverInvalid, Message: err.Error()}
	}
	depth, ifExists, relation := t.Depth+1, dispatch.IfExistsKeep, max(found.Relation, dispatch.RelationLink)
	if found.Relation == dispatch.RelationRedirect {
		// It is the page of the task, in another place.
		depth, relation = t.Depth, t.Relation
	}
	var reason dispatch.FilterReason
	var why string
	if found.Relation == dispatch.RelationRedirect && t.Recurring {
		// The seed's content is there: each cycle of the seed crawls it. Not so
		// of other tasks, or two pages that redirect to each other would be
		// crawled for ever.
		ifExists = dispatch.IfExistsAgain
		reason, why = f.RefusesMove(to)
	} else {
		reason, why = f.Refuses(to, depth, dispatch.PassesHost(t, found.Relation))
	}
	if reason == dispatch.FilterNone && k.queueOf(to.Queue).denied {
		reason, why = dispatch.FilterQueueDenied, fmt.Sprintf("queue %q is denied", to.Queue)
	}
	if reason != dispatch.FilterNone {
		return &dispatch.DiscoverResult{Code: dispatch.DiscoverFiltered, Message: why, Filter: reason}
	}
	metadata := t.Metadata
	if len(found.Metadata) > 0 {
		metadata = make(map[string]string, len(t.Metadata)+len(found.Metadata))
		maps.Copy(metadata, t.Metadata)
		maps.Copy(metadata, found.Metadata)
		if n := mapBytes(metadata); n > dispatch.MaxMetadataLength {
			why := fmt.Sprintf("metadata with what is inherited is %d bytes; the limit is %d", n, dispatch.MaxMetadataLength)
			return &dispatch.DiscoverResult{Code: dispatch.DiscoverInvalid, Message: why}
		}
	}
	k.aim(item, source, to)
	item.URL, item.Kind, item.Priority, item.Modified = to.Address, found.Kind, found.Priority, found.Modified
	item.Depth, item.Run, item.Metadata, item.Payload, item.IfExists = depth, t.Run, metadata, found.Payload, ifExists
	item.Relation = relation
	return nil
}

// discovered is what a store's answer means for a discovered item.
func discovered(item *dispatch.Submission, r dispatch.SubmitResult) dispatch.DiscoverResult {
	switch r.Code {
	case dispatch.SubmitCreated:
		return dispatch.DiscoverResult{Code: dispatch.DiscoverCreated, ID: item.ID}
	case dispatch.SubmitRevisit:
		return dispatch.DiscoverResult{Code: dispatch.DiscoverRevisit, ID: item.ID}
	case dispatch.SubmitLimited:
		return dispatch.DiscoverResult{Code: dispatch.DiscoverLimited, Message: "the source has max_outstanding tasks in the shard"}
	case dispatch.SubmitSourceDeleted:
		return dispatch.DiscoverResult{Code: dispatch.DiscoverFiltered, Message: "the source is deleted"}
	case dispatch.SubmitExists, dispatch.SubmitStaleSource, dispatch.SubmitStaleRules:
	}
	return dispatch.DiscoverResult{Code: dispatch.DiscoverExists, ID: item.ID}
}
