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
	src := s.sources.get(gate.UID)
	switch {
	case src == nil:
		s.lastSource++
		src = &source{name: strconv.FormatInt(s.lastSource, 10)}
		s.added(src)
		s.sources.add(gate.UID, src)
	case gate.Version <= src.gate.Version:
		return src
	default:
		s.change(src, partBody)
	}
	src.gate = gate
	src.heldUntil = until(gate.HeldUntil)
	src.pool = s.poolNamed(gate.Pool)
	if gate.Deleted {
		s.forgetLater(src)
	}
	return src
}

// forgetLater keeps a deleted source for CanceledMemory from now on, so that
// what comes late for it is refused.
func (s *shard) forgetLater(src *source) {
	s.change(src, partBody)
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
	s.change(src, partBody)
	s.forgetSources.remove(src.forgetAt, src)
	src.forgotten = true
	s.sources.remove(src.gate.UID)
}

// dropLane removes a lane of a deleted source that holds nothing, and so stands
// in no set of its queue.
func (s *shard) dropLane(l *lane) {
	s.change(l, allParts)
	s.leaveQueue(l)
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
	c := pushCommand{gate: gate}
	if page != "" {
		var err error
		if c.after, err = strconv.ParseInt(page, 10, 64); err != nil || c.after < 1 {
			return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
		}
	}
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return "", err
	}
	err = sh.do(ctx, &c)
	return c.next, err
}

// pushCommand is [dispatch.Sources.PushSource].
type pushCommand struct {
	drains
	gate  dispatch.SourceGate
	after int64

	next string
}

func (c *pushCommand) run(s *shard) {
	src := s.takeGate(c.gate)
	if c.gate.Version < src.gate.Version {
		return
	}
	for n, l := range src.lanes.from(c.after + 1) {
		if n == lanesPerPage {
			c.next = strconv.FormatInt(l.number-1, 10)
			return
		}
		if l.ready.len()+l.later.len() > 0 {
			s.touch(l)
		}
	}
}

// DropTasks implements [dispatch.Sources].
func (s *Store) DropTasks(ctx context.Context, shard int, uid string, limit int, why *dispatch.Gate) (int, []dispatch.TaskID, error) {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return 0, nil, err
	}
	c := dropCommand{uid: uid, limit: max(min(limit, bounds.MaxTransitions), 1), why: why}
	err = sh.do(ctx, &c)
	return c.ended, c.leased, err
}

// dropCommand is [dispatch.Sources.DropTasks].
type dropCommand struct {
	uid   string
	limit int
	why   *dispatch.Gate

	ended  int
	leased []dispatch.TaskID
}

func (c *dropCommand) room() (bytes int, grows bool) {
	return smallGroup + 2*c.limit*changedBytes, false
}

func (c *dropCommand) run(s *shard) {
	src := s.sources.get(c.uid)
	if src == nil || !src.gate.Deleted {
		return
	}
	if c.why != nil && (src.deletion == nil || *src.deletion != *c.why) {
		s.change(src, partBody)
		src.deletion = clone(c.why)
	}
	for _, l := range slices.Clone(src.lanes) {
		n, met := s.dropFrom(l, c.limit-c.ended, c.limit-len(c.leased))
		c.ended += n
		c.leased = append(c.leased, met...)
		if l.listed.Len() == 0 {
			s.dropLane(l)
		}
		if c.ended >= c.limit || len(c.leased) >= c.limit {
			break
		}
	}
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
		s.unlist(r)
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
	s.change(r, partState)
	if r.waiting() {
		r.settledAt = s.now
		s.touch(r.lane)
	}
	s.leave(r)
	s.keep(r)
	s.settle(r, dispatch.StateCanceled, dispatch.CanceledMemory)
	r.cancel, r.again = dispatch.CancelNone, false
	r.revision++
	s.unlist(r)
}

// SourceStatuses implements [dispatch.Sources].
func (s *Store) SourceStatuses(ctx context.Context, uids []string) ([]dispatch.SourceStatus, error) {
	statuses := make([]dispatch.SourceStatus, len(uids))
	err := s.readAll(ctx, func(sh *shard) {
		for i, uid := range uids {
			sh.addStatus(uid, &statuses[i])
		}
	})
	return statuses, err
}

// addStatus adds what the shard knows of a source.
func (s *shard) addStatus(uid string, st *dispatch.SourceStatus) {
	src := s.sources.get(uid)
	if src == nil {
		return
	}
	st.Counts = st.Counts.Add(src.counts.visible())
	st.Limited += src.limited
	st.Filtered.Add(src.filtered)
	st.FailuresInARow += src.failures
	st.LastSuccess = latest(st.LastSuccess, instant(src.lastSuccess))
	st.LastFailure = latest(st.LastFailure, instant(src.lastFailure))
}

// CountFiltered implements [dispatch.Sources].
func (s *Store) CountFiltered(ctx context.Context, shard int, uid string, filtered dispatch.Filtered) error {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return err
	}
	return sh.do(ctx, &filteredCommand{uid: uid, filtered: filtered})
}

// filteredCommand is [dispatch.Sources.CountFiltered].
type filteredCommand struct {
	drains
	uid      string
	filtered dispatch.Filtered
}

func (c *filteredCommand) run(s *shard) {
	if src := s.sources.get(c.uid); src != nil {
		s.change(src, partState)
		src.filtered.Add(c.filtered)
	}
}
