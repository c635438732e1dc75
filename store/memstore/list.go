package memstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// Tasks implements [dispatch.Tasks].
func (s *Store) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) (tasks []*dispatch.Task, now time.Time, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, now, err
	}
	tasks = make([]*dispatch.Task, len(ids))
	idOf := func(i int) dispatch.TaskID { return ids[i] }
	for sh, page := range s.byShard(len(ids), bounds.MaxRenewals, idOf) {
		err := sh.read(ctx, func(sh *shard) {
			now = latest(now, sh.instant())
			for _, i := range page {
				tasks[i] = sh.get(ids[i], details)
			}
		})
		if err != nil {
			return nil, now, err
		}
	}
	return tasks, now, nil
}

// get is the task with its lock, and with its details if requested; nil: there is none.
func (s *shard) get(id dispatch.TaskID, details bool) *dispatch.Task {
	r := s.record(id)
	switch {
	case r == nil:
		return nil
	case !details:
		return s.task(r, noDetails)
	}
	t, src := s.task(r, allDetails), r.lane.source
	if src.gate.Deleted && !src.forgotten {
		t.SourceDeleted = clone(src.deletion)
	}
	if r.waiting() {
		t.Lock = s.tellStray(r)
	}
	return t
}

// listCursor is a place in a list of a shard.
type listCursor struct {
	shard int64
	listPlace
}

// listPlace is a lane and the number of a record in it, or a place in the lease index.
type listPlace struct {
	lane, after int64
	id          string
}

func (c *listCursor) String() string {
	return fmt.Sprintf("%d/%d/%d/%s", c.shard, c.lane, c.after, c.id)
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
func (s *Store) eachFrom(ctx context.Context, cursor string, list func(sh *shard, at *listPlace) (more bool)) (next string, err error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	var at listCursor
	if cursor != "" {
		if at.id, err = parsePage(cursor, &at.shard, &at.lane, &at.after); err != nil {
			return "", err
		}
	}
	for ; at.shard >= 0 && at.shard < int64(len(s.shards)); at = (listCursor{shard: at.shard + 1}) {
		more := false
		if err := s.shards[at.shard].read(ctx, func(sh *shard) { more = list(sh, &at.listPlace) }); err != nil {
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
	var bytes pageBytes
	page.Next, err = s.eachFrom(ctx, cursor, func(sh *shard, at *listPlace) (more bool) {
		return sh.listTasks(&page, &bytes, filter, at, limit)
	})
	return page, err
}

// listTasks adds tasks to the page, from that place on, which it moves, and reports whether there are more than fit.
func (s *shard) listTasks(page *dispatch.TaskPage, bytes *pageBytes, filter dispatch.TaskFilter, at *listPlace, limit int) (more bool) {
	for _, l := range s.lanesOf(filter).from(at.lane) {
		if l.number > at.lane {
			at.lane, at.after = l.number, 0
		}
		l.listed.Ascend(at.after+1, func(number int64, r *record) bool {
			wanted := !r.gone && s.known(r) != nil && slices.Contains(filter.States, r.visibleState(s.now))
			more = len(page.Tasks) >= limit || page.Looked >= bounds.MaxLooks || wanted && !bytes.fits(r.listedBytes())
			if more {
				return false
			}
			page.Looked++
			at.after = number
			if wanted {
				page.Tasks = append(page.Tasks, s.task(r, lastError))
			}
			return true
		})
		if more {
			return true
		}
	}
	return false
}

// lanesOf are the lanes that a filter selects.
func (s *shard) lanesOf(filter dispatch.TaskFilter) laneList {
	src := s.sources.get(filter.SourceUID)
	switch {
	case filter.SourceUID == "":
		return s.lanesIn[filter.Queue]
	case src == nil:
		return nil
	case filter.Queue == "":
		return src.lanes
	}
	if l := s.lanes[laneKey{src, filter.Queue}]; l != nil {
		return laneList{l}
	}
	return nil
}

// ListLeases implements [dispatch.Leases]: by shard and place in the lease index.
func (s *Store) ListLeases(ctx context.Context, cursor string, limit int) (leased []*dispatch.Task, next string, err error) {
	var bytes pageBytes
	next, err = s.eachFrom(ctx, cursor, func(sh *shard, at *listPlace) (more bool) {
		leased, more = sh.listLeases(leased, &bytes, at, limit)
		return more
	})
	return leased, next, err
}

// listLeases adds leased tasks to a list, from that place on, which it moves, and reports whether there are more than fit.
func (s *shard) listLeases(leased []*dispatch.Task, bytes *pageBytes, at *listPlace, limit int) (_ []*dispatch.Task, more bool) {
	for e := range s.leases.after(at.after, at.id) {
		r := e.value
		if r.lease == nil || r.gone {
			continue
		}
		if len(leased) >= limit || !bytes.fits(r.listedBytes()) {
			return leased, true
		}
		leased = append(leased, s.task(r, lastError))
		at.after, at.id = e.score, r.member()
	}
	return leased, false
}

// DueLanes implements [dispatch.Tasks].
func (s *Store) DueLanes(ctx context.Context, filter dispatch.TaskFilter, limit int) (found dispatch.DueLanes, err error) {
	if (filter.SourceUID == "") == (filter.Queue == "") {
		return found, fmt.Errorf("%w: lanes are those of a source or of a queue", dispatch.ErrInvalid)
	}
	next := int64(infinite)
	err = s.readAll(ctx, func(sh *shard) { next = sh.dueLanes(&found, filter, limit, next) })
	return found, err
}

// dueLanes adds the lanes of the shard to the result; next is the due time of the result's Next so far.
func (s *shard) dueLanes(found *dispatch.DueLanes, filter dispatch.TaskFilter, limit int, next int64) int64 {
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
