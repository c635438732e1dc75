package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// marks are what tells whether Redis still holds what this dispatcher has worked
// with: the store is given a mark when it is first used, and in a Cluster, of which one
// node can come back empty, each shard too. A mark that has changed says that all
// beside it is gone. Whoever finds it missing sets a new one, so that each dispatcher
// sees it change.
//
// A failover right after that may lose the mark, too, which then counts as a loss. It is
// one: a replica gets what was written in its order, so that all that was written to the
// shard after its mark is gone with it.
type marks struct {
	// Of the look under way, of which there is one at a time:
	store  string
	shards []string // empty: not looked at yet; nil where there is one node
	next   int      // the shard that is looked at next

	losses atomic.Int64

	mu     sync.Mutex // guards what follows
	latest *look      // under way or ended; nil: none yet
}

// look is one at the marks.
type look struct {
	before error // what came of the one before
	stop   context.CancelFunc
	done   chan struct{} // closed once err is set
	err    error
}

const (
	// lookTime bounds how long a Ping waits for a look: a node that does not answer takes
	// little of the time that the caller has.
	lookTime = 300 * time.Millisecond
	// lookLimit bounds what a look asks of nodes, so that one at which others hang, or that
	// only is far away and has yet to be connected to, is looked at in its turn.
	lookLimit = 5 * time.Second
)

// lookAgain reports whether err, of a look within ctx, says no more than that there was
// no answer in time: the next look tells.
func lookAgain(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, dispatch.ErrStoreUnavailable))
}

// newMark is one that nothing had before.
func newMark() string { return uuid.NewString() }

// beginMarks looks at all shards of a Cluster for the first time. One that cannot be
// looked at now is when its turn comes.
func (s *Store) beginMarks(ctx context.Context) {
	s.marks.shards = make([]string, s.shards)
	if _, err := s.lostShards(ctx, 0, s.shards); err != nil {
		s.log.Warn("not all shards could be looked at; a loss of theirs is noticed from their next look on", zap.Error(err))
	}
}

// Losses implements [dispatch.LossCounter].
func (s *Store) Losses() int64 { return s.marks.losses.Load() }

// lookForLoss has the marks looked at, and is what came of it; where that takes longer than
// lookTime, what came of the look before.
func (s *Store) lookForLoss(ctx context.Context) error {
	now := s.beginLook(ctx)
	timer := time.NewTimer(lookTime)
	defer timer.Stop()
	select {
	case <-now.done:
		return now.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return now.before
}

// beginLook is the look under way, which begins now where there is none.
func (s *Store) beginLook(ctx context.Context) *look {
	m := &s.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	var before error
	if m.latest != nil {
		select {
		case <-m.latest.done:
			before = m.latest.err
		default:
			return m.latest
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	fresh := &look{before: before, stop: stop, done: make(chan struct{})}
	m.latest = fresh
	go func() {
		defer close(fresh.done)
		defer stop()
		fresh.err = s.lookAtMarks(ctx)
	}()
	return fresh
}

// endLooks ends the look under way, of a client that is closed.
func (m *marks) endLooks() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.latest != nil {
		m.latest.stop()
		<-m.latest.done
	}
}

// lookAtMarks compares the store's mark and that of one shard in turn with what this
// dispatcher has seen so far. A loss is counted and told once, with all shards
// of which it is seen.
func (s *Store) lookAtMarks(ctx context.Context) error {
	lost, failed := s.recheckMeta(ctx)
	shards, err := s.lostInTurn(ctx, lost)
	failed = errors.Join(failed, err)
	if lost || len(shards) > 0 {
		s.marks.losses.Add(1)
		s.log.Error("the store lost its data: what redis held of sources, tasks, queue rules and leases is gone, or is another store's; "+
			"this dispatcher goes on with what is there. Bring the files of redis back, or register anew: "+
			"deploy/README.md, \"When the store has lost its data\"",
			zap.String("prefix", s.keys.prefix), zap.Bool("whole_store", lost), zap.Ints("of_shards", shards))
	}
	return failed
}

// lostInTurn looks at the shard whose turn it is, and at all where something is lost
// (other). A shard whose node does not answer, or is full, is looked at another time: in
// its next turn, so that it keeps no other from its own.
func (s *Store) lostInTurn(ctx context.Context, other bool) (lost []int, err error) {
	m := &s.marks
	if len(m.shards) == 0 {
		return nil, nil
	}
	turn := m.next
	m.next = (turn + 1) % len(m.shards)
	if lost, err = s.lookAtShards(ctx, turn, turn+1); other || len(lost) > 0 {
		var more []int
		more, err = s.lookAtShards(ctx, 0, len(m.shards))
		lost = append(lost, more...)
	}
	return lost, err
}

// lookAtShards is lostShards within the limit of a look. What a shard cannot answer now
// is no error.
func (s *Store) lookAtShards(ctx context.Context, from, to int) (lost []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	lost, err = s.lostShards(ctx, from, to)
	if lookAgain(ctx, err) || errors.Is(err, dispatch.ErrStoreFull) || errors.Is(err, dispatch.ErrStoreReadOnly) {
		err = nil
	}
	return lost, err
}

// lostShards gives those of the shards from from to before to whose mark is another one
// than before.
func (s *Store) lostShards(ctx context.Context, from, to int) (lost []int, err error) {
	const op = "read the marks of shards"
	pipe := s.client.Pipeline()
	found := make([]*redis.StringCmd, 0, to-from)
	for shard := from; shard < to; shard++ {
		found = append(found, pipe.Get(ctx, s.keys.shard(shard).Mark()))
	}
	_, failed := pipe.Exec(ctx)
	if errors.Is(failed, redis.Nil) {
		failed = nil
	}
	for i, cmd := range found {
		shard := from + i
		mark, err := cmd.Result()
		if errors.Is(err, redis.Nil) {
			mark, err = s.markShard(ctx, shard)
		}
		if err != nil {
			failed = err
			continue
		}
		if mark == "" { // it was not sent, and failed says why
			continue
		}
		if before := s.marks.shards[shard]; before != "" && before != mark {
			lost = append(lost, shard)
		}
		s.marks.shards[shard] = mark
	}
	return lost, wrap(ctx, op, failed)
}

// markShard gives a shard its mark; another dispatcher may have been first.
func (s *Store) markShard(ctx context.Context, shard int) (string, error) {
	mark := newMark()
	before, err := s.client.SetArgs(ctx, s.keys.shard(shard).Mark(), mark, redis.SetArgs{Mode: "NX", Get: true}).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return mark, nil
	case err != nil:
		return "", err
	default:
		return before, nil
	}
}
