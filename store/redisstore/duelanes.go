package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// DueLanes implements [dispatch.TaskReads].
func (s *Store) DueLanes(ctx context.Context, filter dispatch.TaskFilter, limit int) (found dispatch.DueLanes, err error) {
	if (filter.SourceUID == "") == (filter.Queue == "") {
		return found, fmt.Errorf("%w: lanes are those of a source or of a queue", dispatch.ErrInvalid)
	}
	most := max(limit, 0)
	calls := s.everyShard("source", filter.SourceUID, bounds.MaxLaneLooks, most)
	if filter.Queue != "" {
		args := []any{"queue", filter.Queue, bounds.MaxLaneLooks, most}
		calls = []call{{shard: s.shardOfName(filter.Queue), args: args}}
	}
	replies, err := s.runAll(ctx, "look for due lanes", s.scripts.lanes, calls)
	if err != nil {
		return found, err
	}
	var next time.Time
	for _, v := range replies {
		r := readReply(v)
		found.All, found.Looked, found.Due = found.All+r.integer(), found.Looked+r.integer(), found.Due+r.integer()
		if at, id := instant(r.integer()), r.text(); id != "" && (found.Next == "" || at.Before(next)) {
			next, found.Next = at, dispatch.TaskID(id)
		}
		for r.more() {
			lane := dispatch.DueLane{Due: r.integer(), First: dispatch.TaskID(r.text())}
			if len(found.Lanes) < most {
				found.Lanes = append(found.Lanes, lane)
			}
		}
		if r.err != nil {
			return dispatch.DueLanes{}, r.err
		}
	}
	return found, nil
}
