package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine/internal/pump"
)

// FetchRequest asks for tasks for a collector.
type FetchRequest struct {
	Collector, Session string
	// ClientToken makes the fetch idempotent; empty: one is minted.
	ClientToken string
	Pools       []string // empty: DefaultPool
	Sources     []string // ids; empty: all
	Queues      []string // empty: all
	MaxTasks    int      // 1 to MaxFetchTasks; 0: 1
	MaxBytes    int      // 1 to MaxFetchBytes; 0: MaxFetchBytes
	// Wait is how long to wait for tasks, 0 to [bounds.MaxWait]. A claim in flight at its end
	// is waited for as long as the caller's deadline lets.
	Wait  time.Duration
	Lease time.Duration // 0: the source's
	// Labels of the collector, which holds on labels go by; nil: only holds on its id meet the fetch.
	Labels map[string]string
	// Reports are settled before the fetch waits, as by [Dispatcher.Report].
	Reports []dispatch.Report
}

// Bounds of a fetch.
const (
	MaxFetchTasks = 1000
	MaxFetchBytes = 3 << 20
	DefaultWait   = 10 * time.Second
	MaxNarrow     = 16 // pools, sources and queues named in one fetch
)

// EmptyReason says why a fetch gave nothing.
type EmptyReason uint8

// The reasons for an empty answer.
const (
	EmptyNone EmptyReason = iota
	EmptyNoTasks
	EmptyThrottled
	EmptyHeld
	EmptyCollectorHeld
	EmptyDispatcherDraining
	EmptyTokenUsed
)

// FetchResult is what a fetch was given.
type FetchResult struct {
	Tasks []dispatch.Grant
	// Waited from receipt to grant.
	Waited     time.Duration
	Empty      EmptyReason
	RetryAfter time.Duration
	// Reports answers those of the request, in their order.
	Reports []ReportResult
}

// refusedRetry is when a fetch is to come again that the store has refused what it has, though
// its session is current.
const refusedRetry = 100 * time.Millisecond

// Fetch hands out tasks, each under a lease. With nothing to hand out it waits up to req.Wait,
// and no longer than ctx; an empty result is no error, also if ctx ends with the cause
// [dispatch.ErrStoreUnavailable], as the server has it end ahead of a caller's deadline. Repeated with the
// same collector and client token it gives what is still held of what it granted (P7). Its
// reports are settled first, whatever becomes of the fetch.
//
// If the caller has gone by the time of the grant, its tasks are given back: no attempt is spent.
// If the call was repeated, they are given back once every one of its callers has gone: what
// one of them was answered with stands ([dispatch.Claims]).
//
// Errors: [dispatch.ErrInvalid], [dispatch.ErrSourceNotFound] for a source to narrow to,
// [dispatch.ErrCollectorReplaced], [dispatch.ErrTooManyWaiters], and those of the store; after
// [dispatch.ErrStoreUnavailable] repeat with the same client token.
func (d *Dispatcher) Fetch(ctx context.Context, req FetchRequest) (*FetchResult, error) {
	received := time.Now()
	if err := req.normalise(); err != nil {
		return nil, err
	}
	reports, err := d.Report(ctx, req.Collector, req.Reports)
	if err != nil {
		return nil, err
	}
	out, err := d.obtain(ctx, &req, received)
	var result *FetchResult
	if err == nil {
		result, err = d.handOut(ctx, received, out)
	}
	if err == nil && len(out.Grants) > 0 {
		err = context.Cause(ctx)
	}
	if err != nil {
		d.giveBack(ctx, dispatch.Poll{Collector: req.Collector, ClientToken: req.ClientToken, Call: out.Call}, out.Grants)
		return nil, fmt.Errorf("fetch for collector %q: %w", req.Collector, err)
	}
	if narrowed := len(req.Sources)+len(req.Queues) > 0; narrowed && slices.Contains([]EmptyReason{EmptyNoTasks, EmptyThrottled, EmptyHeld}, result.Empty) {
		// Where that cannot be found out, what the claim said has to do.
		if reason, err := d.narrowedEmpty(ctx, &req); err == nil {
			result.Empty = reason
		}
	}
	result.Reports = reports
	return result, nil
}

