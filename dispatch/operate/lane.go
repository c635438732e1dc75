package operate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// lanesExplained is of how many lanes with due tasks an explanation says what holds them.
const lanesExplained = 5

// dueLanes are lanes with due tasks, and what holds the first of each.
type dueLanes struct {
	dispatch.DueLanes
	lanes []dueLane
	pools bool           // they are of several, which are told
	next  *dispatch.Task // the one due first elsewhere, where tasks are due in no lane
}

// dueLane is one that is looked into.
type dueLane struct {
	first *dispatch.Task
	due   int64
	pool  string // of its source; only of queues
	holds []Held
}

// dueLanes looks for lanes of a source or queue in which tasks are due.
func (o *Operator) dueLanes(ctx context.Context, filter dispatch.TaskFilter) (*dueLanes, error) {
	found, err := o.store.DueLanes(ctx, filter, lanesExplained)
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
	first, _, err := o.store.Tasks(ctx, ids, true)
	if err != nil {
		return nil, fmt.Errorf("read the first tasks of lanes: %w", err)
	}
	if len(found.Lanes) == 0 && len(first) > 0 {
		due.next = first[0]
	}
	for i, lane := range found.Lanes {
		if t := first[i]; t != nil && t.State.Waiting() { // not taken since
			due.lanes = append(due.lanes, dueLane{first: t, due: lane.Due})
		}
	}
	return due, nil
}

// firstTask is one that is due, else the one that is due next; nil: nothing waits.
func (l *dueLanes) firstTask() *dispatch.Task {
	if len(l.lanes) > 0 {
		return l.lanes[0].first
	}
	return l.next
}

// only reports whether nothing is due but perhaps one task.
func (l *dueLanes) only(t *dispatch.Task) bool {
	if l.Due == 0 {
		return l.Looked == l.All
	}
	return l.Due == 1 && len(l.lanes) == 1 && l.lanes[0].due == 1 && t != nil && l.lanes[0].first.ID == t.ID
}

// cut reports whether there are lanes of which nobody looked what holds them.
func (l *dueLanes) cut() bool { return l.Due > lanesExplained || l.Looked < l.All }

// sourceHolds finds the pool of a lane, and what holds it beside its queue and pool: holds
// on its source, and that no collector takes tasks of that. Of a source that is gone
// there is nothing to tell.
func (o *Operator) sourceHolds(ctx context.Context, lane *dueLane, now time.Time) error {
	t := lane.first
	source, err := o.keptSource(ctx, t.SourceID)
	if err != nil || !owns(source, t) {
		return err
	}
	lane.pool = source.Spec.Pool
	lane.holds = append(lane.holds, holdsOn(source, now)...)
	all := wanted{pool: source.Spec.Pool, queue: t.Queue}
	own := all
	own.source = source.ID
	found, err := o.takers(ctx, []wanted{all, own}, now)
	if len(found[all].gates) == 0 {
		lane.holds = append(lane.holds, own.holds(found[own])...)
	}
	return err
}

// inQueues says in which queues tasks of a source are due.
func (l *dueLanes) inQueues() string {
	return l.tell("tasks of it are due in", "queue", func(t *dispatch.Task) string { return t.Queue })
}

// ofSources says of which sources tasks are due in a queue.
func (l *dueLanes) ofSources() string {
	return l.tell("tasks are due in it of", "source", func(t *dispatch.Task) string { return t.SourceID })
}

// lanesRoom is what the lanes that are named may take of a note, which is MaxMessageLength
// at most; the rest of it are numbers and words, of which there are always the same.
const lanesRoom = bounds.MaxMessageLength - 256

// tell says which lanes were looked into, as far as there is room, what holds them, and how
// many more there are.
func (l *dueLanes) tell(what, lane string, name func(*dispatch.Task) string) string {
	var parts []string
	for i, room := 0, lanesRoom; i < len(l.lanes); i++ {
		one := &l.lanes[i]
		held := "in their turn"
		if len(one.holds) > 0 {
			held = "held by " + kindsOf(one.holds)
		}
		of := ""
		if l.pools && one.pool != "" {
			of = " of pool " + one.pool
		}
		part := fmt.Sprintf("%s (%s%s, %s)", name(one.first), counted(one.due, "task"), of, held)
		if room -= len(part) + len(", "); room < 0 && i > 0 {
			break
		}
		parts = append(parts, part)
	}
	text := fmt.Sprintf("%s %s: %s", what, counted(l.Due, lane), strings.Join(parts, ", "))
	if len(parts) == 0 {
		text = strings.TrimSuffix(text, ": ")
	}
	if unnamed := len(l.lanes) - len(parts); unnamed > 0 {
		text += fmt.Sprintf("; %d more with long names were looked into", unnamed)
	}
	if more := l.Due - int64(len(l.lanes)); more > 0 && len(l.lanes) > 0 {
		text += fmt.Sprintf("; %d more were not looked into", more)
	}
	if rest := l.All - l.Looked; rest > 0 {
		text += fmt.Sprintf("; in %s of it was not looked whether any are due", counted(rest, lane))
	}
	return text
}

// kindsOf names the gates that hold, each once.
func kindsOf(holds []Held) string {
	var kinds []string
	seen := make(map[dispatch.GateKind]bool)
	for _, h := range holds {
		if !seen[h.Kind] {
			seen[h.Kind] = true
			kinds = append(kinds, string(h.Kind))
		}
	}
	return strings.Join(kinds, ", ")
}
