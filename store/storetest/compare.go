package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// apply runs one step on all stores, compares, and lets the world see it.
func (m *model) apply(s step) error {
	m.note(s)
	m.world.count(s.name)
	if err := m.make(s); err != nil || len(m.world.touched) == 0 {
		return err
	}
	return m.look()
}

// make runs a step that is noted.
func (m *model) make(s step) error {
	var first, blurred any
	for n := range m.instances {
		answer, err := s.do(&m.instances[n])
		if err != nil {
			return fmt.Errorf("%s failed on the %s store: %w", s.name, m.instances[n].Store.Kind(), err)
		}
		seen := m.blur(answer)
		if n == 0 {
			first, blurred = answer, seen
			continue
		}
		if d := diff(reflect.ValueOf(blurred), reflect.ValueOf(seen), s.name); d != "" {
			return fmt.Errorf("the answer is not the reference's (got, want): %s%s", d, m.differences())
		}
	}
	m.history[len(m.history)-1] += gist(first)
	if s.see == nil {
		return nil
	}
	return s.see(first)
}

// look reads what the last step may have changed.
func (m *model) look() error {
	ids := slices.Compact(slices.Sorted(slices.Values(m.world.touched)))
	m.world.touched = nil
	err := m.make(step{
		name: "look",
		do: func(i *Instance) (any, error) {
			tasks, _, err := i.Store.Tasks(m.ctx, ids, true)
			return tasks, err
		},
		see: func(answer any) error {
			for n, got := range as[[]*dispatch.Task](answer) {
				if err := m.world.changed(ids[n], got); err != nil {
					return err
				}
			}
			return nil
		},
	})
	names := m.world.empty(ids)
	if err != nil || len(names) == 0 {
		return err
	}
	queues, err := m.instances[0].Store.QueuesNamed(m.ctx, names)
	for n, q := range queues {
		of := m.world.queue(m.world.shardOf(names[n]), names[n])
		if q == nil {
			continue
		}
		for _, gate := range q.Gates {
			of.until = latest(of.until, gate.Until)
		}
	}
	return err
}

// blur takes out of an answer what a store may forget when it likes, the id and
// pool of a source that was deleted, of settled tasks why, what DONE tasks are about, and how many settled records are left; and of
// what it gives, when a sweep that has nothing to do soon looks next.
func (m *model) blur(answer any) any {
	if got, ok := answer.(totals); ok {
		for i := range got.Statuses {
			got.Statuses[i].Counts.Dead, got.Statuses[i].Counts.Canceled = 0, 0
		}
	}
	tasks, _ := answer.([]*dispatch.Task)
	if sweep, ok := answer.(dispatch.Sweep); ok {
		tasks = sweep.Expired
		if sweep.Next.Sub(sweep.Now) > sweepAhead {
			sweep.Next = time.Time{}
			answer = sweep
		}
	}
	for _, t := range tasks {
		if t != nil && t.State.Settled() && !t.Recurring && (t.State == dispatch.StateDone || t.Result == dispatch.ResultSucceeded) {
			t.URL, t.Key, t.Kind = "", "", ""
		}
		if t != nil && m.world.gone[t.SourceUID] {
			if t.SourceID, t.Pool = "", ""; t.State.Settled() {
				t.SourceDeleted = nil
			}
		}
	}
	return answer
}

// differences names the sources and queues that the stores know differently, for
// whoever reads a failure.
func (m *model) differences() string {
	text := ""
	for uid := range m.world.uids() {
		var known [2][]dispatch.SourceStatus
		for n := range known {
			statuses, err := m.instances[n].Store.SourceStatuses(m.ctx, []string{uid}, true)
			if err != nil {
				return text + "\nalso " + err.Error()
			}
			known[n] = statuses
		}
		if d := diff(reflect.ValueOf(known[0]), reflect.ValueOf(known[1]), "source "+uid); d != "" {
			text += "\nalso " + d
		}
	}
	for _, name := range modelQueues() {
		var known [2]*dispatch.Queue
		for n := range known {
			queues, err := m.instances[n].Store.QueuesNamed(m.ctx, []string{name})
			if err != nil {
				queues = []*dispatch.Queue{{Name: err.Error()}}
			}
			known[n] = queues[0]
		}
		if d := diff(reflect.ValueOf(known[0]), reflect.ValueOf(known[1]), "queue "+name); d != "" {
			text += "\nalso " + d
		}
	}
	return text
}

// gist is the part of an answer that a reader of the history needs most.
func gist(answer any) string {
	switch got := answer.(type) {
	case dispatch.ClaimReply:
		text := " ->"
		for _, grants := range got.Grants {
			text += " ["
			for _, g := range grants {
				text += fmt.Sprintf(" %s/%s@%d", g.Task.Queue, g.Task.Key, g.Token.Fence%1e9)
			}
			text += " ]"
		}
		return text
	case dispatch.Sweep:
		return fmt.Sprintf(" -> %d grace=%v", len(got.Expired), got.Grace)
	case int, bool, string, []dispatch.SubmitResult, []dispatch.RenewResult, []dispatch.ApplyResult:
		return fmt.Sprintf(" -> %v", got)
	}
	return ""
}

// note keeps the last operations for a failure.
func (m *model) note(s step) {
	line := fmt.Sprintf("%7d %s %s %s", m.steps, m.world.now().Format("01-02 15:04:05.000"), s.name, s.text)
	if len(m.history) == historyLength {
		m.history = slices.Delete(m.history, 0, 1)
	}
	m.history = append(m.history, line)
}

// totals is all that a store counts.
type totals struct {
	Stats    dispatch.StoreStats
	Statuses []dispatch.SourceStatus
}
