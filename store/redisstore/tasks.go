package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	// maxReads bounds the tasks of one reading script.
	maxReads = 100
	// maxListSteps bounds the scripts of one page of a list: what a page finds
	// no tasks in counts too.
	maxListSteps = 50
)

// Tasks implements [dispatch.TaskReads].
func (s *Store) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) (tasks []*dispatch.Task, now time.Time, err error) {
	tasks = make([]*dispatch.Task, len(ids))
	pages := s.pages(len(ids), maxReads, func(i int) dispatch.TaskID { return ids[i] })
	calls := make([]call, len(pages))
	for i, p := range pages {
		args := []any{details}
		for _, n := range p.items {
			args = append(args, string(ids[n]))
		}
		calls[i] = call{shard: p.shard, args: args}
	}
	replies, err := s.runAll(ctx, "read tasks", s.scripts.read, calls)
	if err != nil {
		return nil, now, err
	}
	for i, p := range pages {
		r := readReply(replies[i])
		at, found := instant(r.integer()), r.array()
		if at.After(now) {
			now = at
		}
		for _, n := range p.items {
			lane, err := decodeLane(nil, found.any(), at)
			if err != nil {
				return nil, now, err
			}
			if len(lane) > 0 {
				tasks[n] = &lane[0].Task
			}
		}
		if r.join(found); r.err != nil {
			return nil, now, r.err
		}
	}
	return tasks, now, nil
}

// position is where a list of tasks goes on: in a set of a lane of a shard,
// after a member with a score.
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
	parts := strings.Split(cursor, "/")
	if len(parts) != 6 {
		return p, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
	}
	numbers := make([]int64, 4)
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(parts[i], 10, 64); err != nil || numbers[i] < 0 {
			return p, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
		}
	}
	p = position{shard: int(numbers[0]), after: numbers[1], lane: numbers[2], set: int(numbers[3]), score: parts[4], member: parts[5]}
	if p.set > len(listSets) {
		return p, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
	}
	if p.score != "" {
		if _, err := strconv.ParseFloat(p.score, 64); err != nil {
			return p, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
		}
	}
	return p, nil
}

// Where a lane has, behind what is ready, what is due later, what is leased, by deadline,
// and the orphans (lua/prelude/lane.lua).
const (
	laterFrom  = "562949953421312"
	leasedFrom = "1125899906842624"
	orphanFrom = "2251799813685248"
)

// listSets are the parts of a lane in the order in which they are listed, with
// the states that they hold. "due" is where what is due by now ends.
var listSets = [...]struct {
	set       laneSet
	low, high string
	states    []dispatch.State
}{
	{laneTasks, "-inf", "(" + laterFrom, []dispatch.State{dispatch.StateReady, dispatch.StateScheduled}},
	{laneTasks, laterFrom, "due", []dispatch.State{dispatch.StateReady}},
	{laneTasks, "due", "(" + leasedFrom, []dispatch.State{dispatch.StateScheduled}},
	{laneTasks, orphanFrom, "+inf", []dispatch.State{dispatch.StateReady, dispatch.StateScheduled}},
	{laneTasks, leasedFrom, "(" + orphanFrom, []dispatch.State{dispatch.StateLeased}},
	{laneDead, "-inf", "+inf", []dispatch.State{dispatch.StateDead}},
	{laneCanceled, "-inf", "+inf", []dispatch.State{dispatch.StateCanceled}},
}

// ListTasks implements [dispatch.TaskReads].
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
		only = s.shardOfName(filter.Queue)
		if cursor == "" {
			p.shard = only
		}
	}
	for range maxListSteps {
		if p.shard >= s.shards || (only >= 0 && p.shard != only) {
			return page, nil
		}
		if len(page.Tasks) >= limit || page.Looked >= dispatch.MaxLooks {
			break
		}
		if p, err = s.listStep(ctx, &page, filter, p, limit); err != nil {
			return dispatch.TaskPage{}, err
		}
	}
	page.Next = p.String()
	return page, nil
}

// listStep adds a part of one set to a page, or finds the next lane.
func (s *Store) listStep(ctx context.Context, page *dispatch.TaskPage, filter dispatch.TaskFilter, p position, limit int) (position, error) {
	if p.lane == 0 {
		lane, err := s.nextLane(ctx, filter, p)
		if err != nil {
			return p, err
		}
		if lane == 0 {
			return position{shard: p.shard + 1}, nil
		}
		p = position{shard: p.shard, after: p.after, lane: lane}
	}
	for p.set < len(listSets) && !slices.ContainsFunc(listSets[p.set].states, func(st dispatch.State) bool {
		return slices.Contains(filter.States, st)
	}) {
		p.set, p.score, p.member = p.set+1, "", ""
	}
	if p.set == len(listSets) {
		return position{shard: p.shard, after: p.lane}, nil
	}
	part := &listSets[p.set]
	most := min(limit-len(page.Tasks), dispatch.MaxLooks-page.Looked, maxReads)
	tasks, score, member, err := s.listSet(ctx, p.shard, part.set.name(p.lane), part.low, part.high, p.score, p.member, most)
	if err != nil {
		return p, err
	}
	for _, t := range tasks {
		if slices.Contains(filter.States, t.State) {
			page.Tasks = append(page.Tasks, t)
		}
	}
	if member == "" {
		page.Looked += len(tasks)
		return position{shard: p.shard, after: p.after, lane: p.lane, set: p.set + 1}, nil
	}
	page.Looked += most // those without a record among them
	p.score, p.member = score, member
	return p, nil
}

// nextLane is the next lane of the filter in the shard; 0 when there is none.
func (s *Store) nextLane(ctx context.Context, filter dispatch.TaskFilter, p position) (int64, error) {
	const op = "list lanes"
	k := s.keys.shard(p.shard)
	if filter.SourceUID != "" && filter.Queue != "" {
		n, err := read(ctx, op, func() (float64, error) {
			n, err := s.client.ZScore(ctx, k.SourceLanes(filter.SourceUID), filter.Queue).Result()
			if errors.Is(err, redis.Nil) {
				return 0, nil
			}
			return n, err
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
	found, err := read(ctx, op, func() ([]redis.Z, error) { return s.client.ZRangeByScoreWithScores(ctx, key, after).Result() })
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return int64(found[0].Score), nil
}

// listSet reads a page of an index; score and member say where it goes on,
// empty at the end.
func (s *Store) listSet(ctx context.Context, shard int, set, low, high, score, member string, limit int) (tasks []*dispatch.Task, nextScore, nextMember string, err error) {
	v, err := s.run(ctx, "list tasks", s.scripts.list, call{shard: shard, args: []any{set, low, high, score, member, limit}})
	if err != nil {
		return nil, "", "", err
	}
	r := readReply(v)
	now, found := instant(r.integer()), r.list()
	nextScore, nextMember = r.text(), r.text()
	if r.err != nil {
		return nil, "", "", r.err
	}
	tasks, err = decodeTasks(found, now)
	return tasks, nextScore, nextMember, err
}
