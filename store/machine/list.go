package machine

import (
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// Get is the task with its lock, and with its details if requested; nil: there is none.
func (s *Shard) Get(id dispatch.TaskID, details bool) *dispatch.Task {
	r := s.record(id)
	switch {
	case r == nil:
		return nil
	case !details:
		return s.task(r, noDetails)
	}
	t, src := s.task(r, allDetails), r.lane.source
	if src.gate.Deleted && !src.forgotten {
		t.SourceDeleted = clone(src.deletion)
	}
	if r.waiting() {
		t.Lock = s.tellStray(r)
	}
	return t
}

// ListPlace is a lane and the number of a record in it, or a place in the lease index.
type ListPlace struct {
	Lane, After int64
	ID          string
}

// ListTasks adds tasks to the page, from that place on, which it moves, and reports whether there are more than fit.
func (s *Shard) ListTasks(page *dispatch.TaskPage, bytes *PageBytes, filter dispatch.TaskFilter, at *ListPlace, limit int) (more bool) {
	for _, l := range s.lanesOf(filter).from(at.Lane) {
		if l.number > at.Lane {
			at.Lane, at.After = l.number, 0
		}
		for e := range l.listed.From(at.After + 1) {
			r := e.Value
			wanted := s.known(r) != nil && slices.Contains(filter.States, r.visibleState(s.now))
			more = len(page.Tasks) >= limit || page.Looked >= bounds.MaxLooks || wanted && !bytes.Fits(r.listedBytes())
			if more {
				return true
			}
			page.Looked++
			at.After = e.Score
			if wanted {
				page.Tasks = append(page.Tasks, s.task(r, lastError))
			}
		}
	}
	return false
}

// lanesOf are the lanes that a filter selects.
func (s *Shard) lanesOf(filter dispatch.TaskFilter) laneList {
	src := s.sources.get(text(filter.SourceUID))
	switch {
	case filter.SourceUID == "":
		return s.lanesNamed(filter.Queue)
	case src == nil:
		return nil
	case filter.Queue == "":
		return src.lanes
	}
	if l := s.lanes.get(laneKey{src, filter.Queue}); l != nil {
		return laneList{l}
	}
	return nil
}

// ListLeases adds leased tasks to a list, from that place on, which it moves, and reports whether there are more than fit.
func (s *Shard) ListLeases(leased []*dispatch.Task, bytes *PageBytes, at *ListPlace, limit int) (_ []*dispatch.Task, more bool) {
	behind := func(r *record) bool { return string(r.id()) > at.ID }
	for e := range s.leases.After(at.After, behind) {
		r := e.Value
		if r.lease == nil {
			continue
		}
		if len(leased) >= limit || !bytes.Fits(r.listedBytes()) {
			return leased, true
		}
		leased = append(leased, s.task(r, lastError))
		at.After, at.ID = e.Score, string(r.id())
	}
	return leased, false
}

// DueLanes adds the lanes of the shard to the result; next is the due time of the result's Next so far.
func (s *Shard) DueLanes(found *dispatch.DueLanes, filter dispatch.TaskFilter, limit int, next int64) int64 {
	lanes := s.lanesOf(filter)
	found.All += int64(len(lanes))
	lanes = lanes[:min(len(lanes), bounds.MaxLaneLooks)]
	found.Looked += int64(len(lanes))
	for _, l := range lanes {
		first, ok := l.ready.First()
		if !ok {
			first, ok = l.later.First()
		}
		switch {
		case !ok:
		case first.Value.due <= s.now:
			if found.Due++; len(found.Lanes) < limit {
				due := l.ready.Len() + l.later.UpTo(s.now*32+31)
				found.Lanes = append(found.Lanes, dispatch.DueLane{First: first.Value.id(), Due: int64(due)})
			}
		case first.Value.due < next:
			next, found.Next = first.Value.due, first.Value.id()
		}
	}
	return next
}
