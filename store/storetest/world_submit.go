package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// submitted checks the answers to a submit and takes the items in.
func (w *world) submitted(gates map[string]dispatch.SourceGate, items []dispatch.Submission, got []dispatch.SubmitResult) error {
	if len(got) != len(items) {
		return broken("submit of %d items answered %d results", len(items), len(got))
	}
	for i := range items {
		if err := w.submit(gates[items[i].SourceUID], &items[i], got[i].Code); err != nil {
			return err
		}
	}
	return nil
}

// submit checks what one item is answered: a task that is there or remembered is never made again (P7), and what is
// acknowledged is there (P1).
func (w *world) submit(gate dispatch.SourceGate, item *dispatch.Submission, code dispatch.SubmitCode) error {
	shard := w.shardOf(item.Queue)
	if held, ok := w.parts[shard].gates[gate.UID]; !ok || held.Version < gate.Version {
		if ok {
			w.parts[shard].unplaced[gate.UID] = true
		}
		w.parts[shard].gates[gate.UID] = gate
	}
	t := w.task(item.ID)
	settled := t != nil && t.State.Settled()
	w.count(fmt.Sprint("submit code ", code))
	switch {
	case t != nil:
		w.touch(t)
	case code == dispatch.SubmitExists || code == dispatch.SubmitRevisit:
		return broken("submit of %s in %s answered the code %d, though there is none", item.Key, item.Queue, code)
	}
	switch code {
	case dispatch.SubmitCreated:
		if t != nil && (!settled || !w.gate(t).Deleted) {
			return broken("submit of %s in %s answered CREATED, though it is %v (P7)", item.Key, item.Queue, w.visible(t))
		}
		fresh := &modelTask{shard: shard, Task: dispatch.Task{
			ID: item.ID, SourceUID: item.SourceUID, Queue: item.Queue, Key: item.Key, State: dispatch.StateScheduled,
		}}
		if old := w.tasks[item.ID]; old != nil {
			fresh.lockUntil, fresh.lookBy, fresh.tampered = old.lockUntil, old.lookBy, old.tampered
		}
		w.put(fresh)
		w.touch(fresh)
	case dispatch.SubmitExists:
		if settled {
			w.count("submit EXISTS settled")
		}
	case dispatch.SubmitRevisit:
		if !settled {
			return broken("submit of %s in %s answered REVISIT, though it is %v (P7)", item.Key, item.Queue, w.visible(t))
		}
		if item.Modified.After(t.SettledAt) {
			w.count("submit REVISIT, changed since")
		}
		t.State, t.forgetAt = dispatch.StateScheduled, time.Time{}
		t.Counters.Attempt, t.Counters.Expirations = 0, 0
	case dispatch.SubmitLimited:
		if settled {
			w.count("submit LIMITED revisit")
		}
	case dispatch.SubmitStaleSource, dispatch.SubmitStaleRules, dispatch.SubmitSourceDeleted:
	}
	return nil
}

// pushed follows a push that was paged to its end.
func (w *world) pushed(shard int, gate dispatch.SourceGate) {
	p := w.parts[shard]
	if held, ok := p.gates[gate.UID]; ok && held.Version > gate.Version {
		w.count("push of an older version")
		return
	}
	p.gates[gate.UID] = gate
	delete(p.unplaced, gate.UID)
	switch {
	case gate.Deleted:
		w.count("push deleted")
	case gate.HeldUntil.After(w.now()):
		w.count("push held")
	}
}

// requestedCancel follows RequestCancel: leases go on.
func (w *world) requestedCancel(ids []dispatch.TaskID, reason dispatch.CancelReason) {
	for _, id := range ids {
		if t := w.task(id); t != nil && t.Lease != nil {
			w.touch(t)
			w.count("cancel of a leased task")
			if reason == dispatch.CancelHeld {
				w.count("cancel by a hold")
			}
		}
	}
}

// dropped follows the drop of a source's tasks, repeated to its end: nothing waits, and leases go on until their holders
// were told.
func (w *world) dropped(shard int, uid string, leased []dispatch.TaskID) {
	end := w.now().Add(dispatch.CanceledMemory)
	for _, t := range w.all() {
		if t.shard != shard || t.SourceUID != uid || t.Lease != nil || w.task(t.ID) == nil {
			continue
		}
		kept := t.State == dispatch.StateDone || t.State == dispatch.StateCanceled && !t.forgetAt.After(end)
		if !t.forgetAt.IsZero() && kept {
			continue
		}
		t.State, t.forgetAt = dispatch.StateCanceled, end
		w.touch(t)
		w.count("drop of a task")
	}
	w.requestedCancel(leased, dispatch.CancelSourceDeleted)
}

// met takes in what a poll or beat is answered of its session.
func (w *world) met(collector, session string, got dispatch.PollState) {
	w.lasting = append(w.lasting, w.now().Add(dispatch.CollectorMemory))
	switch {
	case got.Replaced:
		w.count("session REPLACED")
	case got.NewSession:
		w.count("session NEW")
		w.parts[w.shardOf(collector)].keeps[collector], w.current[collector] = session, session
	}
}

// polled checks the answer to a poll: a repeated one gives what is still held of the grant (P7).
func (w *world) polled(p dispatch.Poll, got dispatch.PollState) error {
	if w.met(p.Collector, p.Session, got); got.Replaced {
		return nil
	}
	w.polls[p.ClientToken], w.current[p.Collector] = w.now(), p.Session
	for shard := range w.parts {
		note := w.noted(shard, p.Collector, p.ClientToken)
		if note == nil {
			continue
		}
		if w.count("poll TOKEN_USED"); note.ended.After(w.now()) {
			w.count("poll after a step back")
		}
		if err := w.replayed("poll", note, got.Used, got.Replay); err != nil {
			return err
		}
	}
	return nil
}
