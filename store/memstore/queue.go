package memstore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// QueuesNamed implements [dispatch.Queues].
func (s *Store) QueuesNamed(ctx context.Context, names []string) ([]*dispatch.Queue, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	queues := make([]*dispatch.Queue, len(names))
	for i, name := range names {
		queues[i] = s.shardOfName(name).read(name)
	}
	return queues, nil
}

// read describes a queue; nil: there is none.
func (s *shard) read(name string) *dispatch.Queue {
	s.begin()
	defer s.end()
	if q := s.existing(name); q != nil {
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
		if qp.open.len()+qp.wait.len() > 0 {
			d.Pools = append(d.Pools, qp.pool.name)
		}
	}
	slices.Sort(d.Pools)
	kept := q.nextGrant // only placing the queue cuts it
	if gate := s.queueGate(q); gate > s.now && gate != infinite {
		d.NextGrant = instant(gate)
	}
	d.Gates = s.gatesOf(q, set)
	q.nextGrant = kept
	return d
}

// gatesOf lists the gates that hold the queue now.
func (s *shard) gatesOf(q *queue, set *settings) []dispatch.Gate {
	var gates []dispatch.Gate
	if q.nextGrant > s.now {
		gates = append(gates, set.MinDelayGate(instant(q.nextGrant), q.asked))
	}
	if q.blocked > s.now {
		gates = append(gates, dispatch.Gate{Kind: dispatch.GateHostBlocked, Until: instant(q.blocked), Cause: clone(q.cause)})
	}
	for _, gate := range []*dispatch.Gate{q.operator, q.paused} {
		if gateUntil(gate) > s.now {
			gates = append(gates, *gate)
		}
	}
	if set.Paused {
		gates = append(gates, set.pausedBy.Gate(dispatch.GateQueuePaused))
	}
	if set.Deny {
		gates = append(gates, set.filed.Gate(dispatch.GateQueueDenied))
	}
	if q.inFlight >= int64(set.MaxInFlight) {
		gates = append(gates, set.MaxInFlightGate(q.inFlight))
	}
	return gates
}

// ListQueues implements [dispatch.Queues].
func (s *Store) ListQueues(ctx context.Context, suffix, after string, limit int) ([]*dispatch.Queue, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	var found []*dispatch.Queue
	for _, sh := range s.shards {
		found = append(found, sh.listQueues(suffix, after, limit)...)
	}
	if len(s.shards) > 1 {
		slices.SortFunc(found, func(a, b *dispatch.Queue) int {
			return strings.Compare(reverseLabels(a.Name), reverseLabels(b.Name))
		})
	}
	return found[:min(len(found), limit)], nil
}

// listQueues lists at most limit queues of the shard.
func (s *shard) listQueues(suffix, after string, limit int) []*dispatch.Queue {
	s.begin()
	defer s.end()
	s.closeIdleQueues(len(s.queues))
	var found []*dispatch.Queue
	begin := ""
	if after != "" {
		begin = reverseLabels(after) + "\x00"
	}
	collect := func(begin string, matches func(string) bool) {
		s.queueNames.Ascend(begin, func(reversed string, q *queue) bool {
			if len(found) >= limit || !matches(reversed) {
				return false
			}
			found = append(found, s.describe(q))
			return true
		})
	}
	if suffix == "" {
		collect(begin, func(string) bool { return true })
		return found
	}
	// The name itself, then all below it: names like example-x.com lie between.
	exact := reverseLabels(suffix)
	below := exact + "."
	collect(max(begin, exact), func(name string) bool { return name == exact })
	collect(max(begin, below), func(name string) bool { return strings.HasPrefix(name, below) })
	return found
}

// ListPools implements [dispatch.Queues].
func (s *Store) ListPools(ctx context.Context, name, after string, limit int) ([]dispatch.Pool, error) {
	known, err := s.listPools(ctx, func(pool string) bool { return pool > after && (name == "" || pool == name) })
	return known[:min(len(known), max(limit, 0))], err
}

// listPools sums over all shards, ascending by name.
func (s *Store) listPools(ctx context.Context, match func(name string) bool) ([]dispatch.Pool, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	sums := make(map[string]dispatch.Pool)
	for _, sh := range s.shards {
		sh.begin()
		for name, p := range sh.pools {
			if open, waiting := p.open.len(), p.wait.len(); match(name) && open+waiting > 0 {
				sum, due := sums[name], p.wait.upTo(sh.now)
				sum.Open, sum.Waiting = sum.Open+int64(open+due), sum.Waiting+int64(waiting-due)
				sums[name] = sum
			}
		}
		for name, gate := range sh.paused {
			if match(name) && sh.pausedUntil(name) > sh.now {
				sum := sums[name]
				sum.Paused = &gate
				sums[name] = sum
			}
		}
		sh.end()
	}
	var known []dispatch.Pool
	for name, sum := range sums {
		sum.Name = name
		known = append(known, sum)
	}
	slices.SortFunc(known, func(a, b dispatch.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return known, nil
}
