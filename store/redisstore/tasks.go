package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
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
		at, found := r.Time(), r.Array()
		if at.After(now) {
			now = at
		}
		for _, n := range c.Items {
			lane, err := record.AppendLane(nil, found.Array(), at)
			if err != nil {
				return nil, now, err
			}
			if len(lane) > 0 {
				tasks[n] = &lane[0].Task
			}
		}
		if r.Join(found); r.Err != nil {
			return nil, now, r.Err
		}
	}
	return tasks, now, nil
}

// position is where a list of tasks continues: in a set of a lane of a shard, after a member with a score.
type position struct {
	shard  int
	lane   int64 // the lane, or 0 = the first after the last one
	after  int64 // the last lane that is done
	set    int   // index in listSets
	score  string
	member string
}

// String is the cursor, "<shard>/<after>/<lane>/<set>/<score>/<member>".
func (p position) String() string {
	return fmt.Sprintf("%d/%d/%d/%d/%s/%s", p.shard, p.after, p.lane, p.set, p.score, p.member)
}

func parsePosition(cursor string) (p position, err error) {
	if cursor == "" {
		return p, nil
	}
	bad := fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
	parts := strings.Split(cursor, "/")
	if len(parts) != 6 {
		return p, bad
	}
	numbers := make([]int64, 4)
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(parts[i], 10, 64); err != nil || numbers[i] < 0 {
			return p, bad
		}
	}
	p = position{shard: int(numbers[0]), after: numbers[1], lane: numbers[2], set: int(numbers[3]), score: parts[4], member: parts[5]}
	if _, err := strconv.ParseFloat(p.score, 64); p.set > len(listSets) || p.score != "" && err != nil {
		return p, bad
	}
	return p, nil
}

// The sets of a lane after the ready one: tasks due later, leased tasks by deadline, and orphans
// (lua/prelude/lane.lua).
const (
	laterFrom  = "562949953421312"
	leasedFrom = "1125899906842624"
	orphanFrom = "2251799813685248"
)

// listSets are the parts of a lane in list order, with their states. "due" is the end of the tasks that are due by now.
var listSets = [...]struct {
	set       key.LaneSet
	low, high string
	states    []dispatch.State
}{
	{key.LaneTasks, "-inf", "(" + laterFrom, []dispatch.State{dispatch.StateReady, dispatch.StateScheduled}},
	{key.LaneTasks, laterFrom, "due", []dispatch.State{dispatch.StateReady}},
	{key.LaneTasks, "due", "(" + leasedFrom, []dispatch.State{dispatch.StateScheduled}},
	{key.LaneTasks, orphanFrom, "+inf", []dispatch.State{dispatch.StateReady, dispatch.StateScheduled}},
	{key.LaneTasks, leasedFrom, "(" + orphanFrom, []dispatch.State{dispatch.StateLeased}},
	{key.LaneDead, "-inf", "+inf", []dispatch.State{dispatch.StateDead}},
	{key.LaneCanceled, "-inf", "+inf", []dispatch.State{dispatch.StateCanceled}},
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
	only := -1
	if filter.Queue != "" {
		only = s.scripts.ShardOf(filter.Queue)
		if cursor == "" {
			p.shard = only
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
			if slices.Contains(filter.States, t.State) {
				page.Tasks = append(page.Tasks, t)
			}
		}
		page.Looked, bytes, p = page.Looked+found.looked, bytes+found.bytes, next
	}
	page.Next = p.String()
	return page, nil
}

// listed is a part of one set.
type listed struct {
	tasks         []*dispatch.Task
	bytes, looked int
	score, member string // of the last entry, where others follow
}

// listStep reads a part of one set, or finds the next lane. The first task does not count against the limit of bytes.
func (s *Store) listStep(ctx context.Context, filter dispatch.TaskFilter, p position, limit, limitBytes int) (position, listed, error) {
	if p.lane == 0 {
		lane, err := s.nextLane(ctx, filter, p)
		if err != nil {
			return p, listed{}, err
		}
		if lane == 0 {
			return position{shard: p.shard + 1}, listed{}, nil
		}
		p = position{shard: p.shard, after: p.after, lane: lane}
	}
	for p.set < len(listSets) && !slices.ContainsFunc(listSets[p.set].states, func(st dispatch.State) bool {
		return slices.Contains(filter.States, st)
	}) {
		p.set, p.score, p.member = p.set+1, "", ""
	}
	if p.set == len(listSets) {
		return position{shard: p.shard, after: p.lane}, listed{}, nil
	}
	part := &listSets[p.set]
	found, err := s.listSet(ctx, p, part.set.Name(p.lane), part.low, part.high, limit, limitBytes)
	if err != nil || found.member == "" {
		return position{shard: p.shard, after: p.after, lane: p.lane, set: p.set + 1}, found, err
	}
	p.score, p.member = found.score, found.member
	return p, found, nil
}

// nextLane is the next lane of the filter in the shard; 0: none.
func (s *Store) nextLane(ctx context.Context, filter dispatch.TaskFilter, p position) (int64, error) {
	const op = "list lanes"
	k := s.keys.Shard(p.shard)
	if filter.SourceUID != "" && filter.Queue != "" {
		n, err := script.Retry(ctx, op, func() (float64, error) {
			return s.client.ZScore(ctx, k.SourceLanes(filter.SourceUID), filter.Queue).Result()
		})
		if int64(n) <= p.after {
			return 0, err
		}
		return int64(n), err
	}
	key := k.SourceLanes(filter.SourceUID)
	if filter.SourceUID == "" {
		key = k.QueueLanes(filter.Queue)
	}
	after := &redis.ZRangeBy{Min: "(" + strconv.FormatInt(p.after, 10), Max: "+inf", Count: 1}
	found, err := script.Retry(ctx, op, func() ([]redis.Z, error) { return s.client.ZRangeByScoreWithScores(ctx, key, after).Result() })
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return int64(found[0].Score), nil
}

// listSet reads a page of an index from p on.
func (s *Store) listSet(ctx context.Context, p position, set, low, high string, limit, limitBytes int) (found listed, err error) {
	r, err := s.scripts.Run(ctx, "list tasks", script.List, script.Call{Shard: p.shard, Args: []any{set, low, high, p.score, p.member, limit, limitBytes}})
	if err != nil {
		return found, err
	}
	now, tasks := r.Time(), r.Array()
	found.bytes, found.looked = int(r.Integer()), int(r.Integer())
	found.score, found.member = r.Text(), r.Text()
	if r.Err != nil {
		return found, r.Err
	}
	found.tasks, err = decodeListed(tasks, now)
	return found, err
}

// decodeListed decodes the tasks of a list; it uses their history only for the last error.
func decodeListed(values *pack.Reply, now time.Time) ([]*dispatch.Task, error) {
	tasks, err := record.Tasks(values, now)
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
	calls := s.scripts.EveryShard("source", filter.SourceUID, bounds.MaxLaneLooks, most)
	if filter.Queue != "" {
		args := []any{"queue", filter.Queue, bounds.MaxLaneLooks, most}
		calls = []script.Call{{Shard: s.scripts.ShardOf(filter.Queue), Args: args}}
	}
	replies, err := s.scripts.RunAll(ctx, "look for due lanes", script.Lanes, calls)
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
