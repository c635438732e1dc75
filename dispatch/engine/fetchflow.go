package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// recheckTries bounds how often a fetch that the store refuses what it has goes
// back to wait.
const recheckTries = 2

// joinTries bounds how often the sources of granted tasks are read.
const joinTries = 3

// Fetch hands out tasks, each under a lease. With nothing to hand out it waits
// up to req.Wait, and answers before ctx's deadline in any case; an empty result
// is no error. Repeated with the same collector and client token it gives what
// is still held of what it granted (P7). What it reports is settled whatever becomes of
// the fetch, unless that is invalid or the store does not answer.
//
// A caller that has gone by the time of the grant has its tasks given back: no
// attempt is spent. If the call was repeated, they are given back once every one of its
// callers has gone: what one of them was answered with stands ([Claims].GiveBack).
//
// Errors: [ErrInvalid], [ErrSourceNotFound] for a source to narrow to,
// [ErrCollectorReplaced], [ErrTooManyWaiters], and those of the store; after
// [ErrStoreUnavailable] repeat with the same client token.
func (d *Dispatcher) Fetch(ctx context.Context, req FetchRequest) (*FetchResult, error) {
	f := d.newFetch(req)
	if err := f.normalise(); err != nil {
		return nil, err
	}
	f.setMargin(ctx)
	result, err := f.run(ctx)
	if err == nil && len(f.out.grants) > 0 {
		err = context.Cause(ctx)
	}
	if err == nil {
		result.Reports = f.results
		return result, nil
	}
	poll := f.want.Poll
	poll.Call = f.out.call
	d.giveBack(ctx, poll, f.out.grants)
	return nil, err
}

// giveBack undoes what a call did with the grant that it was answered with, in each shard
// that has a part of it.
func (d *Dispatcher) giveBack(ctx context.Context, poll dispatch.Poll, grants []dispatch.Grant) {
	var shards []int
	for i := range grants {
		if shard := shardOfTask(grants[i].Task.ID, d.store.Shards()); !slices.Contains(shards, shard) {
			shards = append(shards, shard)
			d.pump.giveBackAside(ctx, shard, poll)
		}
	}
}

// newFetch makes a fetch beside the stack of its call.
//
//go:noinline
func (d *Dispatcher) newFetch(req FetchRequest) *fetch {
	return &fetch{d: d, received: time.Now(), req: req}
}

// fetch is one run of Fetch. What a parked one takes is for the most part the stack of its
// call, which has 8 KiB until it needs more and 16 from then on: so this is not on it.
type fetch struct {
	d          *Dispatcher
	req        FetchRequest
	received   time.Time
	waitsUntil time.Time // a margin before the caller's deadline; zero: it has none
	want       dispatch.Want
	info       *dispatch.CollectorInfo // what the collector tells of itself, where drains go by that
	out        outcome                 // what it was last answered with: by a claim straight away, a poll or the wait
	results    []ReportResult          // of its reports; those without a code are not settled
}

func (f *fetch) run(ctx context.Context) (*FetchResult, error) {
	if err := f.settle(ctx); err != nil {
		return nil, err
	}
	if f.d.Draining() {
		return f.empty(f.d.pump.drainingOutcome()), nil
	}
	if err := f.narrow(ctx); err != nil {
		return nil, err
	}
	var err error
	if f.info, err = f.d.drains.ask(ctx, f.want.Collector, f.want.Session); err != nil {
		return nil, fmt.Errorf("fetch for collector %q: %w", f.want.Collector, err)
	}
	if f.straight() {
		if result, err := f.claim(ctx); result != nil || err != nil {
			return result, err
		}
	}
	for range recheckTries {
		if result, err := f.poll(ctx); result != nil || err != nil {
			return result, err
		}
		if result, again, err := f.wait(ctx); !again {
			return result, err
		}
	}
	return f.empty(outcome{empty: EmptyNoTasks, retryAfter: time.Second}), nil
}

