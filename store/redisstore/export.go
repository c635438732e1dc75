package redisstore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/redisconn"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

var _ dispatch.Portable = (*Store)(nil)

// Export implements [dispatch.Portable].
func (s *Store) Export(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	for _, export := range [...]func(context.Context, func(*dispatch.PortableBatch) error) error{
		s.exportGates, s.exportTasks, s.exportQueues, s.exportCollectors, s.exportTokens, s.exportTotals,
	} {
		if err := export(ctx, each); err != nil {
			return fmt.Errorf("export the store: %w", err)
		}
	}
	return nil
}

func (s *Store) exportGates(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	for shard := range s.scripts.Shards {
		for next := int64(1); next > 0; {
			r, err := s.scripts.Run(ctx, "read sources", script.ExportGates, script.Call{Shard: shard, Args: []any{next, maxReads}})
			if err != nil {
				return err
			}
			var batch dispatch.PortableBatch
			next = r.Integer()
			for r.More() {
				one := r.Array()
				batch.Gates = append(batch.Gates, dispatch.SourceGate{
					UID: one.Text(), ID: one.Text(), Version: one.Integer(), Pool: one.Text(), Priority: int(one.Integer()),
					HeldUntil: one.Time(), Deleted: one.Bool(), MaxOutstanding: one.Integer(), LeaseDuration: one.Duration(),
					MaxHold: one.Duration(), JoinedBytes: int(one.Integer()), Remember: one.Duration(),
				})
				r.Join(one)
			}
			if err := errors.Join(r.Err, each(&batch)); err != nil {
				return err
			}
		}
	}
	return nil
}

// exportTasks finds the records of tasks by a scan of each server: the keys of all shards at once.
func (s *Store) exportTasks(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	var one sync.Mutex // the servers of a Cluster are read at the same time
	return redisconn.EachPrimary(ctx, s.client, func(ctx context.Context, server *redis.Client) error {
		type page struct {
			names []string
			next  uint64
		}
		seen := make(map[uint64]struct{}) // hashes of what was given: SCAN may give it again
		for cursor := uint64(0); ; {
			found, err := script.Retry(ctx, "scan", func() (page, error) {
				names, next, err := server.Scan(ctx, cursor, string(s.keys)+":{*}:t:*", dispatch.MaxPortable).Result()
				return page{names, next}, err
			})
			if err != nil {
				return err
			}
			var ids []dispatch.TaskID
			for _, name := range found.names {
				id, ok := s.taskOf(name)
				hash := maphash.String(checkSeed, name)
				if _, again := seen[hash]; ok && !again {
					seen[hash] = struct{}{}
					ids = append(ids, id)
				}
			}
			if err := s.exportPage(ctx, ids, func(batch *dispatch.PortableBatch) error {
				one.Lock()
				defer one.Unlock()
				return each(batch)
			}); err != nil {
				return err
			}
			if cursor = found.next; cursor == 0 {
				return nil
			}
		}
	})
}

// exportPage gives the tasks with those ids.
func (s *Store) exportPage(ctx context.Context, ids []dispatch.TaskID, each func(*dispatch.PortableBatch) error) error {
	batch, bytes := new(dispatch.PortableBatch), 0
	for some := range slices.Chunk(ids, maxReads) {
		tasks, err := s.exportSome(ctx, some)
		if err != nil {
			return err
		}
		for i := range tasks {
			t := &tasks[i].Task
			bytes += listedSize + len(t.URL) + len(t.Payload) + len(t.Cursor) + len(t.Memo)
		}
		batch.Tasks = append(batch.Tasks, tasks...)
		if bytes > dispatch.MaxPortableBytes {
			if err := each(batch); err != nil {
				return err
			}
			batch, bytes = new(dispatch.PortableBatch), 0
		}
	}
	if len(batch.Tasks) == 0 {
		return nil
	}
	return each(batch)
}

// listedSize is about what a task takes beside its long texts.
const listedSize = 512

