package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// claimed checks the answer to a claim and takes the grants in.
func (w *world) claimed(shard int, pool string, wants []dispatch.Want, got dispatch.ClaimReply) error {
	if !got.Now.Equal(w.now()) {
		return broken("claim answered the time %v at %v", got.Now, w.now())
	}
	if len(got.Grants) != len(wants) || len(got.Used) != len(wants) {
		return broken("claim of %d wants answered %d grants and %d used", len(wants), len(got.Grants), len(got.Used))
	}
	for i := range wants {
		used, err := w.claimedBy(shard, pool, &wants[i], got.Grants[i])
		if err != nil {
			return err
		}
		if got.Used[i] != used {
			return broken("claim of token %s answered used %v, want %v", wants[i].ClientToken, got.Used[i], used)
		}
	}
	if err := w.checkAgain(shard, pool, wants, got); err != nil {
		return err
	}
	return w.checkIdle(shard, pool, got)
}

// claimedBy checks what one want got.
func (w *world) claimedBy(shard int, pool string, want *dispatch.Want, got []dispatch.Grant) (used bool, err error) {
	p := w.parts[shard]
	key := [2]string{want.Collector, want.ClientToken}
	if keep := p.keeps[want.Collector]; keep.until.After(w.now()) && keep.session != want.Session {
		if len(got) > 0 {
			return false, broken("a want of the replaced session %s of %s got %d tasks (T3)", want.Session, want.Collector, len(got))
		}
		w.count("claim by a replaced session")
		return false, nil
	}
	if note := w.noted(shard, key); note != nil {
		note.answered(want.Call)
		w.count("claim TOKEN_USED")
		if len(note.grants) == 0 {
			w.count("claim TOKEN_USED, all ended")
		}
		if len(got) > 0 {
			w.count("claim replay with grants")
		}
		return true, w.replayed("claim", note, got)
	}
	note := &grantNote{calls: []string{want.Call}}
	bytesLeft := want.MaxBytes
	for i := range got {
		if err := w.granted(shard, pool, want, &got[i]); err != nil {
			return false, err
		}
		t := w.tasks[got[i].Task.ID]
		bytesLeft -= w.size(t)
		if i > 0 && bytesLeft < 0 {
			return false, broken("a want of %d bytes got %d more", want.MaxBytes, -bytesLeft)
		}
		note.grants = append(note.grants, got[i])
	}
	if len(got) > want.Max {
		return false, broken("a want of %d tasks got %d", want.Max, len(got))
	}
	if len(got) > 0 {
		p.notes[key] = note
		w.count("claim with grants")
	} else {
		w.count("claim without grants")
	}
	return len(got) > 0, w.checkWorking(shard, pool, want, len(got))
}

// answered notes that a call was answered from the grant.
func (n *grantNote) answered(call string) {
	if len(n.calls) == 0 || slices.Contains(n.calls, call) {
		return
	}
	if n.calls = append(n.calls, call); len(n.calls) > bounds.MaxGrantCalls {
		n.calls = nil
	}
}