// normalise fills defaults in and checks what the claim depends on.
func (f *fetch) normalise() error {
	r := &f.req
	if len(r.Pools) == 0 {
		r.Pools = []string{dispatch.DefaultPool}
	}
	r.MaxTasks = cmp.Or(r.MaxTasks, 1)
	r.MaxBytes = cmp.Or(r.MaxBytes, MaxFetchBytes)
	if r.ClientToken == "" {
		r.ClientToken = uuid.NewString()
	}
	switch {
	case r.Collector == "" || len(r.Collector) > bounds.MaxIDLength || strings.Contains(r.Collector, "/"):
		return dispatch.Invalid("collector_id", r.Collector, "must have 1 to 128 characters and no slash")
	case r.Session == "" || len(r.Session) > bounds.MaxIDLength:
		return dispatch.Invalid("session", r.Session, "must have 1 to 128 characters")
	case len(r.ClientToken) > bounds.MaxIDLength || strings.Contains(r.ClientToken, "/"):
		return dispatch.Invalid("client_token", r.ClientToken, "must have at most 128 characters and no slash")
	case len(r.Pools) > MaxNarrow:
		return dispatch.Invalid("pools", len(r.Pools), fmt.Sprintf("must name at most %d", MaxNarrow))
	case len(r.Sources) > MaxNarrow:
		return dispatch.Invalid("sources", len(r.Sources), fmt.Sprintf("must name at most %d", MaxNarrow))
	case len(r.Queues) > MaxNarrow:
		return dispatch.Invalid("queues", len(r.Queues), fmt.Sprintf("must name at most %d", MaxNarrow))
	case r.MaxTasks < 1 || r.MaxTasks > MaxFetchTasks:
		return dispatch.Invalid("max_tasks", r.MaxTasks, fmt.Sprintf("must be 1 to %d", MaxFetchTasks))
	case r.MaxBytes < 1 || r.MaxBytes > MaxFetchBytes:
		return dispatch.Invalid("max_bytes", r.MaxBytes, fmt.Sprintf("must be 1 to %d", MaxFetchBytes))
	case r.Wait < 0 || r.Wait > bounds.MaxWait:
		return dispatch.Invalid("wait", r.Wait, fmt.Sprintf("must be 0s to %v", bounds.MaxWait))
	case r.Lease != 0 && (r.Lease < bounds.MinLeaseDuration || r.Lease > bounds.MaxLeaseDuration):
		return dispatch.Invalid("lease_duration", r.Lease, fmt.Sprintf("must be %v to %v", bounds.MinLeaseDuration, bounds.MaxLeaseDuration))
	}
	r.Pools = distinct(r.Pools)
	f.want = dispatch.Want{
		Poll: dispatch.Poll{Collector: r.Collector, Session: r.Session, ClientToken: r.ClientToken, Call: f.d.nextCall()},
		Max:  r.MaxTasks, MaxBytes: r.MaxBytes, Lease: r.Lease, Queues: distinct(r.Queues),
	}
	return nil
}

