package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// Import implements [dispatch.Portable].
func (s *Store) Import(ctx context.Context, batch *dispatch.PortableBatch) error {
	err := s.importHolds(ctx, batch.Holds)
	if err == nil {
		err = s.importGates(ctx, batch.Gates)
	}
	if err == nil {
		err = s.importTasks(ctx, batch.Tasks)
	}
	if err == nil {
		err = s.importQueues(ctx, batch.Queues)
	}
	if err == nil {
		err = s.importCollectors(ctx, batch.Collectors)
	}
	if err == nil {
		err = s.importTokens(ctx, batch.Tokens)
	}
	if err == nil {
		err = s.importStatuses(ctx, batch.Statuses)
	}
	if err == nil && batch.Totals != nil {
		err = s.importTotals(ctx, batch.Totals)
	}
	if err != nil {
		return fmt.Errorf("import into the store: %w", err)
	}
	return nil
}

// EndCopy implements [dispatch.Portable].
func (s *Store) EndCopy(ctx context.Context) error { return s.meta.EndCopy(ctx) }

// importHolds stores holds in shard 0, and in all shards until when they stop queues.
func (s *Store) importHolds(ctx context.Context, holds []dispatch.Hold) error {
	if len(holds) == 0 {
		return nil
	}
	var encoded []any
	for i := range holds {
		hold, err := pack.JSON(&holds[i])
		if err != nil {
			return fmt.Errorf("hold %.300q: %w", holds[i].Key(), err)
		}
		encoded = append(encoded, holds[i].Key(), hold)
	}
	queues := queueChanges(dispatch.HeldQueues(holds))
	_, err := script.Pipeline(ctx, "import holds", s.client, s.scripts.Shards+1, func(pipe redis.Pipeliner, i int) redis.Cmder {
		switch {
		case i == s.scripts.Shards:
			return pipe.HSet(ctx, s.keys.Shard(0).Holds(), encoded...)
		case len(queues) == 0:
			return pipe.HLen(ctx, s.keys.Shard(i).HeldQueues())
		default:
			return pipe.HSet(ctx, s.keys.Shard(i).HeldQueues(), queues...)
		}
	})
	return err
}

