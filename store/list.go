package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Tasks implements [dispatch.Tasks].
func (s *Store) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) (tasks []*dispatch.Task, now time.Time, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, now, err
	}
	tasks = make([]*dispatch.Task, len(ids))
	idOf := func(i int) dispatch.TaskID { return ids[i] }
	for sh, page := range s.byShard(len(ids), bounds.MaxRenewals, idOf) {
		err := sh.read(ctx, func(sh *machine.Shard) {
			if at := sh.Instant(); at.After(now) {
				now = at
			}
			for _, i := range page {
				tasks[i] = sh.Get(ids[i], details)
			}
		})
		if err != nil {
			return nil, now, err
		}
	}
	return tasks, now, nil
}

// listCursor is a place in a list of a shard.
type listCursor struct {
	shard int64
	machine.ListPlace
}

func (c *listCursor) String() string {
	return fmt.Sprintf("%d/%d/%d/%s", c.shard, c.Lane, c.After, c.ID)
}

// parsePage reads the numbers at the start of a page token, each followed by a slash.
func parsePage(token string, numbers ...*int64) (rest string, err error) {
	rest = token
	for _, n := range numbers {
		digits, behind, ok := strings.Cut(rest, "/")
		if *n, err = strconv.ParseInt(digits, 10, 64); err != nil || !ok {
			return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, token)
		}
		rest = behind
	}
	return rest, nil
}

// eachFrom calls list for the shards from the cursor on until the page is full. list moves the cursor to the last task
// that it took; next is where the list continues.
func (s *Store) eachFrom(ctx context.Context, cursor string, list func(sh *machine.Shard, at *machine.ListPlace) (more bool)) (next string, err error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	var at listCursor
	if cursor != "" {
		if at.ID, err = parsePage(cursor, &at.shard, &at.Lane, &at.After); err != nil {
			return "", err
		}
	}
	for ; at.shard >= 0 && at.shard < int64(len(s.shards)); at = (listCursor{shard: at.shard + 1}) {
		more := false
		if err := s.shards[at.shard].read(ctx, func(sh *machine.Shard) { more = list(sh, &at.ListPlace) }); err != nil {
			return "", err
		}
		if more {
			return at.String(), nil
		}
	}
	return "", nil
}

// ListTasks implements [dispatch.Tasks]: by shard, lane and order of arrival in the lane.
func (s *Store) ListTasks(ctx context.Context, filter dispatch.TaskFilter, cursor string, limit int) (page dispatch.TaskPage, err error) {
	if filter.SourceUID == "" && filter.Queue == "" {
		return page, fmt.Errorf("%w: a list of tasks needs a source or a queue", dispatch.ErrInvalid)
	}
	var bytes machine.PageBytes
	page.Next, err = s.eachFrom(ctx, cursor, func(sh *machine.Shard, at *machine.ListPlace) (more bool) {
		return sh.ListTasks(&page, &bytes, filter, at, limit)
	})
	return page, err
}

// ListLeases implements [dispatch.Leases]: by shard and place in the lease index.
func (s *Store) ListLeases(ctx context.Context, cursor string, limit int) (leased []*dispatch.Task, next string, err error) {
	var bytes machine.PageBytes
	next, err = s.eachFrom(ctx, cursor, func(sh *machine.Shard, at *machine.ListPlace) (more bool) {
		leased, more = sh.ListLeases(leased, &bytes, at, limit)
		return more
	})
	return leased, next, err
}

// DueLanes implements [dispatch.Tasks].
func (s *Store) DueLanes(ctx context.Context, filter dispatch.TaskFilter, limit int) (found dispatch.DueLanes, err error) {
	if (filter.SourceUID == "") == (filter.Queue == "") {
		return found, fmt.Errorf("%w: lanes are those of a source or of a queue", dispatch.ErrInvalid)
	}
	next := int64(ms.Infinite)
	err = s.readAll(ctx, func(sh *machine.Shard) { next = sh.DueLanes(&found, filter, limit, next) })
	return found, err
}