// obtain notes the fetch, and has it wait for tasks unless it repeats one. That of a busy
// collector is claimed for before it is noted.
func (d *Dispatcher) obtain(ctx context.Context, req *FetchRequest, received time.Time) (out pump.Outcome, err error) {
	r := &pump.Request{
		Want: dispatch.Want{
			Poll: dispatch.Poll{Collector: req.Collector, Session: req.Session, ClientToken: req.ClientToken, Call: d.nextCall()},
			Max:  req.MaxTasks, MaxBytes: req.MaxBytes, Lease: req.Lease, Queues: req.Queues,
		},
		Pools: req.Pools, Labels: req.Labels,
	}
	if r.Want.SourceUIDs, err = d.uidsOf(ctx, req.Sources); err != nil {
		return out, err
	}
	if d.busy(req) {
		out = d.claimNow(ctx, req, r, received)
		switch out.End {
		case pump.Granted, pump.TokenUsed, pump.Superseded, pump.Failed:
			return out, nil
		case pump.Nothing:
			if req.Wait == 0 && out.Wait != dispatch.WaitHeld {
				return out, nil
			}
			if ctx.Err() != nil {
				return pump.Outcome{}, nil
			}
		case pump.Refused, pump.Held, pump.Draining: // it may repeat a grant yet
		}
		// A claim in flight may grant it something yet. That is given back under the id of the
		// call, so the fetch goes on as another one.
		r.Want.Call = d.nextCall()
	}
	out, repeated, err := d.notePoll(ctx, r.Want.Poll)
	if err != nil || repeated {
		return out, err
	}
	r.Want.Noted = true
	out = d.wait(ctx, req, r, received)
	if out.End == pump.Refused {
		// The store has work, but not for this fetch; or another session has begun. A claim in
		// flight may grant it yet, which is given back: from here on it is another call.
		r.Want.Call = d.nextCall()
		again, repeated, err := d.notePoll(ctx, r.Want.Poll)
		if err != nil || repeated {
			return again, err
		}
		out.RetryAfter = refusedRetry
	}
	return out, nil
}

// busy reports whether the fetch is likely to be granted something at once, and its claim can do
// all that noting it is for. That saves a call of the store: fetches of one task each come 1.25
// times as fast (deploy/bench/README.md). The collector and its session were noted lately, so a
// claim refuses a session that was replaced; with one shard, the claim itself sees whether it
// repeats a grant.
func (d *Dispatcher) busy(req *FetchRequest) bool {
	session := d.noted.Get(req.Collector)
	return session != nil && session.Value() == req.Session && d.store.Shards() == 1 &&
		len(req.Pools) == 1 && len(req.Sources)+len(req.Queues) == 0 && d.slowed.remaining(req.Collector) == 0 && d.pump.Open(req.Pools[0])
}

// claimNow has the fetch wait until it has been asked for everywhere, and no longer.
func (d *Dispatcher) claimNow(ctx context.Context, req *FetchRequest, r *pump.Request, received time.Time) pump.Outcome {
	r.Once, r.Until = true, received.Add(cmp.Or(req.Wait, storeTimeout))
	return d.pump.Wait(ctx, r)
}

// normalise fills defaults in, and checks what the claim depends on.
func (r *FetchRequest) normalise() error {
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
	r.Pools, r.Sources, r.Queues = distinct(r.Pools), distinct(r.Sources), distinct(r.Queues)
	return nil
}

