package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// claimed checks the answer to a claim and takes the grants in. It returns the wants that could have had more.
func (w *world) claimed(shard int, pool string, wants []dispatch.Want, got dispatch.ClaimReply) (unmet []int, err error) {
	if len(got.Grants) != len(wants) || len(got.Used) != len(wants) {
		return nil, broken("claim of %d wants answered %d grants and %d used", len(wants), len(got.Grants), len(got.Used))
	}
	for _, i := range grantOrder(got.Grants) {
		want, grants := &wants[i], got.Grants[i]
		keep := w.parts[shard].keeps[want.Collector]
		replaced := keep != "" && keep != want.Session
		if replaced && len(grants) == 0 {
			w.count("claim by a replaced session")
			continue
		}
		full := len(grants) >= want.Max || len(grants) > 0 && want.MaxBytes < manyBytes || want.Bytes > 0
		if !full && !replaced && w.noted(shard, want.Collector, want.ClientToken) == nil && got.Used[i] == (len(grants) > 0) {
			unmet = append(unmet, i)
		}
		if err := w.claimedBy(shard, pool, want, got.Used[i], grants); err != nil {
			return nil, err
		}
	}
	switch {
	case got.More:
		w.count("claim MORE")
	case got.Wait == dispatch.WaitThrottled:
		w.count("claim THROTTLED")
	case got.Wait == dispatch.WaitHeld:
		w.count("claim HELD")
	case got.Wait == dispatch.WaitNoTasks:
		w.count("claim NO_TASKS")
	}
	return unmet, nil
}

// grantOrder is the order in which wants got their grants: one whose grants were undone, because of locks that were set by hand, gets
// others later than the wants behind it.
func grantOrder(grants [][]dispatch.Grant) []int {
	order := make([]int, len(grants))
	for i := range order {
		order[i] = i
	}
	fence := func(i int) uint64 {
		if len(grants[i]) == 0 {
			return 0
		}
		return grants[i][0].Token.Fence
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(fence(a), fence(b)) })
	return order
}

// claimedBy checks what one want got.
func (w *world) claimedBy(shard int, pool string, want *dispatch.Want, used bool, got []dispatch.Grant) error {
	p := w.parts[shard]
	if note := w.noted(shard, want.Collector, want.ClientToken); note != nil {
		w.count("claim TOKEN_USED")
		if note.ended.After(w.now()) {
			w.count("used after a step back")
		}
		return w.replayed("claim", note, used, got)
	}
	if len(got) > want.Max {
		return broken("a want of %d tasks got %d", want.Max, len(got))
	}
	if len(got) == 0 {
		w.count("claim without grants")
		return nil
	}
	if !used {
		return broken("claim of token %s got %d tasks and is not used (P7)", want.ClientToken, len(got))
	}
	w.count("claim with grants")
	for i := range got {
		if err := w.granted(shard, pool, want, &got[i]); err != nil {
			return err
		}
	}
	p.notes[[2]string{want.Collector, want.ClientToken}] = &grantNote{grants: got}
	return nil
}

// noted is what is known of a client token's grant; nil: there was none, or a store may have forgotten it.
func (w *world) noted(shard int, collector, token string) *grantNote {
	note := w.parts[shard].notes[[2]string{collector, token}]
	if note == nil || len(w.stillHeld(note)) == 0 && !w.remembers(note.ended) {
		return nil
	}
	return note
}

// remembers reports whether a store knows a client token that was noted at an instant: for [dispatch.TokenMemory], and
// over a step back of the clock by as much.
func (w *world) remembers(at time.Time) bool {
	return w.highest.Sub(at) < dispatch.TokenMemory && at.Sub(w.now()) < dispatch.TokenMemory
}

// stillHeld is what is still held of a grant.
func (w *world) stillHeld(note *grantNote) []dispatch.Grant {
	var held []dispatch.Grant
	for _, g := range note.grants {
		if t := w.task(g.Task.ID); t != nil && t.Lease != nil && t.Lease.Token == g.Token {
			held = append(held, g)
		}
	}
	return held
}

// endLease follows the end of a lease.
func (w *world) endLease(t *modelTask) {
	if note := w.parts[t.shard].notes[[2]string{t.Lease.Token.Collector, t.Lease.Token.ClientToken}]; note != nil {
		note.ended = w.now()
	}
	w.queue(t.shard, t.Queue).leased--
	t.Lease, t.loose = nil, false
	t.tampered = t.tampered && t.lockUntil.After(w.now())
}