// distinct keeps the first of equal names, of which there are few.
func distinct(names []string) []string {
	if len(names) < 2 {
		return names
	}
	kept := make([]string, 0, len(names))
	for _, name := range names {
		if !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// setMargin ends the wait for tasks a margin before the caller's deadline, so that the
// answer is there in time, that of a claim under way too.
func (f *fetch) setMargin(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok {
		f.waitsUntil = deadline.Add(-marginOf(deadline.Sub(f.received)))
	}
}

// narrow finds the uids of the sources that the fetch is narrowed to.
func (f *fetch) narrow(ctx context.Context) error {
	if len(f.req.Sources) == 0 {
		return nil
	}
	ids := distinct(f.req.Sources)
	for i, found := range f.d.catalog.lookup(ctx, ids) {
		if found.err == nil && found.source.Deleted {
			found.err = dispatch.ErrSourceNotFound
		}
		if found.err != nil {
			return fmt.Errorf("fetch from source %q: %w", ids[i], found.err)
		}
		f.want.SourceUIDs = append(f.want.SourceUIDs, found.source.UID)
	}
	return nil
}

// straight reports whether the fetch is claimed for before it is noted with the
// store, which saves a busy collector a call of the store for each fetch. It
// takes away nothing that the note is for, since a claim has all of it, in one
// step:
//
//   - A client token that was answered before gets its answer again (P7),
//     whichever dispatcher gave it: with one shard there is no other that the
//     token can have a grant in. With more there may be, and only the
//     collector's home shard knows.
//   - A session that was replaced is given nothing. That with one shard the same
//     script makes a session the current one and has the older ones refused
//     leaves no instant between. A session not known here is noted first: it may
//     be the new one, which has to end the others.
//   - That the collector was seen is noted once in [PollNoted].
//
// A fetch that is given nothing so, wherever it asks, is noted, and waits then. So is
// one that would have to wait for its claim: its answer may be there already.
func (f *fetch) straight() bool {
	return f.d.store.Shards() == 1 && len(f.req.Sources)+len(f.req.Queues) == 0 && !f.drained() &&
		f.d.noted.lately(f.want.Collector, f.want.Session) && f.d.slowed.remaining(f.want.Collector) == 0 && f.d.pump.open(f.req.Pools)
}

// claim asks for what can be had at once. Nil and nil: there is nothing. The store is
// given the time that it would have to note the fetch, however short the wait. A fetch
// that is not answered then, or was repeated meanwhile, ends: what the claim grants it
// is given back.
func (f *fetch) claim(ctx context.Context) (*FetchResult, error) {
	f.park(ctx, &waiter{once: true}, max(f.left(), f.inTime(storeTimeout)))
	if f.out.asked || f.out.recheck || f.out.empty == EmptyDraining {
		return nil, nil //nolint:nilnil // as poll
	}
	if f.req.Wait > 0 {
		f.out.retryAfter = 0 // it has waited
	}
	return f.handOut(ctx)
}

// poll notes the fetch with the store, and answers it if its client token has
// been answered before. Nil and nil: it is to wait.
func (f *fetch) poll(ctx context.Context) (*FetchResult, error) {
	began := time.Now()
	state, err := f.begin(ctx)
	if err != nil {
		return nil, err
	}
	if !state.Replaced && !state.NewSession {
		f.d.noted.note(f.want.Collector, f.want.Session, began)
	}
	if state.NewSession {
		if err := f.d.beginSession(ctx, f.want.Collector, f.want.Session); err != nil {
			return nil, err
		}
		if len(state.Replay) > 0 {
			// What an older session was granted under this client token has
			// just ended, and would be worked on without a lease.
			if state, err = f.begin(ctx); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case state.Replaced:
		return nil, fmt.Errorf("session %q of collector %q: %w", f.want.Session, f.want.Collector, dispatch.ErrCollectorReplaced)
	case state.Used && len(state.Replay) == 0:
		return f.empty(outcome{empty: EmptyTokenUsed}), nil
	case state.Used:
		f.out = outcome{grants: state.Replay, call: f.want.Call}
		if err := f.d.join(ctx, state.Replay); err != nil {
			return nil, err
		}
		return &FetchResult{Tasks: state.Replay}, nil
	}
	f.want.Noted = true
	return nil, nil
}

// begin notes the fetch with the store. If the caller goes before the answer, the poll may
// still have repeated a grant to this call. So it is polled once more, behind the first
// poll, to give that back.
func (f *fetch) begin(ctx context.Context) (dispatch.PollState, error) {
	state, err := f.d.batches.polls.one(ctx, f.want.Poll)
	if err == nil {
		return state, nil
	}
	if ctx.Err() != nil {
		d, poll := f.d, f.want.Poll
		d.pump.inBackground(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
			defer cancel()
			if state, err := d.batches.polls.one(ctx, poll); err == nil {
				d.giveBack(ctx, poll, state.Replay)
			}
		})
	}
	return dispatch.PollState{}, fmt.Errorf("fetch for collector %q: %w", f.want.Collector, err)
}

// drained reports whether operators drain the collector. Such a fetch is noted, and so
// answered if it repeats one, and then gets nothing.
func (f *fetch) drained() bool { return f.d.drains.book.Load().Of(f.want.Collector, f.info) != nil }

// wait parks the fetch. again: it is to be noted again and to wait again.
func (f *fetch) wait(ctx context.Context) (result *FetchResult, again bool, err error) {
	if f.drained() {
		return f.empty(f.d.pump.drainedOutcome()), false, nil
	}
	hold := f.d.slowed.remaining(f.want.Collector)
	if f.req.Wait == 0 && hold > 0 {
		return f.empty(outcome{empty: EmptyThrottled, retryAfter: min(hold, MaxRetryAfter)}), false, nil
	}
	if f.req.Wait > 0 || !f.out.asked {
		f.park(ctx, &waiter{once: f.req.Wait == 0, hold: hold}, f.left())
		if f.out.recheck {
			return nil, true, nil
		}
	}
	result, err = f.handOut(ctx)
	return result, false, err
}

// park has the pump answer the fetch. One that is to be noted again is another call from
// then on: a claim under way for this one may grant yet, which is given back.
func (f *fetch) park(ctx context.Context, w *waiter, limit time.Duration) {
	w.want, w.pools, w.info = f.want, f.req.Pools, f.info
	landing := shortestLanding
	if !w.once { // else limit is the time of a claim already
		landing = max(f.inTime(limit+storeTimeout)-limit, landing)
	}
	f.d.pump.wait(ctx, w, limit, landing, &f.out)
	if f.out.recheck {
		f.want.Call = f.d.nextCall()
	}
}

// left is how long the fetch is still to wait. One that does not wait goes on until it
// has been asked for everywhere, unless the store does not answer.
func (f *fetch) left() time.Duration {
	if f.req.Wait == 0 {
		return f.inTime(storeTimeout)
	}
	return f.inTime(f.req.Wait - time.Since(f.received))
}

// shortestLanding is how long a fetch goes on for a claim under way in any case: less than
// the shortest margin.
const shortestLanding = 20 * time.Millisecond

// inTime is d, cut to what is left until the caller's deadline; 0 or more.
func (f *fetch) inTime(d time.Duration) time.Duration {
	if !f.waitsUntil.IsZero() {
		d = min(d, time.Until(f.waitsUntil))
	}
	return max(d, 0)
}

// handOut answers the fetch with what its wait ended with.
func (f *fetch) handOut(ctx context.Context) (*FetchResult, error) {
	switch {
	case f.out.err != nil:
		return nil, fmt.Errorf("fetch for collector %q: %w", f.want.Collector, f.out.err)
	case f.out.late && f.req.Wait == 0:
		// Only a store that does not answer keeps it so long.
		return nil, fmt.Errorf("fetch for collector %q: no answer in time: %w", f.want.Collector, dispatch.ErrStoreUnavailable)
	case len(f.out.grants) == 0:
		return f.empty(f.out), nil
	}
	if err := f.join(ctx, f.out.grants); err != nil {
		return nil, fmt.Errorf("hand out to collector %q: %w", f.want.Collector, err)
	}
	return &FetchResult{Tasks: f.out.grants, Waited: max(f.out.claimed.Sub(f.received), 0)}, nil
}

// join completes what was granted with what its sources hold.
func (f *fetch) join(ctx context.Context, grants []dispatch.Grant) error {
	for try := 1; ; try++ {
		err := f.d.join(ctx, grants)
		if err == nil || try == joinTries || !pause(ctx, f.d.pump.jittered(firstBackoff)) {
			return err
		}
	}
}

func (f *fetch) empty(out outcome) *FetchResult {
	return &FetchResult{Waited: time.Since(f.received), Empty: out.empty, RetryAfter: out.retryAfter.Truncate(time.Millisecond)}
}
