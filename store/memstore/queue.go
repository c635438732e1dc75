package memstore

import (
	"context"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
)

// QueuesNamed implements [dispatch.Queues].
func (s *Store) QueuesNamed(ctx context.Context, names []string) ([]*dispatch.Queue, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	queues := make([]*dispatch.Queue, len(names))
	for i, name := range names {
		err := s.shardOfName(name).read(ctx, func(sh *shard) {
			queues[i] = sh.queueNamed(name)
		})
		if err != nil {
			return nil, err
		}
	}
	return queues, nil
}

// queueNamed is a queue; nil: there is none.
func (s *shard) queueNamed(name string) *dispatch.Queue {
	if q := s.standing(name); q != nil {
		return s.describe(q)
	}
	return nil
}

// describe is the queue as a caller of the store sees it.
func (s *shard) describe(q *queue) *dispatch.Queue {
	set := s.settingsOf(q)
	d := &dispatch.Queue{
		Name: q.name, Settings: set.QueueSettings, SettingsName: set.name,
		QueueDelay: q.asked, Waiting: q.waiting, Leased: q.inFlight, BlockStep: q.blockStep,
	}
	for _, qp := range q.pools {
		if qp.len() > 0 {
			d.Pools = append(d.Pools, qp.pool.name)
		}
	}
	slices.Sort(d.Pools)
	if gate := s.queueGate(q); gate > s.now && gate != infinite {
		d.NextGrant = instant(gate)
	}
	d.Gates = s.gatesOf(q, set)
	return d
}

// gatesOf lists the gates of its own that hold the queue now.
func (s *shard) gatesOf(q *queue, set *settings) []dispatch.Gate {
	var gates []dispatch.Gate
	if next := s.nextGrantOf(q); next > s.now {
		gates = append(gates, set.MinDelayGate(instant(next), q.asked))
	}
	if q.blocked > s.now {
		gates = append(gates, dispatch.Gate{Kind: dispatch.GateHostBlocked, Until: instant(q.blocked), By: dispatch.HoldWaggle, Time: instant(q.blockedAt), Cause: clone(q.cause)})
	}
	if q.inFlight >= int64(set.MaxInFlight) {
		gates = append(gates, set.MaxInFlightGate(q.inFlight))
	}
	return gates
}

// ListQueues implements [dispatch.Queues].
func (s *Store) ListQueues(ctx context.Context, suffix, after string, limit int) ([]*dispatch.Queue, error) {
	var found []*dispatch.Queue
	err := s.readAll(ctx, func(sh *shard) { found = append(found, sh.listQueues(suffix, after, limit)...) })
	slices.SortFunc(found, func(a, b *dispatch.Queue) int {
		return strings.Compare(reverseLabels(a.Name), reverseLabels(b.Name))
	})
	return found[:min(len(found), limit)], err
}

// listQueues lists at most limit queues of the shard.
func (s *shard) listQueues(suffix, after string, limit int) (found []*dispatch.Queue) {
	begin := ""
	if after != "" {
		begin = reverseLabels(after) + "\x00"
	}
	collect := func(prefix string) {
		s.queueNames.Ascend(max(begin, prefix), func(reversed string, q *queue) bool {
			switch {
			case len(found) >= limit || !strings.HasPrefix(reversed, prefix):
				return false
			case q.over(s.now):
				return true
			}
			found = append(found, s.describe(q))
			return true
		})
	}
	if suffix == "" {
		collect("")
		return found
	}
	// The name itself, then all below it: names like example-x.com lie between.
	exact := reverseLabels(suffix)
	if q := s.standing(suffix); q != nil && exact >= begin && limit > 0 {
		found = append(found, s.describe(q))
	}
	collect(exact + ".")
	return found
}

// eachPool gives what the shard has of each pool that has queues with waiting tasks, in no order.
func (s *shard) eachPool(each func(dispatch.Pool)) {
	for name, p := range s.pools {
		if p.len() > 0 {
			due := p.wait.upTo(s.now)
			each(dispatch.Pool{Name: name, Open: int64(p.open.len() + due), Waiting: int64(p.wait.len() - due + p.counted())})
		}
	}
}

// ListPools implements [dispatch.Queues].
func (s *Store) ListPools(ctx context.Context, name, after string, limit int) ([]dispatch.Pool, error) {
	var sums btree.Map[string, dispatch.Pool]
	err := s.readAll(ctx, func(sh *shard) {
		sh.eachPool(func(p dispatch.Pool) {
			sum, _ := sums.Get(p.Name)
			sum.Name, sum.Open, sum.Waiting = p.Name, sum.Open+p.Open, sum.Waiting+p.Waiting
			sums.Set(p.Name, sum)
		})
	})
	var known []dispatch.Pool
	sums.Ascend(after, func(pool string, sum dispatch.Pool) bool {
		if pool > after && (name == "" || pool == name) && len(known) < limit {
			known = append(known, sum)
		}
		return len(known) < limit
	})
	return known, err
}