// size is what a task counts against the limit on bytes.
func (w *world) size(t *modelTask) int {
	n := len(t.URL) + len(t.Key) + len(t.Kind) + len(t.Payload) + len(t.Cursor) + len(t.Memo) + w.gate(t).JoinedBytes
	for k, v := range t.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// noted is what the shard knows of a client token: the note of what is held of its grant,
// one of nothing where its last lease has ended and it is remembered that it was used, or
// nil.
func (w *world) noted(shard int, key [2]string) *grantNote {
	p := w.parts[shard]
	if note := p.notes[key]; note != nil {
		return note
	}
	step := dispatch.TokenStep(w.now())
	if p.used[usedToken{key, step + 1}] {
		w.count("used after a step back")
		return &grantNote{}
	}
	if p.used[usedToken{key, step}] || p.used[usedToken{key, step - 1}] {
		return &grantNote{}
	}
	return nil
}

// leaseEnded notes that a lease has ended, of which the task no longer knows.
func (w *world) leaseEnded(shard int, token dispatch.LeaseToken) {
	p, key := w.parts[shard], [2]string{token.Collector, token.ClientToken}
	note := p.notes[key]
	if note == nil || len(w.stillHeld(note)) > 0 {
		return
	}
	delete(p.notes, key)
	p.used[usedToken{key, dispatch.TokenStep(w.now())}] = true
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

// replayed checks a replay: what is still held of the grant, and no more (P7).
func (w *world) replayed(what string, note *grantNote, got []dispatch.Grant) error {
	want := w.stillHeld(note)
	if len(got) != len(want) {
		return broken("%s: a replay of %v gave %v (P7)", what, keys(want), keys(got))
	}
	for i := range got {
		t := w.tasks[want[i].Task.ID]
		if got[i].Token != want[i].Token {
			return broken("%s: a replay gave the token %v, want %v (P7)", what, got[i].Token, want[i].Token)
		}
		if left := max(t.Lease.Deadline.Sub(w.now()), 0); got[i].Remaining != left {
			return broken("%s: a replay of %s gave %v of the lease, want %v", what, t.Key, got[i].Remaining, left)
		}
		if err := w.compare(what+" (replay)", &got[i].Task, t, true, false); err != nil {
			return err
		}
	}
	return nil
}

// granted checks one new grant and takes it in.
func (w *world) granted(shard int, pool string, want *dispatch.Want, g *dispatch.Grant) error {
	p := w.parts[shard]
	t := w.task(g.Task.ID)
	if t == nil {
		return broken("task %s of %s was granted and does not exist", g.Task.Key, g.Task.Queue)
	}
	if why := w.held(t, pool, true); why != "" || t.shard != shard {
		return broken("task %s of %s was granted in shard %d, though %s", t.Key, t.Queue, shard, why)
	}
	if !asksFor(want, t) {
		return broken("task %s of source %s in %s was granted to a want of other sources or queues", t.Key, t.SourceUID, t.Queue)
	}
	if other := w.before(pool, want, t); other != nil {
		return broken("task %s of %s was granted, though it is behind and task %s of source %s is ready", t.Key, t.Queue, other.Key, other.SourceUID)
	}
	fence := max(p.lastFence+1, uint64(w.clock.Now().UnixMicro()))
	if g.Token != (dispatch.LeaseToken{Collector: want.Collector, ClientToken: want.ClientToken, Fence: fence}) {
		return broken("task %s was granted as %v, want the fence %d after %d (P4)", t.Key, g.Token, fence, p.lastFence)
	}
	p.lastFence = fence
	gate := w.gate(t)
	lease := w.newLease(want, &gate)
	lease.Digest, lease.Token = g.Token.Digest(), g.Token
	t.State, t.Lease = dispatch.StateLeased, lease
	t.Counters.Attempt++
	t.Revision++
	t.lockGone, t.ended, t.orphan = false, false, false
	t.orphanUntil, t.foreignUntil, t.lookBy = time.Time{}, time.Time{}, time.Time{}
	t.renewed, t.unread = false, false
	q := w.queue(shard, t.Queue)
	q.leased++
	q.raise(w.rules.settings(t.Queue), func(s dispatch.QueueSettings) time.Time {
		if s.MinDelay == 0 {
			return time.Time{}
		}
		return w.millisecondEnd().Add(s.MinDelay)
	})
	w.count("grant")
	if g.Remaining != lease.Duration || g.SourceVersion != gate.Version {
		return broken("task %s was granted for %v by version %d, want %v by version %d",
			t.Key, g.Remaining, g.SourceVersion, lease.Duration, gate.Version)
	}
	return w.compare("claim", &g.Task, t, true, false)
}

// before is a task that goes before one that is behind; nil: there is none that a claim must find.
func (w *world) before(pool string, want *dispatch.Want, t *modelTask) *modelTask {
	if !t.Behind || len(want.SourceUIDs) > 0 || !w.settledDown(t.shard) {
		return nil
	}
	w.count("grant of a task that is behind")
	for _, other := range w.all() {
		if other.Queue == t.Queue && other.ready && !other.Behind && w.held(other, pool, false) == "" {
			return other
		}
	}
	return nil
}

// newLease is how long a want's lease of a task of the source runs: as long as the want
// says, else as the source does, and no longer than the source lets anyone hold it.
func (w *world) newLease(want *dispatch.Want, gate *dispatch.SourceGate) *dispatch.Lease {
	lease := &dispatch.Lease{
		Granted: w.now(), Duration: cmp.Or(want.Lease, gate.LeaseDuration, dispatch.DefaultLeaseDuration),
		MaxHold: cmp.Or(gate.MaxHold, dispatch.DefaultMaxHold),
	}
	if lease.Duration > lease.MaxHold {
		w.count("claim cut by MAX_HOLD")
		lease.Duration = lease.MaxHold
	}
	lease.Deadline = lease.Granted.Add(lease.Duration)
	return lease
}

// checkWorking checks that a want which was not filled left nothing that it
// could have had (P9).
func (w *world) checkWorking(shard int, pool string, want *dispatch.Want, got int) error {
	if got >= want.Max || want.MaxBytes < manyBytes && got > 0 || !w.settledDown(shard) {
		return nil
	}
	for _, t := range w.all() {
		if t.shard != shard || !t.State.Waiting() || !asksFor(want, t) {
			continue
		}
		if w.held(t, pool, false) == "" {
			return broken("a want of %d got %d, though task %s of %s could be granted (P9)", want.Max, got, t.Key, t.Queue)
		}
	}
	return nil
}

// asksFor reports whether the want is not narrowed to other sources or queues.
func asksFor(want *dispatch.Want, t *modelTask) bool {
	return (len(want.Queues) == 0 || slices.Contains(want.Queues, t.Queue)) &&
		(len(want.SourceUIDs) == 0 || slices.Contains(want.SourceUIDs, t.SourceUID))
}

// checkAgain checks what a claim says to narrowed wants of when to ask again: no task
// that one could have can be granted before, if nothing changes (P9).
func (w *world) checkAgain(shard int, pool string, wants []dispatch.Want, got dispatch.ClaimReply) error {
	if got.More || !w.settledDown(shard) {
		return nil
	}
	for i := range wants {
		want := &wants[i]
		if got.Used[i] || len(want.SourceUIDs)+len(want.Queues) == 0 || len(got.Grants[i]) > 0 {
			continue
		}
		if keep := w.parts[shard].keeps[want.Collector]; keep.until.After(w.now()) && keep.session != want.Session {
			continue
		}
		for _, t := range w.all() {
			if t.shard != shard || !t.State.Waiting() || !asksFor(want, t) {
				continue
			}
			if at, never := w.grantable(t, pool); !never && (got.Again.IsZero() || got.Again.After(at)) {
				return broken("claim said to a narrowed want to ask again at %v, though task %s of %s can be granted at %v (P9)",
					got.Again, t.Key, t.Queue, at)
			}
		}
	}
	return nil
}

// settledDown reports whether the shard was told of all changes, and the clock
// has shown no later time than now.
func (w *world) settledDown(shard int) bool {
	p := w.parts[shard]
	return !p.unsynced && len(p.unplaced) == 0 && !w.now().Before(w.highest)
}

// checkIdle checks what a claim says of when to ask again: no task of the pool
// can be granted before, if nothing changes (P9).
func (w *world) checkIdle(shard int, pool string, got dispatch.ClaimReply) error {
	if got.More {
		w.count("claim MORE")
		return nil
	}
	switch got.Wait {
	case dispatch.WaitThrottled:
		w.count("claim THROTTLED")
	case dispatch.WaitHeld:
		w.count("claim HELD")
	case dispatch.WaitNoTasks:
		w.count("claim NO_TASKS")
	case dispatch.WaitNone:
	}
	if !w.settledDown(shard) {
		return nil
	}
	for _, t := range w.all() {
		if t.shard != shard || !t.State.Waiting() {
			continue
		}
		if at, never := w.grantable(t, pool); !never && (got.Next.IsZero() || got.Next.After(at)) {
			return broken("claim said to ask again at %v, though task %s of %s can be granted at %v (P9)", got.Next, t.Key, t.Queue, at)
		}
	}
	return nil
}

// grantable is the latest instant from which a waiting task can be granted if
// nothing changes; never when something must change first.
func (w *world) grantable(t *modelTask, pool string) (at time.Time, never bool) {
	gate, q, s := w.gate(t), w.queue(t.shard, t.Queue), w.rules.settings(t.Queue)
	at = w.now()
	later := []time.Time{t.Due, gate.HeldUntil, w.holds.until(t.Queue), q.high, q.blockHigh}
	for _, l := range later {
		if l.After(at) {
			at = l
		}
	}
	never = t.underLock(w.now()) || gate.Deleted || gate.Pool != pool || !at.Before(dispatch.Forever) || q.leased >= s.MaxInFlight
	return at, never
}