// taskOf is the task whose record has that key.
func (s *Store) taskOf(name string) (dispatch.TaskID, bool) {
	_, text, _ := strings.Cut(strings.TrimPrefix(name, string(s.keys)), "}:t:")
	id, err := dispatch.ParseTaskID(text)
	if err != nil {
		return "", false
	}
	shard, ok := s.scripts.ShardOfTask(id)
	return id, ok && s.keys.Shard(shard).Task(id) == name
}

// exportSome reads tasks. Those of a source that the shard has forgotten are left out.
func (s *Store) exportSome(ctx context.Context, ids []dispatch.TaskID) ([]dispatch.PortableTask, error) {
	found, _, err := s.Tasks(ctx, ids, true)
	if err != nil {
		return nil, err
	}
	tasks := make([]dispatch.PortableTask, 0, len(found))
	for _, t := range found {
		if t != nil && t.SourceUID != "" {
			tasks = append(tasks, dispatch.PortableTask{Task: *t})
		}
	}
	beside, err := script.Pipeline(ctx, "read tasks", s.client, 2*len(tasks), func(pipe redis.Pipeliner, i int) redis.Cmder {
		t := &tasks[i/2].Task
		shard, _ := s.scripts.ShardOfTask(t.ID)
		switch names := s.keys.Shard(shard); {
		case t.Lease == nil && i%2 == 0:
			return pipe.PExpireTime(ctx, names.Task(t.ID))
		case t.Lease == nil:
			return pipe.Exists(ctx, names.Task(t.ID))
		case i%2 == 0:
			token := t.Lease.Token.ClientToken
			return pipe.HMGet(ctx, names.Held(t.Lease.Token.Collector), "/"+token, token+"/")
		default:
			return pipe.GetRange(ctx, names.Task(t.ID), record.LockDeleted, record.LockDeleted)
		}
	})
	for i := range tasks {
		if err == nil {
			readBeside(&tasks[i], beside[2*i], beside[2*i+1])
		}
	}
	return tasks, err
}

// readBeside reads what the record of a task does not say: when it is forgotten, or the session of its holder and
// whether the lock was deleted.
func readBeside(t *dispatch.PortableTask, first, second redis.Cmder) {
	switch first := first.(type) {
	case *redis.DurationCmd:
		if at := first.Val(); at > 0 && t.Task.State.Settled() {
			t.ForgetAt = pack.Instant(at.Milliseconds() + 1) // the key's last millisecond is the one before
		}
	case *redis.SliceCmd:
		for _, note := range first.Val() { // the session is the first part (lua/grant.lua)
			if text, ok := note.(string); ok && len(text) > int(text[0]) {
				t.Session = text[1 : 1+int(text[0])]
			}
		}
	}
	if deleted, ok := second.(*redis.StringCmd); ok {
		t.LockDeleted = deleted.Val() == "\x01"
	}
}

// pagesOf gives the members of a ZSET of each shard, some at a time.
func (s *Store) pagesOf(ctx context.Context, name func(shard int) string, page func(shard int, members []string) error) error {
	for shard := range s.scripts.Shards {
		for begin := int64(0); ; begin += maxReads {
			members, err := script.Retry(ctx, "read an index", func() ([]string, error) {
				return s.client.ZRange(ctx, name(shard), begin, begin+maxReads-1).Result()
			})
			if err == nil && len(members) > 0 {
				err = page(shard, members)
			}
			if err != nil {
				return err
			}
			if len(members) < maxReads {
				break
			}
		}
	}
	return nil
}

