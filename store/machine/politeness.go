package machine

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// queueGate is the maximum over the queue's gates and holds: when it can be granted from.
func (s *Shard) queueGate(q *queue) int64 {
	set := s.settingsOf(q)
	if q.inFlight >= int64(set.MaxInFlight) {
		return ms.Infinite
	}
	return max(s.nextGrantOf(q), q.blocked, set.heldUntil)
}

// nextGrantOf is the queue's next grant, unless it is further ahead than it can be: then the clock was stepped back.
func (s *Shard) nextGrantOf(q *queue) int64 {
	return min(q.nextGrant, s.nowEnd()+s.settingsOf(q).longestDelay)
}

// clampNextGrant corrects the next grant of the queue of a part after a step of the clock: the other parts stand where it was.
func (s *Shard) clampNextGrant(of *queuePool) {
	q := of.queue
	next := s.nextGrantOf(q)
	if next == q.nextGrant {
		return
	}
	q.nextGrant = next
	for qp := range q.parts() {
		qp.dirty = qp.dirty || qp != of
	}
}

// kept is until when the queue's own gates hold it, and keep it if it is empty.
func (q *queue) kept() int64 { return max(q.nextGrant, q.blocked) }

// hasGates reports whether there is something to keep of the queue beside its tasks.
func (q *queue) hasGates(now int64) bool {
	return q.nextGrant > now || q.blocked != 0 || q.asked != 0 || !q.trouble.none()
}

// none reports whether nothing of it decides anything.
func (t *trouble) none() bool {
	return t == nil || t.blockStep == 0 && t.cause == nil && len(t.failedURLs) == 0
}

// settingsVersion rises with the rules and with the holds.
func (s *Shard) settingsVersion() int64 { return s.rulesVersion + s.holdsVersion }

// settingsOf resolves the settings of a queue.
func (s *Shard) settingsOf(q *queue) *settings {
	if q.settings == nil || q.settings.version != s.settingsVersion() {
		s.pace(q, s.resolve(q.name))
	}
	return q.settings
}

// pace gives a queue its settings, with what its host asks for.
func (s *Shard) pace(q *queue, set settings) {
	set.paced = set.Paced(q.asked)
	set.longestDelay = ms.Span(longestDelay(set.paced))
	shared := s.resolved[set]
	if shared == nil {
		if s.resolved == nil || s.resolvedOf != set.version || len(s.resolved) > maxResolved {
			s.resolved, s.resolvedOf = make(map[settings]*settings), set.version
		}
		shared = &set
		s.resolved[set] = shared
	}
	q.settings = shared
}

// maxResolved bounds the different settings that queues share.
const maxResolved = 1000

func (s *Shard) resolve(queueName string) settings {
	set := settings{QueueSettings: dispatch.DefaultQueueSettings(), version: s.settingsVersion()}
	if len(s.settings)+len(s.held) == 0 {
		return set
	}
	for _, name := range dispatch.SettingsNames(queueName) {
		if filed, ok := s.settings[name]; ok && set.name == "" {
			set.QueueSettings, set.name = filed.Settings, name
		}
		set.heldUntil = max(set.heldUntil, s.held[name])
	}
	return set
}

// queueOf is the queue of the lane; it is made when it does not exist.
func (s *Shard) queueOf(l *lane) *queue {
	if l.q == nil || l.q.gone || l.q.over(s.now) {
		l.q = s.openQueue(l.queueName)
	}
	return l.q
}

// over reports whether the queue holds nothing, and the gates that kept it have
// ended.
func (q *queue) over(now int64) bool { return q.idleUntil != 0 && q.idleUntil <= now }

// openQueue finds the queue, or makes it.
func (s *Shard) openQueue(name string) *queue {
	q := s.existing(name)
	if q == nil {
		q = &queue{name: name}
		s.addQueue(q)
	}
	return q
}

func (s *Shard) addQueue(q *queue) {
	s.queues.add(q)
	s.queueNames.Insert(0, namedQueue{q})
}

// standing finds a queue that holds something or has a gate, for a read; nil: there is none.
func (s *Shard) standing(name string) *queue {
	q := s.queues.get(text(name))
	if q != nil && q.over(s.now) {
		return nil
	}
	return q
}