// replayed checks a replay: what is still held of the grant, and no more (P7).
func (w *world) replayed(what string, note *grantNote, used bool, got []dispatch.Grant) error {
	want := w.stillHeld(note)
	if len(got) != len(want) || !used {
		return broken("%s: a replay of %v gave %v, used %v (P7)", what, keys(want), keys(got), used)
	}
	if len(got) > 0 {
		w.count(what + " replay with grants")
	} else {
		w.count(what + " TOKEN_USED, all ended")
	}
	for i := range got {
		t := w.tasks[want[i].Task.ID]
		if err := w.compare(what+" (replay)", &got[i].Task, t, true, false); err != nil {
			return err
		}
		if left := max(t.Lease.Deadline.Sub(w.now()), 0); got[i].Token != want[i].Token || got[i].Remaining != left {
			return broken("%s: a replay of %s gave %v for %v, want %v for %v (P7)", what, t.Key, got[i].Token, got[i].Remaining, want[i].Token, left)
		}
	}
	return nil
}

// granted checks one new grant and takes it in.
func (w *world) granted(shard int, pool string, want *dispatch.Want, g *dispatch.Grant) error {
	p, t := w.parts[shard], w.task(g.Task.ID)
	if t == nil {
		return broken("task %s of %s was granted and does not exist", g.Task.Key, g.Task.Queue)
	}
	if why := w.held(t, pool); why != "" || t.shard != shard {
		return broken("task %s of %s was granted in shard %d, though %s", t.Key, t.Queue, shard, why)
	}
	if !asksFor(want, t) {
		return broken("task %s of source %s in %s was granted to a want of other sources or queues", t.Key, t.SourceUID, t.Queue)
	}
	if g.Token.Fence <= p.lastFence || g.Token.Fence < uint64(w.clock.Now().UnixMicro()) {
		return broken("task %s was granted as %v after the fence %d (P4)", t.Key, g.Token, p.lastFence)
	}
	p.lastFence = g.Token.Fence
	lease := g.Task.Lease
	if g.Token.Collector != want.Collector || g.Token.ClientToken != want.ClientToken || lease == nil || lease.Token != g.Token ||
		!lease.Deadline.Equal(w.now().Add(g.Remaining)) || g.Remaining <= 0 || g.Remaining > lease.MaxHold {
		return broken("task %s was granted to %s as %v for %v with the lease %+v (P2)", t.Key, want.Collector, g.Token, g.Remaining, lease)
	}
	if want.Lease > lease.MaxHold {
		w.count("claim cut by MAX_HOLD")
	}
	if t.Behind {
		w.count("grant of a task that is behind")
	}
	w.count("grant")
	t.State, t.Lease = dispatch.StateLeased, lease
	t.Counters.Attempt++
	t.Revision = max(t.Revision+1, g.Task.Revision)
	t.tampered, t.loose, t.lockUntil, t.lookBy = false, false, time.Time{}, time.Time{}
	q := w.queue(shard, t.Queue)
	q.leased, q.back = q.leased+1, 0
	if delay := w.rules.settings(t.Queue).MinDelay; delay > 0 {
		q.raise(w.millisecondEnd().Add(delay))
	}
	return w.compare("claim", &g.Task, t, true, false)
}

// held names what keeps a waiting task from being granted now; empty when the world knows of nothing.
func (w *world) held(t *modelTask, pool string) string {
	now, gate, q := w.now(), w.gate(t), w.queue(t.shard, t.Queue)
	switch {
	case !t.State.Waiting():
		return "it is " + t.State.String() + " (P2)"
	case t.Due.After(now) && t.Due.After(w.highest): // what was due stays so over a step back
		return fmt.Sprintf("it is due %v later", t.Due.Sub(now))
	case t.lockUntil.After(now):
		return "a lock stands on it (P2)"
	case gate.Deleted:
		return "its source is deleted"
	case gate.Pool != pool:
		return "its source is in the pool " + gate.Pool
	case gate.HeldUntil.After(now):
		return "its source is held"
	case w.holds.until(t.Queue).After(now):
		return "its queue is held"
	case q.leased >= w.rules.settings(t.Queue).MaxInFlight:
		return fmt.Sprintf("its queue has %d in flight (P6)", q.leased)
	case q.low.After(now):
		return fmt.Sprintf("its queue's delay lasts %v longer (P6)", q.low.Sub(now))
	}
	return ""
}

