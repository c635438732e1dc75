package machine

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// The last hour of the queues that were used last is in memory only, and is no item: a report would put some hundred bytes more into
// its group, and a new owner has a new hour soon enough. So a load has none, and a standby makes none.

// hours are the last hours of queues.
type hours struct {
	of map[string]*queueHour
	// last is the one that was used last of a ring in the order of use: last.newer was used longest ago.
	last *queueHour
}

// queueHour is the last hour of a queue, in less than 2 KB. It is there longer than the queue. What each grant and report counts in is
// together at its begin.
type queueHour struct {
	// at is the instant until which delays and blocks are counted, used the number of the interval in which it was used last.
	at      int64
	used    uint32
	current span
	minutes [2]minute // by their number
	// past are the intervals before the current one, by their number; nil: there is none.
	past  *[bounds.QueueIntervals]span
	queue *queue // whose hour this is; nil: it is gone
	begun int64

	name         string
	newer, older *queueHour
}

// span is what a queue did in one interval.
type span struct {
	number             uint32 // of the interval since 1970
	granted, succeeded uint32
	failed             [dispatch.ScopeURL + 1]uint32
	expired, settled   uint32
	fetches            uint32 // reports with a duration
	fetched            uint64 // their sum, in ms
	delayed, blocked   uint32 // in ms
}

// minute is what a queue did in one minute.
type minute struct{ number, settled, failed uint32 }

const spanMillis = int64(bounds.QueueInterval / time.Millisecond)

// hourOfQueue is the last hour of a queue whose gates are about to change; nil: none is kept here.
func (s *Shard) hourOfQueue(q *queue) *queueHour {
	h := q.hour
	if h == nil {
		if h = s.hourOf(q.name); h == nil {
			return nil
		}
		q.hour, h.queue = h, q
	}
	h.pass(s.now, q)
	if number := uint32(h.at / spanMillis); h.used != number {
		h.used = number
		h.turn(number)
		s.hours.use(h)
	}
	return h
}

// hourOf is the last hour of a queue, which is made if there is room, or if that of another one was not used in the interval under
// way; nil: there is none. So more queues than are kept do not take turns.
func (s *Shard) hourOf(name string) *queueHour {
	if h := s.hours.of[name]; h != nil || s.Hours == 0 {
		return h
	}
	var h *queueHour
	if len(s.hours.of) < s.Hours {
		h = new(queueHour)
	} else {
		if h = s.hours.last.newer; h.used == uint32(s.now/spanMillis) {
			return nil
		}
		delete(s.hours.of, h.name)
		s.hours.unlink(h)
		h.leave()
	}
	*h = queueHour{name: name, at: s.now, begun: s.now, current: span{number: uint32(s.now / spanMillis)}}
	if s.hours.of == nil {
		s.hours.of = make(map[string]*queueHour)
	}
	s.hours.of[name] = h
	return h
}

// FollowHours goes on with the last hours that the shard had which this one replaces. They let go of its queues, and these of all that it
// has in memory.
func (s *Shard) FollowHours(replaced *Shard) {
	s.Hours, s.hours = replaced.Hours, replaced.hours
	for _, h := range s.hours.of {
		h.leave()
	}
}

// use makes an hour the one that was used last: once an interval, since a move in the ring costs more than what it counts.
func (t *hours) use(h *queueHour) {
	if t.last == h {
		return
	}
	t.unlink(h)
	if t.last == nil {
		h.newer, h.older = h, h
	} else {
		h.older, h.newer = t.last, t.last.newer
		h.older.newer, h.newer.older = h, h
	}
	t.last = h
}

func (t *hours) unlink(h *queueHour) {
	if h.newer == nil {
		return
	}
	if t.last == h {
		t.last = h.older
	}
	if t.last == h {
		t.last = nil
	}
	h.older.newer, h.newer.older = h.newer, h.older
	h.newer, h.older = nil, nil
}

// leave parts it from its queue.
func (h *queueHour) leave() {
	if h.queue != nil {
		h.queue.hour, h.queue = nil, nil
	}
}

// turn begins the interval of that number.
func (h *queueHour) turn(number uint32) {
	if h.current.number == number {
		return
	}
	if h.past == nil {
		h.past = new([bounds.QueueIntervals]span)
	}
	h.past[h.current.number%bounds.QueueIntervals] = h.current
	h.current = span{number: number}
}

// minute is the one under way.
func (h *queueHour) minute() *minute {
	number := uint32(h.at / time.Minute.Milliseconds())
	p := &h.minutes[number%2]
	if p.number != number {
		*p = minute{number: number}
	}
	return p
}

