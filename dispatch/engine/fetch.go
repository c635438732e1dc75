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
	// ClientToken makes the fetch idempotent; empty: the dispatcher makes one.
	ClientToken string
	Pools       []string // empty: DefaultPool
	Sources     []string // ids; empty: all
	Queues      []string // empty: all
	MaxTasks    int      // 1 to MaxFetchTasks; 0: 1
	MaxBytes    int      // 1 to MaxFetchBytes; 0: MaxFetchBytes
	// Wait is how long to wait for tasks, 0 to [bounds.MaxWait]. If claims are in flight at its end, the fetch waits
	// for them within the caller's deadline.
	Wait  time.Duration
	Lease time.Duration // 0: the source's
	// Labels of the collector, for holds on labels; nil: only holds on its id apply to it.
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

// EmptyReason is why a fetch handed nothing out.
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

// FetchResult answers a fetch.
type FetchResult struct {
	Tasks []dispatch.Grant
	// Waited from receipt to grant.
	Waited     time.Duration
	Empty      EmptyReason
	RetryAfter time.Duration
	// GiveBack undoes what the call was granted, for a caller that canceled it before it got the answer. It does not
	// wait for the store; nil if there are no Tasks.
	GiveBack func()
	// Reports answers those of the request, in their order.
	Reports []ReportResult
}

// refusedRetry is the RetryAfter of a fetch that the store refused although its session is current.
const refusedRetry = 100 * time.Millisecond

// Fetch hands out tasks, each under a lease. If there is nothing to hand out, it waits up to req.Wait, and no longer
// than ctx. An empty result is no error, even if ctx ends with the cause [dispatch.ErrStoreUnavailable]: the server
// ends ctx so before the caller's deadline. Repeated with the same collector and client token, it returns the leases of
// its grant that are still held (P7). Its reports are settled first, even if the fetch then fails.
//
// If the caller is gone at the time of the grant, its tasks are given back: no attempt is spent. If the call was
// repeated, they are given back only when all of its callers are gone ([dispatch.Claims]).
//
// Errors: [dispatch.ErrInvalid], [dispatch.ErrSourceNotFound] for one of req.Sources, [dispatch.ErrCollectorReplaced],
// [dispatch.ErrTooManyWaiters], and those of the store; after [dispatch.ErrStoreUnavailable] repeat with the same
// client token.
func (d *Dispatcher) Fetch(ctx context.Context, req FetchRequest) (*FetchResult, error) {
	received := time.Now()
	if err := req.normalise(); err != nil {
		return nil, err
	}
	d.activity.note(req.Collector)
	reports, err := d.Report(ctx, req.Collector, req.Reports)
	if err != nil {
		return nil, err
	}
	out, err := d.obtain(ctx, &req, received)
	result, err := d.deliver(ctx, &req, received, out, err)
	if err != nil {
		return nil, fmt.Errorf("fetch for collector %q: %w", req.Collector, err)
	}
	result.Reports = reports
	return result, nil
}

// deliver makes the answer of a fetch, or gives back what it was granted. Its variables are not in Fetch, so that the stack of
// a fetch that waits stays within 8 KiB (TestParkedFetch_memory).
func (d *Dispatcher) deliver(ctx context.Context, req *FetchRequest, received time.Time, out pump.Outcome, err error) (*FetchResult, error) {
	if len(out.Grants) > 0 {
		d.newcomers.granted(req.Collector)
	}
	var result *FetchResult
	if err == nil {
		result, err = d.handOut(ctx, received, out)
	}
	if err == nil && len(out.Grants) > 0 {
		err = context.Cause(ctx)
	}
	poll, shards := dispatch.Poll{Collector: req.Collector, ClientToken: req.ClientToken, Call: out.Call}, d.shardsOf(out.Grants)
	if err != nil {
		d.giveBack(ctx, poll, shards)
		return nil, err
	}
	if len(shards) > 0 {
		result.GiveBack = func() {
			d.pump.Background(func(ctx context.Context) { d.giveBack(ctx, poll, shards) })
		}
	}
	if narrowed := len(req.Sources)+len(req.Queues) > 0; narrowed && slices.Contains([]EmptyReason{EmptyNoTasks, EmptyThrottled, EmptyHeld}, result.Empty) {
		// On an error, keep the reason of the claim.
		if reason, err := d.narrowedEmpty(ctx, req); err == nil {
			result.Empty = reason
		}
	}
	return result, nil
}

// obtain records the fetch in the store, then waits for tasks unless the fetch is a repeat.
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
	out, repeated, err := d.notePoll(ctx, r.Want.Poll, req.MaxTasks)
	if err != nil || repeated {
		return out, err
	}
	out = d.wait(ctx, req, r, received)
	if out.End == pump.Refused {
		// The store has work, but not for this fetch; or another session has begun. A claim in flight may still grant
		// it something, which is given back; so the fetch continues with another id.
		r.Want.Call = d.nextCall()
		again, repeated, err := d.notePoll(ctx, r.Want.Poll, req.MaxTasks)
		if err != nil || repeated {
			return again, err
		}
		out.RetryAfter = refusedRetry
	}
	return out, nil
}

// normalise fills in defaults and checks the limits.
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

// distinct removes duplicates from a short list.
func distinct(names []string) []string {
	kept := names[:0:0]
	for _, name := range names {
		if !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// uidsOf finds the uids of the sources of a fetch.
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

// wait waits for tasks. A collector that reported COLLECTOR failures is first slowed down.
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
	if r.Until = until; req.Wait == 0 {
		// It waits only until every outlet was claimed from for it. For one with reports, of a collector at work, what is known
		// of the outlets is enough: its next fetch waits.
		r.Once, r.Cached, r.Until = true, len(req.Reports) > 0, received.Add(storeTimeout)
	}
	return d.pump.Wait(ctx, r)
}

// waitOut waits for most, or until ctx ends or the dispatcher drains, and returns how long it waited.
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

// handOut makes the answer of a fetch: the tasks, joined with their sources, or the reason why there are none.
func (d *Dispatcher) handOut(ctx context.Context, received time.Time, out pump.Outcome) (*FetchResult, error) {
	if out.Err != nil {
		return nil, out.Err
	}
	result := &FetchResult{Tasks: out.Grants, Waited: time.Since(received), RetryAfter: out.RetryAfter}
	switch out.End {
	case pump.Granted:
		// A repeated grant has no time: 0 is never too late for the remaining durations that the store returned.
		result.Waited = max(out.At.Sub(received), 0)
		return result, d.join(ctx, out.Grants)
	case pump.TokenUsed, pump.Superseded: // another call has the token now: a wait that goes on by itself must not take it back
		result.Empty = EmptyTokenUsed
	case pump.Draining: // those who must go elsewhere spread a little
		result.Empty, result.RetryAfter = EmptyDispatcherDraining, time.Duration(d.cfg.Rand()*float64(time.Second))
	case pump.Held: // and those who come back in vain
		result.Empty, result.RetryAfter = EmptyCollectorHeld, jittered(d.policy.Rand, MaxRetryAfter)
	case pump.Nothing, pump.Refused, pump.Failed:
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

// join adds the parts of the sources' specs to grants: a task record stores only what differs.
func (d *Dispatcher) join(ctx context.Context, grants []dispatch.Grant) error {
	tasks := make([]*dispatch.Task, len(grants))
	for i := range grants {
		tasks[i] = &grants[i].Task
	}
	for i, found := range d.catalog.sourcesOf(ctx, tasks) {
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
