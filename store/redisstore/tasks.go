package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

const (
	// maxReads bounds the tasks of one reading script.
	maxReads = 100
	// maxListSteps limits the scripts of one page of a list, including those that find no tasks.
	maxListSteps = 50
)

// Tasks implements [dispatch.Tasks].
func (s *Store) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) (tasks []*dispatch.Task, now time.Time, err error) {
	tasks = make([]*dispatch.Task, len(ids))
	calls := s.scripts.Pages(len(ids), maxReads, func(i int) dispatch.TaskID { return ids[i] })
	for i, c := range calls {
		args := []any{details}
		for _, n := range c.Items {
			args = append(args, string(ids[n]))
		}
		calls[i].Args = args
	}
	replies, err := s.scripts.RunAll(ctx, "read tasks", script.Read, calls)
	if err != nil {
		return nil, now, err
	}
	for i, c := range calls {
		r := replies[i]
		at := r.Time()
		if at.After(now) {
			now = at
		}
		found, err := record.Tasks(r, at)
		met := r.Bytes(len(c.Items))
		if err != nil || r.Err != nil {
			return nil, now, cmp.Or(err, r.Err)
		}
		for k, n := range c.Items {
			if met[k] == 1 && len(found) > 0 {
				tasks[n], found = found[0], found[1:]
			}
		}
	}
	return tasks, now, nil
}

// position is where a list of tasks continues: in the lanes of a shard, or behind them in its lease index.
type position struct {
	shard int
	// scan is the cursor of the scan of lanes that follow; "" = the leases follow.
	scan string
	// lanes that the scan has found and that are not done, flat: source and queue. part, an index in laneParts, and
	// score and member of the last entry are in the first.
	lanes         []string
	part          int
	score, member string
	leases        leasePosition
}

// String is the cursor.
func (p *position) String() string {
	if p.scan == "" && len(p.lanes) == 0 {
		return p.leases.String()
	}
	return fmt.Sprintf("%d:%s:%d:%s:%s:%s", p.shard, p.scan, p.part, p.score, p.member, strings.Join(p.lanes, " "))
}

func firstPosition(shard int) position {
	return position{shard: shard, scan: "0", leases: leasePosition{shard: shard}}
}

func parsePosition(cursor string) (p position, err error) {
	if cursor == "" {
		return firstPosition(0), nil
	}
	parts := strings.SplitN(cursor, ":", 6)
	if strings.Contains(parts[0], "/") || len(parts) < 6 {
		p.leases, err = parseLeasePosition(cursor)
		p.shard = p.leases.shard
		return p, err
	}
	bad := fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
	if p.shard, err = strconv.Atoi(parts[0]); err != nil || p.shard < 0 {
		return p, bad
	}
	p.leases.shard, p.scan, p.score, p.member = p.shard, parts[1], parts[3], parts[4]
	if p.part, err = strconv.Atoi(parts[2]); err != nil || p.part < 0 || p.part >= len(laneParts) {
		return p, bad
	}
	for part := range strings.SplitSeq(p.scan, ".") {
		if _, err := strconv.ParseUint(part, 10, 63); p.scan != "" && err != nil {
			return p, bad
		}
	}
	if !isScore(p.score) {
		return p, bad
	}
	p.lanes = strings.Fields(parts[5])
	for i := 0; i < len(p.lanes); i += 2 {
		if _, err := strconv.ParseUint(strings.TrimLeft(p.lanes[i], onlyWaiting+onlySettled), 10, 32); err != nil || len(p.lanes)%2 != 0 {
			return p, bad
		}
	}
	return p, nil
}

// What a lane's source begins with where only a part of the lane is to be listed (lua/list.lua).
const (
	onlyWaiting = "w"
	onlySettled = "e"
)

// laneParts are the parts of a lane in list order, with their states.
var laneParts = [...]struct {
	name   string
	states []dispatch.State
}{
	{"waiting", []dispatch.State{dispatch.StateReady, dispatch.StateScheduled}},
	{"dead", []dispatch.State{dispatch.StateDead}},
	{"canceled", []dispatch.State{dispatch.StateCanceled}},
}

// ListTasks implements [dispatch.Tasks].
func (s *Store) ListTasks(ctx context.Context, filter dispatch.TaskFilter, cursor string, limit int) (page dispatch.TaskPage, err error) {
	if filter.SourceUID == "" && filter.Queue == "" {
		return page, fmt.Errorf("%w: a list of tasks needs a source or a queue", dispatch.ErrInvalid)
	}
	p, err := parsePosition(cursor)
	if err != nil {
		return page, err
	}
	// Lanes of a source are scanned in one set, those of a queue in several, by their number.
	if dots := strings.Count(p.scan, "."); dots > 1 || dots == 1 && filter.SourceUID != "" {
		return page, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
	}
	only := -1
	if filter.Queue != "" {
		only = s.scripts.ShardOf(filter.Queue)
		if cursor == "" {
			p = firstPosition(only)
		}
	}
	bytes := 0
	for range maxListSteps {
		if p.shard >= s.scripts.Shards || (only >= 0 && p.shard != only) {
			return page, nil
		}
		if len(page.Tasks) >= limit || page.Looked >= bounds.MaxLooks || bytes >= bounds.MaxPageBytes {
			break
		}
		left := min(limit-len(page.Tasks), bounds.MaxLooks-page.Looked, maxReads)
		next, found, err := s.listStep(ctx, filter, p, left, bounds.MaxPageBytes-bytes)
		if err != nil {
			return dispatch.TaskPage{}, err
		}
		if bytes > 0 && bytes+found.bytes > bounds.MaxPageBytes {
			break // what was found is too much, and begins the next page
		}
		for _, t := range found.tasks {
			// A cursor names lanes: one that no page returned may name those of others.
			if slices.Contains(filter.States, t.State) && (filter.SourceUID == "" || t.SourceUID == filter.SourceUID) &&
				(filter.Queue == "" || t.Queue == filter.Queue) {
				page.Tasks = append(page.Tasks, t)
			}
		}
		page.Looked, bytes, p = page.Looked+found.looked, bytes+found.bytes, next
	}
	page.Next = p.String()
	return page, nil
}

