package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Tasks implements [dispatch.TaskReads].
func (s *Store) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) (tasks []*dispatch.Task, now time.Time, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, now, err
	}
	with := noDetails
	if details {
		with = allDetails
	}
	tasks = make([]*dispatch.Task, len(ids))
	idOf := func(i int) dispatch.TaskID { return ids[i] }
	s.byShard(len(ids), dispatch.MaxRenewals, idOf, func(sh *shard, page []int) {
		sh.begin()
		defer sh.end()
		now = later(now, instant(sh.now))
		for _, i := range page {
			if r := sh.record(ids[i]); r != nil {
				tasks[i] = new(dispatch.Task)
				sh.task(tasks[i], r, with)
			}
		}
	})
	return tasks, now, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// listCursor is a place in the list of tasks: a shard, a lane's number, and the
// number in it of the last task looked at.
type listCursor struct {
	shard int
	lane  int64
	after int64
}

func (c listCursor) String() string {
	return fmt.Sprintf("%d/%d/%d", c.shard, c.lane, c.after)
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
	if c.after, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
		return c, wrong
	}
	return c, nil
}

// ListTasks implements [dispatch.TaskReads]: by shard, lane and
// the order in which the lane took them in.
func (s *Store) ListTasks(ctx context.Context, filter dispatch.TaskFilter, cursor string, limit int) (page dispatch.TaskPage, err error) {
	if err := s.usable(ctx); err != nil {
		return page, err
	}
	if filter.SourceUID == "" && filter.Queue == "" {
		return page, fmt.Errorf("%w: a list of tasks needs a source or a queue", dispatch.ErrInvalid)
	}
	at, err := s.parseListCursor(cursor)
	if err != nil {
		return page, err
	}
	var bytes pageBytes
	for ; at.shard < len(s.shards); at = (listCursor{shard: at.shard + 1}) {
		if next := s.shards[at.shard].listTasks(&page, &bytes, filter, at, limit); next != nil {
			page.Next = next.String()
			break
		}
	}
	return page, nil
}

// pageBytes is what the records of a page take, about.
type pageBytes int

// fits adds a record of n bytes, unless the page is full.
func (b *pageBytes) fits(n int) bool {
	if *b > 0 && int(*b)+n > dispatch.MaxPageBytes {
		return false
	}
	*b += pageBytes(n)
	return true
}

// listedSize is about what a record takes in a list, beside its texts.
const listedSize = 512

// listedBytes is what the record takes in a list.
func (r *record) listedBytes() int {
	n := listedSize + r.bytes()
	if d := r.details; d != nil {
		n -= len(d.cursor) + len(d.memo)
		if d.lastError != nil {
			n += len(d.lastError.Message)
		}
	}
	return n
}

// listTasks adds tasks of the shard from a place on to a page. next is nil at the end.
func (s *shard) listTasks(page *dispatch.TaskPage, bytes *pageBytes, filter dispatch.TaskFilter, at listCursor, limit int) (next *listCursor) {
	s.begin()
	defer s.end()
	for _, l := range s.lanesOf(filter) {
		if l.number < at.lane {
			continue
		}
		if l.number > at.lane {
			at.lane, at.after = l.number, 0
		}
		stopped := false
		l.listed.Ascend(at.after+1, func(number int64, r *record) bool {
			wanted := s.listable(r) && slices.Contains(filter.States, r.visibleState(s.now))
			if len(page.Tasks) >= limit || page.Looked >= dispatch.MaxLooks || wanted && !bytes.fits(r.listedBytes()) {
				stopped = true
				return false
			}
			page.Looked++
			at.after = number
			if wanted {
				t := new(dispatch.Task)
				s.task(t, r, lastError)
				page.Tasks = append(page.Tasks, t)
			}
			return true
		})
		if stopped {
			return &at
		}
	}
	return nil
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

// leasePlace is a place in the lease index: by score, then ids.
type leasePlace struct {
	score int64
	id    string
}

func (p leasePlace) compare(other leasePlace) int {
	return cmp.Or(cmp.Compare(p.score, other.score), strings.Compare(p.id, other.id))
}

// placedTask is a leased task, its place in the index and what it takes in a list.
type placedTask struct {
	place leasePlace
	task  *dispatch.Task
	bytes int
}

// ListLeases implements [dispatch.Leases].
func (s *Store) ListLeases(ctx context.Context, cursor string, limit int) ([]*dispatch.Task, string, error) {
	if err := s.usable(ctx); err != nil {
		return nil, "", err
	}
	var after leasePlace
	if cursor != "" {
		score, id, ok := strings.Cut(cursor, "/")
		n, err := strconv.ParseInt(score, 10, 64)
		if !ok || err != nil {
			return nil, "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
		}
		after = leasePlace{score: n, id: id}
	}
	var placed []placedTask
	var end *leasePlace // up to which all shards have listed theirs; nil: to the end
	for _, sh := range s.shards {
		of, full := sh.listLeases(after, limit)
		placed = append(placed, of...)
		if full && len(of) > 0 {
			if last := of[len(of)-1].place; end == nil || last.compare(*end) < 0 {
				end = &last
			}
		}
	}
	slices.SortFunc(placed, func(a, b placedTask) int { return a.place.compare(b.place) })
	var bytes pageBytes
	n := 0
	for n < min(len(placed), limit) && (end == nil || placed[n].place.compare(*end) <= 0) && bytes.fits(placed[n].bytes) {
		n++
	}
	next := ""
	if n > 0 && (n < len(placed) || end != nil) {
		last := placed[n-1].place
		next = strconv.FormatInt(last.score, 10) + "/" + last.id
	}
	placed = placed[:n]
	leased := make([]*dispatch.Task, len(placed))
	for i := range placed {
		leased[i] = placed[i].task
	}
	return leased, next, nil
}

// listLeases lists at most limit leases of the shard behind a place. full: others follow.
func (s *shard) listLeases(after leasePlace, limit int) (leased []placedTask, full bool) {
	s.begin()
	defer s.end()
	var bytes pageBytes
	for e := range s.leases.after(after.score, after.id) {
		r := e.value
		if r.lease == nil || r.gone {
			continue
		}
		n := r.listedBytes()
		if len(leased) >= limit || !bytes.fits(n) {
			return leased, true
		}
		t := new(dispatch.Task)
		s.task(t, r, lastError)
		leased = append(leased, placedTask{leasePlace{e.score, r.member()}, t, n})
	}
	return leased, false
}
