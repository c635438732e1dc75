package memstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// queue is the politeness domain: what its lanes share.
type queue struct {
	name     string
	reversed string // labels from the last to the first
	waiting  int64
	inFlight int64

	nextGrant int64
	blocked   int64 // end of the automatic block
	blockStep int
	cause     *dispatch.BlockCause // of the automatic block
	operator  *dispatch.Gate       // an operator's block
	paused    *dispatch.Gate       // an operator's pause
	// asked is the delay that the host asks for; settings.paced has it.
	asked time.Duration

	pools []*queuePool

	settings settings
	// touched: the call under way places it at its end.
	touched bool
	// idleUntil is the score in the shard's idle queues; 0 = not idle.
	idleUntil int64
	// gone: the queue was deleted.
	gone bool
}

// member is the name by which queues are listed.
func (q *queue) member() string { return q.reversed }

// queueOf is the queue of the lane; it is made when it does not exist.
func (s *shard) queueOf(l *lane) *queue {
	if l.q == nil || l.q.gone || l.q.over(s.now) {
		l.q = s.openQueue(l.queueName)
	}
	return l.q
}

// over reports whether the queue holds nothing, and the gates that kept it have
// ended.
func (q *queue) over(now int64) bool { return q.idleUntil != 0 && q.idleUntil <= now }

// openQueue finds the queue, or makes it.
func (s *shard) openQueue(name string) *queue {
	q := s.queues[name]
	if q != nil && q.over(s.now) {
		s.closeWhenEmpty(q)
		q = nil
	}
	if q == nil {
		q = &queue{name: name, reversed: reverseLabels(name)}
		q.settings.version = -1
		s.queues[name] = q
		s.queueNames.Set(q.reversed, q)
	}
	return q
}

// reverseLabels turns www.example.com into com.example.www.
func reverseLabels(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// operatorUntil is until when operators hold the queue; 0 when none does.
func (q *queue) operatorUntil() int64 { return max(gateUntil(q.operator), gateUntil(q.paused)) }

// gateUntil is the end of an operator's gate; 0 when there is none.
func gateUntil(gate *dispatch.Gate) int64 {
	switch {
	case gate == nil:
		return 0
	case gate.Until.IsZero():
		return infinite
	default:
		return until(gate.Until)
	}
}

// queueGate is the maximum over the queue's gates: when it can be granted from.
func (s *shard) queueGate(q *queue) int64 {
	set := s.settingsOf(q)
	// Further ahead, the clock was stepped back.
	q.nextGrant = min(q.nextGrant, s.nowEnd+set.longestDelay)
	if set.Paused || set.Deny || q.inFlight >= int64(set.MaxInFlight) {
		return infinite
	}
	return max(q.nextGrant, q.blocked, q.operatorUntil())
}

// closeWhenEmpty deletes the queue when it holds nothing and no gate stands;
// with a gate that ends, it is deleted then.
func (s *shard) closeWhenEmpty(q *queue) {
	if q.idleUntil != 0 {
		s.idleQueues.remove(q.idleUntil, q)
		q.idleUntil = 0
	}
	if q.waiting > 0 || q.inFlight > 0 {
		return
	}
	switch gates := max(q.nextGrant, q.blocked, q.operatorUntil()); {
	case gates <= s.now:
		s.deleteQueue(q)
	case gates != infinite:
		q.idleUntil = gates
		s.idleQueues.insert(gates, q)
	}
}

func (s *shard) deleteQueue(q *queue) {
	for _, qp := range q.pools {
		qp.remove()
	}
	q.gone = true
	delete(s.queues, q.name)
	s.queueNames.Delete(q.reversed)
}

// closeIdleQueues deletes at most limit queues that only a gate kept.
func (s *shard) closeIdleQueues(limit int) {
	for q := range s.idleQueues.due(s.now, limit) {
		s.closeWhenEmpty(q)
	}
}

// existing finds a queue that holds something or has a gate; nil: there is none.
func (s *shard) existing(name string) *queue {
	if q := s.queues[name]; q != nil {
		if s.closeWhenEmpty(q); !q.gone {
			return q
		}
	}
	return nil
}

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
		gates = append(gates, dispatch.Gate{Kind: dispatch.GateHostBlocked, Until: instant(q.blocked), Cause: copyCause(q.cause)})
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