// listed is a part of a list.
type listed struct {
	tasks         []*dispatch.Task
	bytes, looked int
}

// listStep reads a part of one lane or of the lease index, or finds the next lanes. The first task does not count
// against the limit of bytes.
func (s *Store) listStep(ctx context.Context, filter dispatch.TaskFilter, p position, limit, limitBytes int) (position, listed, error) {
	switch {
	case len(p.lanes) > 0:
		for p.part < len(laneParts) && !p.lists(filter) {
			p.part, p.score, p.member = p.part+1, "", ""
		}
		if p.part == len(laneParts) {
			p.lanes, p.part, p.score, p.member = p.lanes[2:], 0, "", ""
			return p, listed{}, nil
		}
		return s.listLane(ctx, p, limit, limitBytes)
	case p.scan != "":
		next, err := s.nextLanes(ctx, filter, p)
		return next, listed{}, err
	case !wanted(filter, dispatch.StateLeased, dispatch.StateReady):
		return firstPosition(p.shard + 1), listed{}, nil
	}
	page, next, err := s.leasesStep(ctx, p.leases, leaseFilter{filter.SourceUID, filter.Queue, true}, limit, limitBytes)
	if p.leases = next; next.member == "" {
		p = firstPosition(p.shard + 1)
	}
	return p, page, err
}

// lists reports whether the part of the first lane is to be listed.
func (p *position) lists(filter dispatch.TaskFilter) bool {
	mark := p.lanes[0][:1]
	if waiting := p.part == 0; waiting && mark == onlySettled || !waiting && mark == onlyWaiting {
		return false
	}
	return wanted(filter, laneParts[p.part].states...)
}

func wanted(filter dispatch.TaskFilter, states ...dispatch.State) bool {
	return slices.ContainsFunc(states, func(st dispatch.State) bool { return slices.Contains(filter.States, st) })
}

// nextLanes finds some lanes of the filter in the shard.
func (s *Store) nextLanes(ctx context.Context, filter dispatch.TaskFilter, p position) (position, error) {
	args := []any{filter.SourceUID, filter.Queue, p.scan}
	r, err := s.scripts.Run(ctx, "list lanes", script.Lanes, script.Call{Shard: p.shard, Args: args})
	if err != nil {
		return p, err
	}
	if p.scan = r.Text(); p.scan == "0" {
		p.scan = ""
	}
	for r.More() {
		p.lanes = append(p.lanes, r.Number(), r.Text())
	}
	return p, r.Err
}

// listLane reads a page of a part of the first lane of the position.
func (s *Store) listLane(ctx context.Context, p position, limit, limitBytes int) (position, listed, error) {
	var found listed
	args := []any{strings.TrimLeft(p.lanes[0], onlyWaiting+onlySettled), p.lanes[1], laneParts[p.part].name, p.score, p.member, limit, limitBytes}
	r, err := s.scripts.Run(ctx, "list tasks", script.List, script.Call{Shard: p.shard, Args: args})
	if err != nil {
		return p, found, err
	}
	now := r.Time()
	if found.tasks, err = readListed(r, now); err != nil {
		return p, found, err
	}
	found.bytes, found.looked = int(r.Integer()), int(r.Integer())
	p.score, p.member = r.Text(), r.Text()
	if p.member == "" {
		if p.part++; p.part == len(laneParts) {
			p.lanes, p.part = p.lanes[2:], 0
		}
	}
	return p, found, r.Err
}

// readListed reads the tasks of a list; it uses their history only for the last error.
func readListed(r *pack.Reply, now time.Time) ([]*dispatch.Task, error) {
	tasks, err := record.Tasks(r, now)
	for _, t := range tasks {
		t.History = nil
	}
	return tasks, err
}

// DueLanes implements [dispatch.Tasks].
func (s *Store) DueLanes(ctx context.Context, filter dispatch.TaskFilter, limit int) (found dispatch.DueLanes, err error) {
	if (filter.SourceUID == "") == (filter.Queue == "") {
		return found, fmt.Errorf("%w: lanes are those of a source or of a queue", dispatch.ErrInvalid)
	}
	most := max(limit, 0)
	args := []any{filter.SourceUID, filter.Queue, bounds.MaxLaneLooks, most}
	calls := s.scripts.EveryShard(args...)
	if filter.Queue != "" {
		calls = []script.Call{{Shard: s.scripts.ShardOf(filter.Queue), Args: args}}
	}
	replies, err := s.scripts.RunAll(ctx, "look for due lanes", script.DueLanes, calls)
	if err != nil {
		return found, err
	}
	var next time.Time
	for _, r := range replies {
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