// asksFor reports whether the want is not narrowed to other sources or queues.
func asksFor(want *dispatch.Want, t *modelTask) bool {
	return (len(want.Queues) == 0 || slices.Contains(want.Queues, t.Queue)) &&
		(len(want.SourceUIDs) == 0 || slices.Contains(want.SourceUIDs, t.SourceUID))
}

// checkIdle holds what a claim left against P9: no want of the unmet was refused what it could have had, and the claim
// says to ask again before a task can be granted, if nothing changes. Delay and block of a queue are what the store says.
func (m *model) checkIdle(shard int, pool string, wants []dispatch.Want, unmet []int, got dispatch.ClaimReply) error {
	w := m.world
	if p := w.parts[shard]; got.More || p.unsynced || len(p.unplaced) > 0 || w.now().Before(w.highest) {
		return nil
	}
	for _, t := range w.all() {
		gate := w.gate(t)
		if t.shard != shard || !t.State.Waiting() || t.tampered || gate.Deleted || gate.Pool != pool ||
			w.queue(shard, t.Queue).leased >= w.rules.settings(t.Queue).MaxInFlight {
			continue
		}
		at := latest(w.now(), t.Due, gate.HeldUntil, w.holds.until(t.Queue))
		if !at.Before(dispatch.Forever) || refused(wants, unmet, got, t, at) == "" {
			continue
		}
		queues, err := m.instances[0].Store.QueuesNamed(m.ctx, []string{t.Queue})
		if err != nil {
			return err
		}
		if queues[0] == nil {
			return broken("queue %s is not there, though task %s waits", t.Queue, t.Key)
		}
		for _, gate := range queues[0].Gates {
			at = latest(at, gate.Until.Add(w.queue(shard, t.Queue).back))
		}
		if why := refused(wants, unmet, got, t, at); why != "" {
			return broken("task %s of %s can be granted at %v, though %s (P9)", t.Key, t.Queue, at, why)
		}
	}
	return nil
}

// refused is what a claim answered as if it could not grant the task at an instant; empty: nothing.
func refused(wants []dispatch.Want, unmet []int, got dispatch.ClaimReply, t *modelTask, at time.Time) string {
	if got.Next.IsZero() || got.Next.After(at) {
		return fmt.Sprint("the claim said to ask again at ", got.Next)
	}
	for _, i := range unmet {
		want, grants := &wants[i], got.Grants[i]
		switch narrowed := len(want.SourceUIDs)+len(want.Queues) > 0; {
		case !asksFor(want, t):
		case !at.After(got.Now):
			return fmt.Sprintf("a want of %d got %d", want.Max, len(grants))
		case narrowed && len(grants) == 0 && (got.Again.IsZero() || got.Again.After(at)):
			return fmt.Sprint("the claim said to a narrowed want to ask again at ", got.Again)
		}
	}
	return ""
}

// latest is the last of the times.
func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// gaveBack checks a give-back: all that is held of the grant is as it was before, without an attempt (P8), or nothing has
// changed, since the call was not the last that was answered (P7).
func (w *world) gaveBack(shard int, collector, token string, got int) error {
	note := w.parts[shard].notes[[2]string{collector, token}]
	if note == nil {
		note = &grantNote{}
	}
	held := w.stillHeld(note)
	for _, g := range held {
		t := w.tasks[g.Task.ID]
		if w.touch(t); got == 0 {
			continue
		}
		w.endLease(t)
		t.State = dispatch.StateScheduled
		t.Counters.Attempt = max(t.Counters.Attempt, 1) - 1
		w.queue(shard, t.Queue).low = time.Time{} // it may be what it was before the grant
		switch t.CancelRequested {
		case dispatch.CancelHeld:
			w.count("give back of a held task")
		case dispatch.CancelTask, dispatch.CancelSourceDeleted:
			w.count("give back of a canceled")
			t.State = dispatch.StateCanceled
			if gate := w.gate(t); gate.Deleted {
				t.forgetAt = w.now().Add(dispatch.CanceledMemory)
			} else if gate.Remember > 0 {
				t.forgetAt = w.now().Add(gate.Remember)
			}
		case dispatch.CancelNone:
		}
	}
	switch {
	case got > 0 && got != len(held):
		return broken("%d tasks were given back, want %d", got, len(held))
	case got > 0:
		delete(w.parts[shard].notes, [2]string{collector, token})
		w.count("give back")
	case len(held) > 0:
		w.count("give back of another call's")
	default:
		w.count("give back too late")
	}
	return nil
}
