package machine

import (
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// ExportGates adds the gates of the sources.
func (s *Shard) ExportGates(gates []dispatch.SourceGate) []dispatch.SourceGate {
	for src := range s.sources.all() {
		gates = append(gates, src.gate)
	}
	return gates
}

// ExportTasks gives a page of the tasks of a shard, and where the next begins; -1: nowhere. With those of a source that
// the shard has forgotten comes its gate.
func (s *Shard) ExportTasks(batch *dispatch.PortableBatch, from int) (next int) {
	bytes := 0
	for {
		r, after, ok := s.taskFrom(from)
		if !ok {
			return -1
		}
		if n := len(batch.Tasks); n == dispatch.MaxPortable || n > 0 && bytes+r.listedBytes() > dispatch.MaxPortableBytes {
			return from
		}
		from = after
		s.export(batch, r)
		bytes += r.listedBytes()
	}
}

// export adds a task, unless it is to be forgotten by now.
func (s *Shard) export(batch *dispatch.PortableBatch, r *record) {
	if s.known(r) == nil {
		return
	}
	if src, n := r.lane.source, len(batch.Gates); src.forgotten && (n == 0 || batch.Gates[n-1].UID != src.gate.UID) {
		batch.Gates = append(batch.Gates, src.gate)
	}
	batch.Tasks = append(batch.Tasks, dispatch.PortableTask{ForgetAt: ms.Time(r.forgetAt())})
	t := &batch.Tasks[len(batch.Tasks)-1]
	s.copyTo(&t.Task, r, allDetails)
	if r.waiting() {
		t.Task.Lock = s.tellStray(r)
	}
	if l := r.lease; l != nil {
		t.Session, t.LockDeleted = l.note.session, l.lockDeleted
	}
}

// ExportApart adds a task that the backend has apart, if that is true.
func (s *Shard) ExportApart(batch *dispatch.PortableBatch, key [16]byte, fields []byte) error {
	if !s.Apart(key) {
		return nil
	}
	var t LoadedTask
	t.Read(fields)
	r, err := s.recalled(&t)
	if err == nil {
		s.export(batch, r)
	}
	return err
}

// endedPlaces is where the places of ended tasks begin, behind those of records.
const endedPlaces = 1 << 40

// taskFrom is the first record from a place on, and the place behind it.
func (s *Shard) taskFrom(place int) (r *record, after int, ok bool) {
	if place < endedPlaces {
		if r, after, ok = s.records.from(place); ok {
			return r, after, true
		}
	}
	e, after, ok := s.ended.from(max(place-endedPlaces, 0))
	if !ok {
		return nil, 0, false
	}
	return e.record(new(record)), endedPlaces + after, true
}

// ExportQueues gives the queues.
func (s *Shard) ExportQueues() (queues []dispatch.PortableQueue) {
	for e := range s.queueNames.From(0) {
		if q := e.Value; !q.over(s.now) {
			queues = append(queues, q.export())
		}
	}
	return queues
}

func (q *queue) export() dispatch.PortableQueue {
	t := q.troubles()
	return dispatch.PortableQueue{
		Name: q.name, NextGrant: ms.Time(q.nextGrant), Blocked: ms.Time(q.blocked), BlockedAt: ms.Time(t.blockedAt),
		BlockStep: t.blockStep, Cause: clone(t.cause), Asked: q.asked, FailedURLs: slices.Clone(t.failedURLs),
	}
}

// ExportTokens adds the used client tokens by their steps.
func (s *Shard) ExportTokens(steps map[int64]map[uint64]struct{}) {
	for step, tokens := range s.used {
		if step < dispatch.TokenStep(ms.Time(s.now))-1 {
			continue
		}
		if steps[step] == nil {
			steps[step] = make(map[uint64]struct{})
		}
		maps.Copy(steps[step], tokens.has)
	}
}

// AddTotals adds what the shard counts.
func (s *Shard) AddTotals(totals *dispatch.PortableTotals) {
	totals.Fence = max(totals.Fence, s.lastFence)
	totals.RulesVersion, totals.HoldsVersion = max(totals.RulesVersion, s.rulesVersion), max(totals.HoldsVersion, s.holdsVersion)
	totals.Granted += s.granted
	totals.Settled += s.settled
	totals.Expired += s.expired
	totals.Orphaned += s.orphaned
	totals.Done += s.counts[dispatch.StateDone]
}
