package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/machine"
)

// PushSource implements [dispatch.Sources]. A page is the number of the last
// lane that was placed.
func (s *Store) PushSource(ctx context.Context, shard int, gate dispatch.SourceGate, page string) (string, error) {
	c := machine.Push{Gate: gate}
	if page != "" {
		var err error
		if c.After, err = strconv.ParseInt(page, 10, 64); err != nil || c.After < 1 {
			return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
		}
	}
	err := s.doIn(ctx, shard, &c)
	return c.Next, err
}

// DropTasks implements [dispatch.Sources].
func (s *Store) DropTasks(ctx context.Context, shard int, uid string, limit int, why *dispatch.Gate) (int, []dispatch.TaskID, error) {
	c := machine.Drop{UID: uid, Limit: max(min(limit, bounds.MaxTransitions), 1), Why: why}
	err := s.doIn(ctx, shard, &c)
	return c.Ended, c.Leased, err
}

// SourceStatuses implements [dispatch.Sources].
func (s *Store) SourceStatuses(ctx context.Context, uids []string) ([]dispatch.SourceStatus, error) {
	statuses := make([]dispatch.SourceStatus, len(uids))
	err := s.readAll(ctx, func(sh *machine.Shard) {
		for i, uid := range uids {
			sh.AddStatus(uid, &statuses[i])
		}
	})
	return statuses, err
}

// CountFiltered implements [dispatch.Sources].
func (s *Store) CountFiltered(ctx context.Context, shard int, uid string, filtered dispatch.Filtered) error {
	return s.doIn(ctx, shard, &machine.CountFiltered{UID: uid, Filtered: filtered})
}