func (s *Store) importGates(ctx context.Context, gates []dispatch.SourceGate) error {
	for page := range slices.Chunk(gates, maxReads) {
		var args []any
		for i := range page {
			args = append(args, gateArgs(&page[i])...)
		}
		if _, err := s.scripts.RunAll(ctx, "import sources", script.ImportGates, s.scripts.EveryShard(args...)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) importTasks(ctx context.Context, tasks []dispatch.PortableTask) error {
	calls := s.scripts.Pages(len(tasks), maxReads, func(i int) dispatch.TaskID { return tasks[i].Task.ID })
	var held []dispatch.LeaseToken
	var longest time.Duration
	for k := range calls {
		var args []any
		for _, i := range calls[k].Items {
			t := &tasks[i]
			its, err := importArgs(t)
			if err != nil {
				return err
			}
			args = append(args, its...)
			if l := t.Task.Lease; l != nil {
				held, longest = append(held, l.Token), max(longest, l.MaxHold)
			}
		}
		calls[k].Args = args
	}
	if len(held) > 0 && s.scripts.Shards > 1 { // so that a repeated client token finds its grants in all shards
		if err := s.prolong(ctx, held, longest); err != nil {
			return err
		}
	}
	_, err := s.scripts.RunAll(ctx, "import tasks", script.ImportTasks, calls)
	return err
}

// importArgs are what the script needs of a task.
func importArgs(p *dispatch.PortableTask) ([]any, error) {
	t := &p.Task
	history, err := record.AppendHistory(nil, t)
	if err != nil {
		return nil, fmt.Errorf("task %s: history: %w", t.ID, err)
	}
	lock, ends := "", int64(0)
	switch {
	case t.Lease != nil && !p.LockDeleted:
		lock, ends = t.Lease.Token.String(), pack.Millis(t.Lease.Deadline)
	case t.Lease == nil && t.Lock != nil:
		lock, ends = t.Lock.Value, pack.Millis(t.Lock.Ends)
	}
	return []any{
		string(t.ID), t.SourceUID, record.Append(nil, t, p.LockDeleted), pack.Millis(p.ForgetAt), t.Cursor, t.Memo, history, p.Session,
		lock, ends,
	}, nil
}

func (s *Store) importQueues(ctx context.Context, queues []dispatch.PortableQueue) error {
	byShard := make(map[int][]any)
	for i := range queues {
		q := &queues[i]
		cause := ""
		if q.Cause != nil {
			failure, err := pack.JSON(&q.Cause.Failure)
			if err != nil {
				return fmt.Errorf("queue %s: cause of its block: %w", q.Name, err)
			}
			cause = string(q.Cause.Task) + "\n" + failure
		}
		var failed []byte
		for _, hash := range q.FailedURLs {
			failed = binary.BigEndian.AppendUint32(failed, hash)
		}
		shard := s.scripts.ShardOf(q.Name)
		byShard[shard] = append(byShard[shard], q.Name, pack.Millis(q.NextGrant), pack.Millis(q.Blocked), q.BlockStep,
			pack.Millis(q.BlockedAt), pack.Span(q.Asked), failed, cause)
	}
	return s.importParts(ctx, "import queues", script.ImportQueues, byShard, 8)
}

// importParts runs a script on the parts of each shard, of so many arguments each.
func (s *Store) importParts(ctx context.Context, op string, name script.Name, byShard map[int][]any, size int) error {
	var calls []script.Call
	for shard, args := range byShard {
		for page := range slices.Chunk(args, maxReads*size) {
			calls = append(calls, script.Call{Shard: shard, Args: page})
		}
	}
	_, err := s.scripts.RunAll(ctx, op, name, calls)
	return err
}

func (s *Store) importCollectors(ctx context.Context, all []dispatch.PortableCollector) error {
	var calls []script.Call
	for i := range all {
		c := &all[i]
		info := ""
		if !c.OnlyPolls {
			var err error
			if info, err = pack.JSON(&c.Info); err != nil {
				return fmt.Errorf("collector %s: %w", c.Info.ID, err)
			}
		}
		args := []any{
			c.Info.ID, c.Info.Session, pack.Millis(c.First), pack.Millis(c.Seen), c.Fresh, c.Info.Ended, info, len(c.Replaced),
		}
		for _, session := range c.Replaced {
			args = append(args, session)
		}
		calls = append(calls, script.Call{Shard: s.scripts.ShardOf(c.Info.ID), Args: args})
	}
	_, err := s.scripts.RunAll(ctx, "import collectors", script.ImportCollectors, calls)
	return err
}

func (s *Store) importTokens(ctx context.Context, all []dispatch.PortableTokens) error {
	for _, tokens := range all {
		for page := range slices.Chunk(tokens.Digests, dispatch.MaxPortable) {
			args := []any{tokens.Step, s.scripts.Shards > 1}
			for _, digest := range page {
				args = append(args, binary.BigEndian.AppendUint64(nil, digest))
			}
			if _, err := s.scripts.RunAll(ctx, "import client tokens", script.ImportTokens, s.scripts.EveryShard(args...)); err != nil {
				return err
			}
		}
	}
	return nil
}

// importStatuses sets what sources count. The difference of done tasks is added, so a call whose effect is unknown is not
// repeated.
func (s *Store) importStatuses(ctx context.Context, all []dispatch.PortableStatus) error {
	for page := range slices.Chunk(all, maxReads) {
		uids := make([]string, len(page))
		for i := range page {
			uids[i] = page[i].UID
		}
		have, err := s.SourceStatuses(ctx, uids)
		if err != nil {
			return err
		}
		byShard := make(map[int][]any)
		for i := range page {
			p := &page[i]
			shard, ok := s.scripts.ShardOfTask(p.Seed)
			if !ok {
				shard = s.scripts.ShardOf(p.UID)
			}
			st := &p.Status
			// The tasks that came are the least: what forgot the source, as memory does, counts none of them.
			done := max(st.Counts.Done-have[i].Counts.Done, 0)
			byShard[shard] = append(byShard[shard], p.UID, st.Limited, st.FailuresInARow,
				pack.Millis(st.LastSuccess), pack.Millis(st.LastFailure), done)
		}
		for shard, args := range byShard {
			if _, err := s.scripts.RunOnce(ctx, "import sources", script.ImportStatuses, script.Call{Shard: shard, Args: args}); err != nil {
				return err
			}
		}
	}
	return nil
}

// importTotals sets the counters, in the first shard: see importStatuses.
func (s *Store) importTotals(ctx context.Context, want *dispatch.PortableTotals) error {
	have, err := s.totals(ctx)
	if err != nil {
		return err
	}
	for shard := range s.scripts.Shards {
		more := dispatch.PortableTotals{}
		if shard == 0 {
			more = dispatch.PortableTotals{
				Granted: want.Granted - have.Granted, Settled: want.Settled - have.Settled, Expired: want.Expired - have.Expired,
				Orphaned: want.Orphaned - have.Orphaned, Dropped: want.Dropped - have.Dropped, Done: want.Done - have.Done,
			}
		}
		_, err := s.scripts.RunOnce(ctx, "import the counters", script.ImportTotals, script.Call{Shard: shard, Args: []any{
			want.Fence, want.RulesVersion, want.HoldsVersion, more.Granted, more.Settled, more.Expired, more.Orphaned, more.Dropped, more.Done,
		}})
		if err != nil {
			return err
		}
	}
	return nil
}
