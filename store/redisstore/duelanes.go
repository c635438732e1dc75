package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
)

// DueLanes implements [dispatch.TaskReads].
func (s *Store) DueLanes(ctx context.Context, filter dispatch.TaskFilter, limit int) (found dispatch.DueLanes, err error) {
	if (filter.SourceUID == "") == (filter.Queue == "") {
		return found, fmt.Errorf("%w: lanes are those of a source or of a queue", dispatch.ErrInvalid)
	}
	most := max(limit, 0)
	calls := s.everyShard("source", filter.SourceUID, dispatch.MaxLaneLooks, most)
	if filter.Queue != "" {
		args := []any{"queue", filter.Queue, dispatch.MaxLaneLooks, most}
		calls = []call{{shard: s.shardOfName(filter.Queue), args: args}}
	}
	replies, err := s.runAll(ctx, "look for due lanes", s.scripts.lanes, calls)
	if err != nil {
		return found, err
	}
	var next time.Time
	for _, v := range replies {
		r := pack.Read(v)
		found.All, found.Looked, found.Due = found.All+r.Integer(), found.Looked+r.Integer(), found.Due+r.Integer()
		if at, id := r.Time(), r.Text(); id != "" && (found.Next == "" || at.Before(next)) {
			next, found.Next = at, dispatch.TaskID(id)
		}
		for r.More() {
			lane := dispatch.DueLane{Due: r.Integer(), First: dispatch.TaskID(r.Text())}
			if len(found.Lanes) < most {
				found.Lanes = append(found.Lanes, lane)
			}
		}
		if r.Err != nil {
			return dispatch.DueLanes{}, r.Err
		}
	}
	return found, nil
}
