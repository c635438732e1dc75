package memstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// lanesPerPage bounds the lanes that one call of PushSource places.
const lanesPerPage = 500

// takeGate makes the gate the shard's, unless the shard's is newer.
func (s *shard) takeGate(gate dispatch.SourceGate) *source {
	src := s.sources[gate.UID]
	if src == nil {
		s.lastSource++
		src = &source{name: strconv.FormatInt(s.lastSource, 10)}
		src.gate.Version = gate.Version - 1
		s.sources[gate.UID] = src
	}
	if gate.Version <= src.gate.Version {
		return src
	}
	src.gate = gate
	src.heldUntil = until(gate.HeldUntil)
	src.pool = s.pools[gate.Pool]
	if src.pool == nil {
		src.pool = &pool{name: gate.Pool}
		s.pools[gate.Pool] = src.pool
	}
	if gate.Deleted {
		s.forgetLater(src)
	}
	return src
}

// forgetLater keeps a deleted source for CanceledMemory from now on, so that
// what comes late for it is refused.
func (s *shard) forgetLater(src *source) {
	if src.forgetAt != 0 {
		s.forgetSources.remove(src.forgetAt, src)
	}
	src.forgetAt = s.now + span(dispatch.CanceledMemory)
	s.forgetSources.insert(src.forgetAt, src)
}

// forgetSource removes a deleted source that holds nothing.
func (s *shard) forgetSource(src *source) {
	if len(src.lanes) > 0 {
		s.forgetLater(src)
		return
	}
	s.forgetSources.remove(src.forgetAt, src)
	src.forgotten = true
	delete(s.sources, src.gate.UID)
}

// dropLane removes a lane of a deleted source that holds nothing, and so stands
// in no set of its queue.
func (s *shard) dropLane(l *lane) {
	l.leaveQueue()
	s.placeNamed(l, place{})
	delete(s.lanes, laneKey{l.source, l.queueName})
	l.source.lanes = l.source.lanes.without(l)
	if s.lanesIn[l.queueName] = s.lanesIn[l.queueName].without(l); len(s.lanesIn[l.queueName]) == 0 {
		delete(s.lanesIn, l.queueName)
	}
}

// PushSource implements [dispatch.Sources]. A page is the number of the last
// lane that was placed.
func (s *Store) PushSource(ctx context.Context, shard int, gate dispatch.SourceGate, page string) (string, error) {
	var after int64
	if page != "" {
		var err error
		if after, err = strconv.ParseInt(page, 10, 64); err != nil || after < 1 {
			return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
		}
	}
	sh, err := s.enter(ctx, shard)
	if err != nil {
		return "", err
	}
	defer sh.end()
	src := sh.takeGate(gate)
	if gate.Version < src.gate.Version {
		return "", nil
	}
	for n, l := range src.lanes.from(after + 1) {
		if n == lanesPerPage {
			return strconv.FormatInt(l.number-1, 10), nil
		}
		if l.ready.len()+l.later.len() > 0 {
			sh.touch(l)
		}
	}
	return "", nil
}

// DropTasks implements [dispatch.Sources].
func (s *Store) DropTasks(ctx context.Context, shard int, uid string, limit int, why *dispatch.Gate) (int, []dispatch.TaskID, error) {
	sh, err := s.enter(ctx, shard)
	if err != nil {
		return 0, nil, err
	}
	defer sh.end()
	limit = max(min(limit, bounds.MaxTransitions), 1)
	src := sh.sources[uid]
	if src == nil || !src.gate.Deleted {
		return 0, nil, nil
	}
	if why != nil {
		src.deletion = clone(why)
	}
	ended, leased := 0, []dispatch.TaskID(nil)
	for _, l := range slices.Clone(src.lanes) {
		n, met := sh.dropFrom(l, limit-ended, limit-len(leased))
		ended += n
		leased = append(leased, met...)
		if l.listed.Len() == 0 {
			sh.dropLane(l)
		}
		if ended >= limit || len(leased) >= limit {
			break
		}
	}
	return ended, leased, nil
}

// dropFrom ends at most limit tasks of a lane of a deleted source, and returns at most leasedLimit leased ones that
// were not returned before.
func (s *shard) dropFrom(l *lane, limit, leasedLimit int) (ended int, leased []dispatch.TaskID) {
	var drop, kept, over []*record
	l.listed.Scan(func(_ int64, r *record) bool {
		switch {
		case len(drop) >= limit || len(leased) >= leasedLimit:
			return false
		case s.known(r) == nil:
			over = append(over, r)
		case r.state == dispatch.StateLeased:
			if !r.gone && r.cancel != dispatch.CancelSourceDeleted {
				leased = append(leased, r.id)
			}
		case r.state == dispatch.StateCanceled && r.forgetAt != 0 && r.forgetAt <= s.now+span(dispatch.CanceledMemory):
			kept = append(kept, r)
		default:
			drop = append(drop, r)
		}
		return true
	})
	for _, r := range over {
		s.forget(r)
	}
	for _, r := range kept {
		r.unlist()
	}
	for _, r := range drop {
		if r.gone {
			s.dropGhost(r)
			continue
		}
		s.drop(r)
		ended++
	}
	return ended, leased
}

// drop ends a task of a deleted source that waits or has settled.
func (s *shard) drop(r *record) {
	if r.waiting() {
		r.settledAt = s.now
		s.touch(r.lane)
	}
	s.leave(r)
	s.keep(r)
	s.settle(r, dispatch.StateCanceled, dispatch.CanceledMemory)
	r.cancel, r.again = dispatch.CancelNone, false
	r.revision++
	r.unlist()
}

// SourceStatuses implements [dispatch.Sources].
func (s *Store) SourceStatuses(ctx context.Context, uids []string) ([]dispatch.SourceStatus, error) {
	statuses := make([]dispatch.SourceStatus, len(uids))
	err := s.eachShard(ctx, func(sh *shard) {
		for i, uid := range uids {
			src, st := sh.sources[uid], &statuses[i]
			if src == nil {
				continue
			}
			st.Counts = st.Counts.Add(src.counts.visible())
			st.Limited += src.limited
			st.Filtered.Add(src.filtered)
			st.FailuresInARow += src.failures
			st.LastSuccess = latest(st.LastSuccess, instant(src.lastSuccess))
			st.LastFailure = latest(st.LastFailure, instant(src.lastFailure))
		}
	})
	return statuses, err
}

// CountFiltered implements [dispatch.Sources].
func (s *Store) CountFiltered(ctx context.Context, shard int, uid string, filtered dispatch.Filtered) error {
	sh, err := s.enter(ctx, shard)
	if err != nil {
		return err
	}
	defer sh.end()
	if src := sh.sources[uid]; src != nil {
		src.filtered.Add(filtered)
	}
	return nil
}
