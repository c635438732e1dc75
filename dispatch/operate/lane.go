package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// lanesExplained bounds the lanes that one explanation examines.
const lanesExplained = 5

// dueLanes are lanes with due tasks, and what holds the first task of each.
type dueLanes struct {
	dispatch.DueLanes
	lanes []dueLane
	next  *dispatch.Task // the earliest task elsewhere, if no lane has a due one
}

// dueLane is a lane that was examined.
type dueLane struct {
	first *dispatch.Task
	due   int64
	pool  string // of its source; only of queues
	holds []Held
}

// dueLanes looks for lanes of a source or queue that have due tasks.
func (s *snapshot) dueLanes(ctx context.Context, filter dispatch.TaskFilter) (*dueLanes, error) {
	found, err := s.store.DueLanes(ctx, filter, lanesExplained)
	if err != nil {
		return nil, fmt.Errorf("look for due lanes: %w", err)
	}
	due := &dueLanes{DueLanes: found}
	var ids []dispatch.TaskID
	for _, lane := range found.Lanes {
		ids = append(ids, lane.First)
	}
	if len(ids) == 0 && found.Next != "" {
		ids = append(ids, found.Next)
	}
	first, _, err := s.store.Tasks(ctx, ids, true)
	if err != nil {
		return nil, fmt.Errorf("read the first tasks of lanes: %w", err)
	}
	if len(found.Lanes) == 0 && len(first) > 0 {
		due.next = first[0]
	}
	for i, lane := range found.Lanes {
		if t := first[i]; t != nil && t.State.Waiting() { // not granted since
			due.lanes = append(due.lanes, dueLane{first: t, due: lane.Due})
		}
	}
	return due, nil
}

// firstTask is a due task, or else the earliest one; nil if no task waits.
func (l *dueLanes) firstTask() *dispatch.Task {
	if len(l.lanes) > 0 {
		return l.lanes[0].first
	}
	return l.next
}

// only reports whether t is the only due task, or no task is due.
func (l *dueLanes) only(t *dispatch.Task) bool {
	if l.Due == 0 {
		return l.Looked == l.All
	}
	return l.Due == 1 && len(l.lanes) == 1 && l.lanes[0].due == 1 && t != nil && l.lanes[0].first.ID == t.ID
}

// cut reports whether some lanes were not examined.
func (l *dueLanes) cut() bool { return l.Due > lanesExplained || l.Looked < l.All }

// addSourceHolds finds the pool of a lane, the holds on its source, and whether no collector takes
// tasks of that source. It adds nothing if the source is deleted.
func (s *snapshot) addSourceHolds(ctx context.Context, lane *dueLane) error {
	t := lane.first
	source, err := s.keptSource(ctx, t.SourceID)
	if err != nil || !owns(source, t) {
		return err
	}
	lane.pool, lane.holds = source.Spec.Pool, s.holdsOn(source)
	all, own := wanted{pool: source.Spec.Pool, queue: t.Queue}, wantedOf(source, t)
	found, err := s.takers(ctx, collectorsLookedAt, []wanted{all, own})
	if len(found[all].gates) == 0 {
		lane.holds = append(lane.holds, own.holds(found[own])...)
	}
	return err
}

// notes has a note for each lane that was examined, and counts the others. A lane is a "queue" of a
// source, or a "source" of a queue.
func (l *dueLanes) notes(kind string, name func(*dueLane) string) (notes []string) {
	for i := range l.lanes {
		lane := &l.lanes[i]
		held := "not held"
		if len(lane.holds) > 0 {
			held = "held by " + kindsOf(lane.holds)
		}
		notes = append(notes, fmt.Sprintf("%s %s: %s due, %s", kind, name(lane), counted(lane.due, "task"), held))
	}
	if more := int(l.Due) - len(l.lanes); more > 0 {
		notes = append(notes, counted(int64(more), "more "+kind)+" with due tasks")
	}
	if rest := l.All - l.Looked; rest > 0 {
		notes = append(notes, counted(rest, "more "+kind)+" not searched for due tasks")
	}
	return notes
}

// kindsOf lists the kinds of gates, each once.
func kindsOf(holds []Held) string {
	var kinds []string
	for _, h := range holds {
		if !slices.Contains(kinds, string(h.Kind)) {
			kinds = append(kinds, string(h.Kind))
		}
	}
	return strings.Join(kinds, ", ")
}

// counted is a number of things.
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
