package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// looksPerPage bounds the records that one call of ListTasks looks at.
const looksPerPage = 1000

// Tasks implements [dispatch.TaskReads].
func (s *Store) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) ([]*dispatch.Task, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	with := noDetails
	if details {
		with = allDetails
	}
	tasks := make([]*dispatch.Task, len(ids))
	idOf := func(i int) dispatch.TaskID { return ids[i] }
	s.byShard(len(ids), dispatch.MaxRenewals, idOf, func(sh *shard, page []int) {
		sh.begin()
		defer sh.end()
		for _, i := range page {
			if r := sh.record(ids[i]); r != nil {
				tasks[i] = new(dispatch.Task)
				sh.task(tasks[i], r, with)
			}
		}
	})
	return tasks, nil
}

// listCursor is a place in the list of tasks: a shard, a lane's number, and the
// id of the last task looked at.
type listCursor struct {
	shard int
	lane  int64
	after string
}

func (c listCursor) String() string {
	return fmt.Sprintf("%d/%d/%s", c.shard, c.lane, c.after)
}

func (s *Store) parseListCursor(text string) (c listCursor, err error) {
	if text == "" {
		return c, nil
	}
	wrong := fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, text)
	parts := strings.SplitN(text, "/", 3)
	if len(parts) != 3 {
		return c, wrong
	}
	if c.shard, err = strconv.Atoi(parts[0]); err != nil || c.shard < 0 || c.shard >= len(s.shards) {
		return c, wrong
	}
	if c.lane, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return c, wrong
	}
	c.after = parts[2]
	return c, nil
}

// ListTasks implements [dispatch.TaskReads]: by shard, lane and id.
func (s *Store) ListTasks(ctx context.Context, filter dispatch.TaskFilter, cursor string, limit int) ([]*dispatch.Task, string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, "", err
	}
	if filter.SourceUID == "" && filter.Queue == "" {
		return nil, "", fmt.Errorf("%w: a list of tasks needs a source or a queue", dispatch.ErrInvalid)
	}
	at, err := s.parseListCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	var tasks []*dispatch.Task
	looks := looksPerPage
	for ; at.shard < len(s.shards); at = (listCursor{shard: at.shard + 1}) {
		found, next := s.shards[at.shard].listTasks(filter, at, limit-len(tasks), &looks)
		tasks = append(tasks, found...)
		if next != nil {
			return tasks, next.String(), nil
		}
	}
	return tasks, "", nil
}

// listTasks lists tasks of the shard from a place on. next is nil at the end.
func (s *shard) listTasks(filter dispatch.TaskFilter, at listCursor, limit int, looks *int) (tasks []*dispatch.Task, next *listCursor) {
	s.begin()
	defer s.end()
	for _, l := range s.lanesOf(filter) {
		if l.number < at.lane {
			continue
		}
		if l.number > at.lane {
			at.lane, at.after = l.number, ""
		}
		begin := ""
		if at.after != "" {
			begin = at.after + "\x00"
		}
		stopped := false
		l.listed.from(0, begin, func(e entry[*record]) bool {
			if len(tasks) >= limit || *looks <= 0 {
				stopped = true
				return false
			}
			*looks--
			at.after = e.member
			if r := e.value; s.listable(r) && slices.Contains(filter.States, r.visibleState(s.now)) {
				t := new(dispatch.Task)
				s.task(t, r, noDetails)
				tasks = append(tasks, t)
			}
			return true
		})
		if stopped {
			return tasks, &at
		}
	}
	return tasks, nil
}

// listable leaves out what was removed by hand or is to be forgotten by now.
func (s *shard) listable(r *record) bool {
	return !r.gone && (r.forgetAt == 0 || r.forgetAt > s.now)
}

// lanesOf are the lanes that a filter selects, ascending by number.
func (s *shard) lanesOf(filter dispatch.TaskFilter) []*lane {
	if filter.SourceUID == "" {
		return s.lanesIn[filter.Queue]
	}
	src := s.sources[filter.SourceUID]
	switch {
	case src == nil:
		return nil
	case filter.Queue == "":
		return src.lanes
	}
	if l := src.lane(filter.Queue); l != nil {
		return []*lane{l}
	}
	return nil
}

// leasePlace is a place in the order of deadlines, then ids.
type leasePlace struct {
	deadline int64
	id       string
}

func (p leasePlace) compare(other leasePlace) int {
	return cmp.Or(cmp.Compare(p.deadline, other.deadline), strings.Compare(p.id, other.id))
}

// ListLeases implements [dispatch.Leases].
func (s *Store) ListLeases(ctx context.Context, cursor string, limit int) ([]*dispatch.Task, string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, "", err
	}
	var after leasePlace
	if cursor != "" {
		deadline, id, ok := strings.Cut(cursor, "/")
		n, err := strconv.ParseInt(deadline, 10, 64)
		if !ok || err != nil {
			return nil, "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
		}
		after = leasePlace{deadline: n, id: id}
	}
	var leased []*dispatch.Task
	for _, sh := range s.shards {
		leased = append(leased, sh.listLeases(after, limit)...)
	}
	placeOf := func(t *dispatch.Task) leasePlace {
		return leasePlace{deadline: millis(t.Lease.Deadline), id: string(t.ID)}
	}
	slices.SortFunc(leased, func(a, b *dispatch.Task) int { return placeOf(a).compare(placeOf(b)) })
	if len(leased) < limit || limit < 1 {
		return leased, "", nil
	}
	leased = leased[:limit]
	last := placeOf(leased[limit-1])
	return leased, strconv.FormatInt(last.deadline, 10) + "/" + last.id, nil
}

// listLeases lists at most limit leases of the shard behind a place.
func (s *shard) listLeases(after leasePlace, limit int) []*dispatch.Task {
	s.begin()
	defer s.end()
	var leased []*dispatch.Task
	s.leases.from(after.deadline, after.id, func(e entry[*record]) bool {
		if len(leased) >= limit {
			return false
		}
		if r := e.value; r.lease != nil && !r.gone && (leasePlace{e.score, e.member}) != after {
			t := new(dispatch.Task)
			s.task(t, r, noDetails)
			leased = append(leased, t)
		}
		return true
	})
	return leased
}