func (s *Store) exportQueues(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	return s.pagesOf(ctx, func(shard int) string { return s.keys.Shard(shard).Queues() }, func(shard int, members []string) error {
		args := make([]any, len(members))
		for i, reversed := range members {
			args[i] = reversedLabels(reversed)
		}
		r, err := s.scripts.Run(ctx, "read queues", script.ExportQueues, script.Call{Shard: shard, Args: args})
		if err != nil {
			return err
		}
		var batch dispatch.PortableBatch
		for r.More() {
			q := dispatch.PortableQueue{
				Name: r.Text(), NextGrant: r.Time(), Blocked: r.Time(), BlockStep: int(r.Integer()), BlockedAt: r.Time(), Asked: r.Duration(),
			}
			failed := []byte(r.Text())
			for ; len(failed) >= 4; failed = failed[4:] {
				q.FailedURLs = append(q.FailedURLs, binary.BigEndian.Uint32(failed))
			}
			if q.Cause, err = parseCause(r.Text()); err != nil {
				return fmt.Errorf("queue %s: cause of its block: %w", q.Name, err)
			}
			batch.Queues = append(batch.Queues, q)
		}
		return errors.Join(r.Err, each(&batch))
	})
}

func (s *Store) exportCollectors(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	return s.pagesOf(ctx, func(shard int) string { return s.keys.Shard(shard).Collectors() }, func(shard int, members []string) error {
		args := make([]any, len(members))
		for i, id := range members {
			args[i] = id
		}
		r, err := s.scripts.Run(ctx, "read collectors", script.ExportCollectors, script.Call{Shard: shard, Args: args})
		if err != nil {
			return err
		}
		var batch dispatch.PortableBatch
		for r.More() {
			one := r.Array()
			c := dispatch.PortableCollector{Info: dispatch.CollectorInfo{ID: one.Text(), Session: one.Text()}}
			c.First, c.Seen, c.Fresh = one.Time(), one.Time(), one.Bool()
			ended, encoded := one.Bool(), one.Text()
			if c.OnlyPolls = encoded == ""; !c.OnlyPolls {
				if err := json.Unmarshal([]byte(encoded), &c.Info); err != nil {
					return fmt.Errorf("decode collector %s: %w", c.Info.ID, err)
				}
			}
			c.Info.Ended = ended
			for one.More() {
				c.Replaced = append(c.Replaced, one.Text())
			}
			r.Join(one)
			batch.Collectors = append(batch.Collectors, c)
		}
		return errors.Join(r.Err, each(&batch))
	})
}

// exportTokens gives the used client tokens of the steps that matter, each once, though several shards may have one.
func (s *Store) exportTokens(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	pass := &checkPass{Store: s}
	for step := dispatch.TokenStep(now) - 1; step <= dispatch.TokenStep(now)+1; step++ {
		seen := make(map[uint64]struct{})
		for shard := range s.scripts.Shards {
			err := pass.members(ctx, shard, s.keys.Shard(shard).Used(step), typeSet, func(members []string) error {
				tokens := dispatch.PortableTokens{Step: step}
				for _, member := range members {
					if len(member) != 8 {
						continue
					}
					digest := binary.BigEndian.Uint64([]byte(member))
					if _, again := seen[digest]; !again {
						seen[digest] = struct{}{}
						tokens.Digests = append(tokens.Digests, digest)
					}
				}
				if len(tokens.Digests) == 0 {
					return nil
				}
				return each(&dispatch.PortableBatch{Tokens: []dispatch.PortableTokens{tokens}})
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) exportTotals(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	totals, err := s.totals(ctx)
	if err != nil {
		return err
	}
	return each(&dispatch.PortableBatch{Totals: totals})
}

func (s *Store) totals(ctx context.Context) (*dispatch.PortableTotals, error) {
	replies, err := s.scripts.RunAll(ctx, "read the counters", script.ExportTotals, s.scripts.EveryShard())
	if err != nil {
		return nil, err
	}
	total := new(dispatch.PortableTotals)
	for _, r := range replies {
		fence, err := strconv.ParseUint(r.Text(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the counters: fence: %w", err)
		}
		total.Fence = max(total.Fence, fence)
		total.RulesVersion, total.HoldsVersion = max(total.RulesVersion, r.Integer()), max(total.HoldsVersion, r.Integer())
		total.Granted += r.Integer()
		total.Settled += r.Integer()
		total.Expired += r.Integer()
		total.Orphaned += r.Integer()
		total.Dropped += r.Integer()
		total.Done += r.Integer()
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return total, nil
}