// distinct keeps the first of equal names, of which there are few.
func distinct(names []string) []string {
	kept := names[:0:0]
	for _, name := range names {
		if !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// uidsOf finds the uids of the sources that a fetch is narrowed to.
func (d *Dispatcher) uidsOf(ctx context.Context, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	uids := make([]string, len(ids))
	for i, found := range d.catalog.lookup(ctx, ids) {
		if found.err == nil && found.source.Deleted {
			found.err = dispatch.ErrSourceNotFound
		}
		if found.err != nil {
			return nil, fmt.Errorf("source %q: %w", ids[i], found.err)
		}
		uids[i] = found.source.UID
	}
	return uids, nil
}

// wait has the fetch wait for tasks. A collector that reported failures of its own means waits
// before that.
func (d *Dispatcher) wait(ctx context.Context, req *FetchRequest, r *pump.Request, received time.Time) pump.Outcome {
	until := received.Add(req.Wait)
	if slowed := d.slowed.remaining(req.Collector); slowed > 0 {
		if req.Wait > 0 {
			slowed -= d.waitOut(ctx, min(slowed, time.Until(until)))
		}
		if slowed > 0 && !d.Draining() {
			return pump.Outcome{Wait: dispatch.WaitThrottled, RetryAfter: min(slowed, MaxRetryAfter)}
		}
	}
	if req.Wait == 0 {
		return d.claimNow(ctx, req, r, received)
	}
	r.Once, r.Until = false, until
	return d.pump.Wait(ctx, r)
}

// waitOut waits for d, or until ctx ends or the dispatcher drains, and returns how long it did.
func (d *Dispatcher) waitOut(ctx context.Context, most time.Duration) time.Duration {
	began := time.Now()
	select {
	case <-time.After(most):
		return most
	case <-ctx.Done():
	case <-d.drained:
	}
	return time.Since(began)
}

// handOut answers the fetch with what its wait ended with: tasks, completed with what their
// sources hold, or why there are none.
func (d *Dispatcher) handOut(ctx context.Context, received time.Time, out pump.Outcome) (*FetchResult, error) {
	if out.Err != nil {
		return nil, out.Err
	}
	result := &FetchResult{Tasks: out.Grants, Waited: time.Since(received), RetryAfter: out.RetryAfter}
	switch out.End {
	case pump.Granted:
		// What is repeated has no instant of its grant: 0 is never later than what the store said
		// remains of its leases.
		result.Waited = max(out.At.Sub(received), 0)
		return result, d.join(ctx, out.Grants)
	case pump.TokenUsed:
		result.Empty = EmptyTokenUsed
	case pump.Draining: // those who must go elsewhere spread a little
		result.Empty, result.RetryAfter = EmptyDispatcherDraining, time.Duration(d.cfg.Rand()*float64(time.Second))
	case pump.Held: // and those who come back in vain
		result.Empty, result.RetryAfter = EmptyCollectorHeld, jittered(d.policy.Rand, MaxRetryAfter)
	case pump.Nothing, pump.Superseded, pump.Refused, pump.Failed:
		result.Empty = EmptyNoTasks
		switch out.Wait {
		case dispatch.WaitThrottled:
			result.Empty = EmptyThrottled
		case dispatch.WaitHeld:
			result.Empty = EmptyHeld
		case dispatch.WaitNone, dispatch.WaitNoTasks:
		}
	}
	result.RetryAfter = result.RetryAfter.Truncate(time.Millisecond)
	return result, nil
}

// join completes grants with what their tasks share with their source: the spec
// is kept once, a task stores only what differs.
func (d *Dispatcher) join(ctx context.Context, grants []dispatch.Grant) error {
	of := make([]sourceOf, len(grants))
	for i := range grants {
		t := &grants[i].Task
		of[i] = sourceOf{t.SourceID, t.SourceUID, grants[i].SourceVersion}
	}
	for i, found := range d.catalog.specs(ctx, of) {
		t := &grants[i].Task
		if errors.Is(found.err, dispatch.ErrSourceNotFound) {
			continue // deleted since the claim; the task carries what it has
		}
		if found.err != nil {
			return fmt.Errorf("join task %s with source %q: %w", t.ID, t.SourceID, found.err)
		}
		JoinSource(t, found.source)
	}
	return nil
}