// pass counts, until now, how long the queue was delayed and blocked; nil: it was not. While the clock is behind, nothing passes.
func (h *queueHour) pass(now int64, q *queue) {
	if now < h.at-bounds.QueueIntervals*spanMillis { // stepped back by more than an hour
		h.at, h.begun, h.current, h.minutes, h.past = now, now, span{number: uint32(now / spanMillis)}, [2]minute{}, nil
	}
	if q != nil {
		for from := max(h.at, now-bounds.QueueIntervals*spanMillis); from < min(now, q.kept()); {
			number := from / spanMillis
			end := min((number+1)*spanMillis, now)
			h.turn(uint32(number))
			blocked := min(max(q.blocked, from), end)
			h.current.blocked += uint32(blocked - from)
			h.current.delayed += uint32(min(max(q.nextGrant, blocked), end) - blocked)
			from = end
		}
	}
	h.at = max(h.at, now)
}

// passHour counts the gates of a queue until now, if its last hour is kept.
func (s *Shard) passHour(q *queue) {
	if q.hour != nil {
		q.hour.pass(s.now, q)
	}
}

// reported counts how a lease ended.
func (h *queueHour) reported(t *dispatch.Transition) {
	if h == nil {
		return
	}
	p, failed := &h.current, uint32(0)
	settled := uint32(0)
	if t.State.Settled() {
		settled = 1
	}
	switch t.Result {
	case dispatch.ResultSucceeded:
		p.succeeded++
		settled = 1
	case dispatch.ResultFailed:
		p.failed[scopeOf(t)]++
		failed = 1
	case dispatch.ResultExpired, dispatch.ResultMaxHold, dispatch.ResultReplaced:
		p.expired++
		failed = 1
	case dispatch.ResultNone, dispatch.ResultReleased, dispatch.ResultGivenBack, dispatch.ResultRevoked, dispatch.ResultCanceled, dispatch.ResultHeld:
	}
	p.settled += settled
	now := h.minute()
	now.settled, now.failed = now.settled+settled, now.failed+failed
	if fetch := t.Queue.FetchDuration.Milliseconds(); fetch > 0 {
		p.fetches++
		p.fetched += uint64(fetch)
	}
}

// scopeOf is the scope of a failure.
func scopeOf(t *dispatch.Transition) dispatch.FailureScope {
	switch {
	case t.Queue.Kind == dispatch.QueueBlocked:
		return dispatch.ScopeHost
	case t.LastError == nil:
		return dispatch.ScopeTask
	default:
		return t.LastError.Reason.Scope()
	}
}

// QueueHour is the last hour of a queue, as [dispatch.Queues.QueueHours] gives it.
func (s *Shard) QueueHour(name string) (of dispatch.QueueHour) {
	kept := s.hours.of[name]
	if kept == nil {
		return of
	}
	h := *kept // a read changes nothing
	if h.past != nil {
		past := *h.past
		h.past = &past
	}
	h.pass(s.now, s.queues.get(text(name)))
	last := h.at / spanMillis
	h.turn(uint32(last))
	of.Since = ms.Time(h.begun)
	of.SettledMinute, of.FailedMinute = h.lastMinute()
	for number := last - bounds.QueueIntervals + 1; number <= last; number++ {
		p := h.current
		if number != last {
			if h.past == nil {
				continue
			}
			p = h.past[number%bounds.QueueIntervals]
		}
		if int64(p.number) != number {
			p = span{}
		}
		if of.Intervals == nil && p == (span{number: p.number}) {
			continue
		}
		interval := dispatch.QueueInterval{
			Start: ms.Time(number * spanMillis), Granted: int64(p.granted), Succeeded: int64(p.succeeded), Expired: int64(p.expired), Settled: int64(p.settled),
			Delayed: ms.Duration(int64(p.delayed)), Blocked: ms.Duration(int64(p.blocked)),
			Fetches: int64(p.fetches), FetchTime: ms.Duration(int64(p.fetched)),
		}
		for scope, n := range p.failed {
			interval.Failed[scope] = int64(n)
		}
		of.Intervals = append(of.Intervals, interval)
	}
	return of
}

// lastMinute is what has ended in the last 60 seconds, about: of the minute before the one under way, a part.
func (h *queueHour) lastMinute() (settled, failed int64) {
	now := h.minute()
	before := h.minutes[(now.number+1)%2]
	if before.number+1 != now.number {
		before = minute{}
	}
	part := 1 - float64(h.at%time.Minute.Milliseconds())/float64(time.Minute.Milliseconds())
	return int64(now.settled) + int64(float64(before.settled)*part+.5), int64(now.failed) + int64(float64(before.failed)*part+.5)
}
