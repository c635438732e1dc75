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

// queueHour is the last hour of a queue, in less than 2 KB. It is there longer than the queue.
type queueHour struct {
	name         string
	newer, older *queueHour
	// at is the instant until which delays and blocks are counted, used the number of the interval in which it was used last.
	at    int64
	used  uint32
	spans [bounds.QueueIntervals]span // by their number
}

// span is what a queue did in one interval.
type span struct {
	number             uint32 // of the interval since 1970
	granted, succeeded uint32
	failed             [dispatch.ScopeURL + 1]uint32
	expired            uint32
	fetches            uint32 // reports with a duration
	fetched            uint64 // their sum, in ms
	delayed, blocked   uint32 // in ms
}

const spanMillis = int64(bounds.QueueInterval / time.Millisecond)

// spanOf is the interval under way of a queue, whose gates are about to change; nil: none is kept here.
func (s *Shard) spanOf(q *queue) *span {
	h := q.hour
	if h == nil || h.name != q.name { // another queue has got it
		if h = s.hourOf(q.name); h == nil {
			return nil
		}
		q.hour = h
	}
	h.pass(s.now, q)
	number := uint32(h.at / spanMillis)
	if h.used != number {
		h.used = number
		s.hours.use(h)
	}
	return h.span(number)
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
	}
	*h = queueHour{name: name, at: s.now}
	if s.hours.of == nil {
		s.hours.of = make(map[string]*queueHour)
	}
	s.hours.of[name] = h
	return h
}

// FollowHours goes on with the last hours that the shard had which this one replaces.
func (s *Shard) FollowHours(replaced *Shard) { s.Hours, s.hours = replaced.Hours, replaced.hours }

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

// span is the interval of that number, which is among the last ones.
func (h *queueHour) span(number uint32) *span {
	p := &h.spans[number%bounds.QueueIntervals]
	if p.number != number {
		*p = span{number: number}
	}
	return p
}

// pass counts, until now, how long the queue was delayed and blocked; nil: it was not. While the clock is behind, nothing passes.
func (h *queueHour) pass(now int64, q *queue) {
	if now < h.at-bounds.QueueIntervals*spanMillis { // stepped back by more than an hour
		*h = queueHour{name: h.name, newer: h.newer, older: h.older, at: now, used: h.used}
	}
	if q != nil {
		for from := max(h.at, now-bounds.QueueIntervals*spanMillis); from < min(now, q.kept()); {
			number := from / spanMillis
			end := min((number+1)*spanMillis, now)
			p, blocked := h.span(uint32(number)), min(max(q.blocked, from), end)
			p.blocked += uint32(blocked - from)
			p.delayed += uint32(min(max(q.nextGrant, blocked), end) - blocked)
			from = end
		}
	}
	h.at = max(h.at, now)
}

// passHour counts the gates of a queue until now, if its last hour is kept.
func (s *Shard) passHour(q *queue) {
	if h := q.hour; h != nil && h.name == q.name {
		h.pass(s.now, q)
	}
}

// reported counts how a lease ended.
func (p *span) reported(t *dispatch.Transition) {
	if p == nil {
		return
	}
	switch t.Result {
	case dispatch.ResultSucceeded:
		p.succeeded++
	case dispatch.ResultFailed:
		p.failed[scopeOf(t)]++
	case dispatch.ResultExpired, dispatch.ResultMaxHold, dispatch.ResultReplaced:
		p.expired++
	case dispatch.ResultNone, dispatch.ResultReleased, dispatch.ResultGivenBack, dispatch.ResultRevoked, dispatch.ResultCanceled, dispatch.ResultHeld:
	}
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
func (s *Shard) QueueHour(name string) (of []dispatch.QueueInterval) {
	kept := s.hours.of[name]
	if kept == nil {
		return nil
	}
	h := *kept // a read changes nothing
	h.pass(s.now, s.queues.get(text(name)))
	last := h.at / spanMillis
	for number := last - bounds.QueueIntervals + 1; number <= last; number++ {
		p := h.spans[number%bounds.QueueIntervals]
		if int64(p.number) != number {
			p = span{}
		}
		if of == nil && p == (span{}) {
			continue
		}
		interval := dispatch.QueueInterval{
			Start: ms.Time(number * spanMillis), Granted: int64(p.granted), Succeeded: int64(p.succeeded), Expired: int64(p.expired),
			Delayed: ms.Duration(int64(p.delayed)), Blocked: ms.Duration(int64(p.blocked)),
			Fetches: int64(p.fetches), FetchTime: ms.Duration(int64(p.fetched)),
		}
		for scope, n := range p.failed {
			interval.Failed[scope] = int64(n)
		}
		of = append(of, interval)
	}
	return of
}