// existing finds a queue that holds something or has a gate, and deletes another; nil: there is none.
func (s *Shard) existing(name string) *queue {
	q := s.queues.get(text(name))
	if q != nil && q.over(s.now) {
		s.closeWhenEmpty(q)
		return nil
	}
	return q
}

// ReverseLabels turns www.example.com into com.example.www.
func ReverseLabels(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// reversedBefore orders names by their reversed labels.
func reversedBefore(a, b string) bool {
	for {
		i, j := strings.LastIndexByte(a, '.'), strings.LastIndexByte(b, '.')
		labelA, labelB := a[i+1:], b[j+1:]
		switch {
		case labelA != labelB:
			return dotted(labelA, i >= 0) < dotted(labelB, j >= 0)
		case j < 0:
			return false
		case i < 0:
			return true
		}
		a, b = a[:i], b[:j]
	}
}

// dotted is a label as it stands in a reversed name.
func dotted(label string, more bool) string {
	if more {
		return label + "."
	}
	return label
}

// closeWhenEmpty deletes the queue when it holds nothing and no gate stands;
// with a gate that ends, it is deleted then.
func (s *Shard) closeWhenEmpty(q *queue) {
	if q.idleUntil != 0 {
		s.idleQueues.Remove(q.idleUntil, q)
		q.idleUntil = 0
	}
	if q.waiting > 0 || q.inFlight > 0 {
		return
	}
	switch kept := q.kept(); {
	case kept <= s.now:
		for qp := range q.parts() {
			s.moveQueue(qp, place{})
		}
		s.passHour(q)
		s.removeQueue(q)
		s.removed(q)
	case kept != ms.Infinite:
		q.idleUntil = kept
		s.idleQueues.Insert(kept, q)
	}
}

func (s *Shard) removeQueue(q *queue) {
	q.gone = true
	if q.hour != nil {
		q.hour.leave()
	}
	s.setBlocked(q, 0)
	s.queues.remove(q.key())
	s.queueNames.Remove(0, namedQueue{q})
}

// closeIdleQueues deletes at most limit queues that only a gate kept.
func (s *Shard) closeIdleQueues(limit int) {
	for q := range s.idleQueues.Due(s.now, limit) {
		s.closeWhenEmpty(q)
	}
}

// moveQueue takes the queue to another place in a pool.
func (s *Shard) moveQueue(qp *queuePool, to place) {
	if qp.place != to {
		qp.pool.move(qp, qp.place, to)
		qp.pool.counts[qp.stands]--
		qp.pool.counts[to.stands]++
		qp.place = to
	}
	grantable := int32(0)
	if to.stands == open {
		grantable = s.grantableIn(qp)
	}
	qp.pool.grantable += int64(grantable - qp.grantable)
	qp.grantable = grantable
}

// countedLanes bounds the lanes of a queue whose tasks are counted as grantable.
const countedLanes = 8

// grantableIn is how many tasks of an open queue could be granted at once: one if it has a delay.
func (s *Shard) grantableIn(qp *queuePool) int32 {
	set := s.settingsOf(qp.queue)
	room := int64(set.MaxInFlight) - qp.queue.inFlight
	if set.paced.MinDelay > 0 || room <= 1 {
		return 1
	}
	tasks, looks := int64(0), 0
	for e := range qp.open.From(0) {
		tasks += int64(e.Value.ready.Len())
		if looks++; tasks >= room || looks == countedLanes {
			break
		}
	}
	return int32(min(max(tasks, 1), room)) //nolint:gosec // bounds.MaxInFlight
}

// part finds the queue's part in a pool; nil when it has none.
func (q *queue) part(p *pool) *queuePool {
	for qp := range q.parts() {
		if qp.pool == p {
			return qp
		}
	}
	return nil
}

// parts are the queue's parts in its pools. They can become more meanwhile.
func (q *queue) parts() iter.Seq[*queuePool] {
	return func(yield func(*queuePool) bool) {
		if q.first.pool == nil {
			return
		}
		for qp := &q.first; qp != nil; qp = qp.next {
			if !yield(qp) {
				return
			}
		}
	}
}

// partIn gives the queue's part in a pool.
func (s *Shard) partIn(q *queue, p *pool) *queuePool {
	qp := q.part(p)
	if qp != nil {
		return qp
	}
	qp = &q.first
	if qp.pool != nil {
		for qp.next != nil {
			qp = qp.next
		}
		qp.next = new(queuePool)
		qp = qp.next
	}
	qp.queue, qp.pool, qp.sooner = q, p, ms.Infinite
	return qp
}

// The arithmetic of dispatch/scheduling.md.

// behindRank is the rank of a task that is behind: the last in its lane.
const behindRank = 20

// rankOf orders tasks within a lane: priority first, then recurring tasks before
// those they led to. Lower goes first; 0 to 19.
func rankOf(priority int, recurring bool) int {
	rank := (bounds.MaxPriority - priority) * 2
	if !recurring {
		rank++
	}
	return rank
}

// lanePriority is the priority with which a lane competes in its queue and
// pool: the source's, shifted by how far the task at the lane's head is from
// [dispatch.DefaultPriority], within 0 to [bounds.MaxPriority]. So changing a source's priority
// moves its lanes and touches no task.
func lanePriority(source, head int) int {
	return min(max(source+head-dispatch.DefaultPriority, 0), bounds.MaxPriority)
}

// nextGrantAfterReport is the earliest next grant of a queue after a report: the latest of prev (P6), min_delay from
// the start of the request, and delay_factor times its duration from now. If the duration is unknown (0), min_delay
// counts from now.
func nextGrantAfterReport(now, prev time.Time, s dispatch.QueueSettings, fetch time.Duration) time.Time {
	next := latest(prev, now.Add(s.MinDelay-fetch))
	if fetch > 0 && s.DelayFactor > 0 {
		delay := time.Duration(s.DelayFactor * float64(fetch)).Truncate(time.Millisecond)
		next = latest(next, now.Add(min(delay, longestAdaptiveDelay(s))))
	}
	return next
}

// firstBlock is the first automatic block of a queue after a failure of its host that
// named no Retry-After; each further one doubles.
const firstBlock = 10 * time.Second

// maxFailedURLs different URLs of a queue that failed since its host last answered block it.
const maxFailedURLs = 3

// urlFailed notes the hash of a URL that failed, and reports whether there are enough to block the host.
func (q *queue) urlFailed(url uint32) bool {
	t := q.suffer()
	if len(t.failedURLs) < maxFailedURLs && !slices.Contains(t.failedURLs, url) {
		t.failedURLs = append(t.failedURLs, url)
	}
	return len(t.failedURLs) == maxFailedURLs
}

// block blocks the queue's host for a while.
func (s *Shard) block(q *queue, retryAfter time.Duration) {
	t := q.suffer()
	if q.blocked <= s.now {
		t.blockedAt = s.now
	}
	blocked, step := blockAfter(ms.Time(s.now), ms.Time(q.blocked), t.blockStep,
		s.settingsOf(q).QueueSettings, retryAfter.Truncate(time.Millisecond))
	t.blockStep = step
	s.setBlocked(q, ms.Of(blocked))
}

// setBlocked sets the end of the automatic block; 0: there is none.
func (s *Shard) setBlocked(q *queue, until int64) {
	if q.blocked != 0 {
		s.blocks.Remove(q.blocked, q)
	}
	if q.blocked = until; until != 0 {
		s.blocks.Insert(until, q)
	}
}

// blockAfter is the automatic block of a queue after its host failed. The first failure outside a block begins one:
// twice as long as the last one, or as long as the host asked for. Failures during a block only extend it to the time
// that the host asks for.
func blockAfter(now, until time.Time, step int, s dispatch.QueueSettings, retryAfter time.Duration) (time.Time, int) {
	if until.After(now) {
		return latest(until, now.Add(min(retryAfter, s.MaxBlock))), step
	}
	step++
	length := retryAfter
	if length <= 0 {
		// 30 doublings of 10 s are 340 years; max_block is at most days.
		length = firstBlock << min(step-1, 30)
	}
	return now.Add(min(length, s.MaxBlock)), step
}

// longestDelay is the longest possible time to next_grant by these settings. If next_grant is later, the store's clock
// was stepped back.
func longestDelay(s dispatch.QueueSettings) time.Duration {
	if s.DelayFactor > 0 {
		return max(s.MinDelay, longestAdaptiveDelay(s))
	}
	return s.MinDelay
}

func longestAdaptiveDelay(s dispatch.QueueSettings) time.Duration {
	if s.MaxDelay > 0 {
		return s.MaxDelay
	}
	return bounds.MaxMinDelay
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
