package memstore

import (
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// queueGate is the maximum over the queue's gates: when it can be granted from.
func (s *shard) queueGate(q *queue) int64 {
	set := s.settingsOf(q)
	// Further ahead, the clock was stepped back.
	q.nextGrant = min(q.nextGrant, s.nowEnd()+set.longestDelay)
	if set.Paused || set.Deny || q.inFlight >= int64(set.MaxInFlight) {
		return infinite
	}
	return q.kept()
}

// kept is until when gates hold the queue, and keep it when it is empty.
func (q *queue) kept() int64 {
	return max(q.nextGrant, q.blocked, gateUntil(q.operator), gateUntil(q.paused))
}

// pausedUntil is the end of a pool's pause; 0 when there is none.
func (s *shard) pausedUntil(pool string) int64 {
	gate, ok := s.paused[pool]
	if !ok {
		return 0
	}
	return gateUntil(&gate)
}

// everyQueue is the pattern that matches every queue.
const everyQueue = "*"

// settingsOf resolves the settings of a queue.
func (s *shard) settingsOf(q *queue) *settings {
	if q.settings.version != s.rulesVersion {
		q.settings = s.resolve(q.name)
		q.settings.pace(q.asked)
	}
	return &q.settings
}

// pace takes in what the host asks for.
func (set *settings) pace(asked time.Duration) {
	set.paced = set.Paced(asked)
	set.longestDelay = span(longestDelay(set.paced))
}

func (s *shard) resolve(queueName string) settings {
	set := settings{QueueSettings: dispatch.DefaultQueueSettings(), version: s.rulesVersion}
	if len(s.settings) == 0 {
		return set
	}
	for _, name := range dispatch.SettingsNames(queueName) {
		if filed, ok := s.settings[name]; ok {
			set.QueueSettings, set.name = filed.Settings, name
			set.filed, set.pausedBy = filed, filed
			break
		}
	}
	if all, ok := s.settings[everyQueue]; ok && all.Settings.Paused && !set.Paused {
		// The emergency stop holds whatever longer patterns say.
		set.Paused, set.pausedBy = true, all
	}
	return set
}

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
	q := s.existing(name)
	if q == nil {
		q = &queue{name: name, reversed: reverseLabels(name)}
		q.settings.version = -1
		s.queues[name] = q
		s.queueNames.Set(q.reversed, q)
	}
	return q
}

// existing finds a queue that holds something or has a gate; nil: there is none.
func (s *shard) existing(name string) *queue {
	q := s.queues[name]
	if q != nil && q.over(s.now) {
		s.closeWhenEmpty(q)
		return nil
	}
	return q
}

// reverseLabels turns www.example.com into com.example.www.
func reverseLabels(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
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
	switch kept := q.kept(); {
	case kept <= s.now:
		for _, qp := range q.pools {
			qp.moveTo(place{})
		}
		q.gone = true
		delete(s.queues, q.name)
		s.queueNames.Delete(q.reversed)
	case kept != infinite:
		q.idleUntil = kept
		s.idleQueues.insert(kept, q)
	}
}

// closeIdleQueues deletes at most limit queues that only a gate kept.
func (s *shard) closeIdleQueues(limit int) {
	for q := range s.idleQueues.due(s.now, limit) {
		s.closeWhenEmpty(q)
	}
}

func (qp *queuePool) moveTo(to place) {
	if qp.place != to {
		qp.pool.move(qp, qp.place, to)
		qp.place = to
	}
}

// part finds the queue's part in a pool; nil when it has none.
func (q *queue) part(p *pool) *queuePool {
	for _, qp := range q.pools {
		if qp.pool == p {
			return qp
		}
	}
	return nil
}

// in gives the queue's part in a pool.
func (q *queue) in(p *pool) *queuePool {
	qp := q.part(p)
	if qp == nil {
		qp = &queuePool{queue: q, pool: p, sooner: infinite}
		q.pools = append(q.pools, qp)
	}
	return qp
}
