package machine

import (
	"iter"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// QueueNamed is a queue; nil: there is none.
func (s *Shard) QueueNamed(name string) *dispatch.Queue {
	if q := s.standing(name); q != nil {
		return s.describe(q)
	}
	return nil
}

// describe is the queue as a caller of the store sees it.
func (s *Shard) describe(q *queue) *dispatch.Queue {
	set, t := s.settingsOf(q), q.troubles()
	d := &dispatch.Queue{
		Name: q.name, Settings: set.QueueSettings, SettingsName: set.name,
		QueueDelay: q.asked, Waiting: q.waiting, Leased: q.inFlight, BlockStep: t.blockStep,
	}
	for qp := range q.parts() {
		if qp.len() > 0 {
			d.Pools = append(d.Pools, qp.pool.name)
		}
	}
	slices.Sort(d.Pools)
	if gate := s.queueGate(q); gate > s.now && gate != ms.Infinite {
		d.NextGrant = ms.Time(gate)
	}
	d.Gates = s.gatesOf(q, set)
	return d
}

// gatesOf lists the gates of its own that hold the queue now.
func (s *Shard) gatesOf(q *queue, set *settings) []dispatch.Gate {
	var gates []dispatch.Gate
	if next := s.nextGrantOf(q); next > s.now {
		gates = append(gates, set.MinDelayGate(ms.Time(next), q.asked))
	}
	if q.blocked > s.now {
		gates = append(gates, dispatch.Gate{Kind: dispatch.GateHostBlocked, Until: ms.Time(q.blocked), By: dispatch.HoldWaggle, Time: ms.Time(q.troubles().blockedAt), Cause: clone(q.troubles().cause)})
	}
	if q.inFlight >= int64(set.MaxInFlight) {
		gates = append(gates, set.MaxInFlightGate(q.inFlight))
	}
	return gates
}

// namesFrom are the queues from a reversed name on, in the order of such names.
func (s *Shard) namesFrom(reversed string) iter.Seq2[string, *queue] {
	return func(yield func(string, *queue) bool) {
		behind := func(q namedQueue) bool { return ReverseLabels(q.name) >= reversed }
		for e := range s.queueNames.After(0, behind) {
			if !yield(ReverseLabels(e.Value.name), e.Value.queue) {
				return
			}
		}
	}
}

// ListQueues lists at most limit queues of the shard.
func (s *Shard) ListQueues(suffix, after string, limit int) (found []*dispatch.Queue) {
	begin := ""
	if after != "" {
		begin = ReverseLabels(after) + "\x00"
	}
	collect := func(prefix string) {
		for reversed, q := range s.namesFrom(max(begin, prefix)) {
			if len(found) >= limit || !strings.HasPrefix(reversed, prefix) {
				return
			}
			if !q.over(s.now) {
				found = append(found, s.describe(q))
			}
		}
	}
	if suffix == "" {
		collect("")
		return found
	}
	// The name itself, then all below it: names like example-x.com lie between.
	exact := ReverseLabels(suffix)
	if q := s.standing(suffix); q != nil && exact >= begin && limit > 0 {
		found = append(found, s.describe(q))
	}
	collect(exact + ".")
	return found
}

// oldestLooks limits how many leases are read to find the oldest ones.
const oldestLooks = 20_000

// EachPool gives what the shard has of each pool that has queues with waiting tasks or leases, in no order.
func (s *Shard) EachPool(each func(dispatch.Pool)) {
	oldest, looks := make(map[*pool]int64, 1), 0
	for e := range s.leases.From(0) {
		if looks++; looks > oldestLooks {
			break
		}
		if r := e.Value; r.lease != nil {
			p := r.lane.source.pool
			if granted, ok := oldest[p]; !ok || r.lease.granted < granted {
				oldest[p] = r.lease.granted
			}
		}
	}
	for name, p := range s.pools {
		granted, leased := oldest[p]
		if p.len() == 0 && !leased {
			continue
		}
		due := p.wait.UpTo(s.now)
		of := dispatch.Pool{
			Name: name, Open: int64(p.open.Len() + due), Waiting: int64(p.wait.Len() - due + p.counted()), Grantable: p.grantable + int64(due),
		}
		if since, ok := p.openSince(); ok {
			of.OldestGrantable = ms.Duration(max(s.now-since, 0))
		}
		if leased {
			of.OldestLease = ms.Duration(max(s.now-granted, 0))
		}
		each(of)
	}
}

// openSince is since when a queue of the pool could be granted from without a turn: of all such queues, the one that waits longest.
func (p *pool) openSince() (since int64, ok bool) {
	if first, is := p.open.oldest(); is {
		since, ok = first.Score&sinceMask, true
	}
	if due := p.wait.FirstScore(); due != ms.Infinite && (!ok || due < since) {
		return due, true
	}
	return since, ok
}
