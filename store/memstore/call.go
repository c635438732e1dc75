package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// enter begins a call on the shard of that number.
func (s *Store) enter(ctx context.Context, number int) (*shard, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if number < 0 || number >= len(s.shards) {
		return nil, fmt.Errorf("%w: shard %d is not 0 to %d", dispatch.ErrInvalid, number, len(s.shards)-1)
	}
	s.shards[number].begin()
	return s.shards[number], nil
}

// shardOfTask is the shard that owns the task; nil when the id has no slot.
func (s *Store) shardOfTask(id dispatch.TaskID) *shard {
	slot := id.Slot()
	if slot < 0 {
		return nil
	}
	return s.shards[dispatch.ShardOf(slot, len(s.shards))]
}

// shardOfName is the shard that owns a queue.
func (s *Store) shardOfName(name string) *shard {
	return s.shards[dispatch.ShardOf(dispatch.SlotOf(name), len(s.shards))]
}

// byShard makes a call on each shard that owns some of n tasks, with the indexes
// of those tasks in order, at most limit at a time. Those whose id has no slot
// are left out.
func (s *Store) byShard(n, limit int, id func(int) dispatch.TaskID, work func(*shard, []int)) {
	groups := make([][]int, len(s.shards))
	if len(groups) == 1 {
		groups[0] = make([]int, 0, n)
	}
	for i := range n {
		if sh := s.shardOfTask(id(i)); sh != nil {
			groups[sh.number] = append(groups[sh.number], i)
		}
	}
	for number, group := range groups {
		for page := range slices.Chunk(group, limit) {
			s.shards[number].run(func(sh *shard) { work(sh, page) })
		}
	}
}

// run makes a call on the shard.
func (s *shard) run(work func(*shard)) {
	s.begin()
	defer s.end()
	work(s)
}

// begin starts a call on the shard: it takes the mutex and reads the clock.
func (s *shard) begin() {
	s.mu.Lock()
	now := s.clock.now()
	s.now, s.micros = now.UnixMilli(), uint64(max(now.UnixMicro(), 0))
	s.promoted = 0
}

// end ends a call: it puts what was touched where it belongs, and tells what
// became grantable sooner.
func (s *shard) end() {
	s.placeTouched()
	if len(s.soonest) == 0 {
		s.mu.Unlock()
		return
	}
	hints := make([]dispatch.Hint, 0, len(s.soonest))
	for _, pool := range slices.Sorted(maps.Keys(s.soonest)) {
		hints = append(hints, dispatch.Hint{
			Kind: dispatch.HintReady, Shard: s.number, Pool: pool, In: duration(max(s.soonest[pool]-s.now, 0)),
		})
	}
	clear(s.soonest)
	s.mu.Unlock()
	for _, hint := range hints {
		s.publish(hint)
	}
}
