package memstore

import (
	"context"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// DueLanes implements [dispatch.TaskReads].
func (s *Store) DueLanes(ctx context.Context, filter dispatch.TaskFilter, limit int) (found dispatch.DueLanes, err error) {
	if err := s.usable(ctx); err != nil {
		return found, err
	}
	if (filter.SourceUID == "") == (filter.Queue == "") {
		return found, fmt.Errorf("%w: lanes are those of a source or of a queue", dispatch.ErrInvalid)
	}
	next := int64(infinite)
	for _, sh := range s.shards {
		next = sh.dueLanes(&found, filter, limit, next)
	}
	return found, nil
}

// dueLanes adds what the shard has to what was found; next is when the task found so far
// that is due later is due.
func (s *shard) dueLanes(found *dispatch.DueLanes, filter dispatch.TaskFilter, limit int, next int64) int64 {
	s.begin()
	defer s.end()
	lanes := s.lanesOf(filter)
	found.All += int64(len(lanes))
	lanes = lanes[:min(len(lanes), bounds.MaxLaneLooks)]
	found.Looked += int64(len(lanes))
	for _, l := range lanes {
		first, ok := l.ready.first()
		if !ok {
			first, ok = l.later.first()
		}
		switch {
		case !ok:
		case first.value.due <= s.now:
			if found.Due++; len(found.Lanes) < limit {
				due := l.ready.len() + l.later.upTo(s.now*32+31)
				found.Lanes = append(found.Lanes, dispatch.DueLane{First: first.value.id, Due: int64(due)})
			}
		case first.value.due < next:
			next, found.Next = first.value.due, first.value.id
		}
	}
	return next
}
