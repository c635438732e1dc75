package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

const (
	// minBeat is the shortest beat interval: a third of the shortest lease that there can be.
	minBeat = bounds.MinLeaseDuration / 3
	// heldBeat is the longest beat interval of a held collector: if the push of the end is lost, the answer to a beat
	// has it.
	heldBeat = MaxRetryAfter
	// retryBeat is the interval to the next beat after one that failed in part.
	retryBeat = time.Second
	// A beat waits 1/patience of the shortest renewed lease for shards that have not answered. That is less than the
	// collector waits for the answer.
	patience = 8
	// presencePatience is how long renewals wait until the beat is recorded: a part of the shortest possible lease.
	presencePatience = bounds.MinLeaseDuration / patience
)

// LeaseBeat names a lease held.
type LeaseBeat struct {
	ID dispatch.TaskID
	// Token as the collector sent it; an invalid token, or another collector's, is lost.
	Token  string
	Cursor []byte // nil: keep
}

// LostLease is a lease that a beat named and that is no longer held.
type LostLease struct {
	ID     dispatch.TaskID
	Token  string
	Reason dispatch.LostReason
}

// LimitedLease was renewed for less than its duration.
type LimitedLease struct {
	ID        dispatch.TaskID
	Remaining time.Duration
}

// BeatResult answers a beat.
type BeatResult struct {
	// LeaseDuration is the shortest remaining time of the renewed leases that are not Limited; 0: none was renewed.
	LeaseDuration time.Duration
	Lost          []LostLease
	Cancel        []CancelNotice
	Limited       []LimitedLease
	// Held: a hold stops the collector; it must fetch no more.
	Held bool
	// Next beat wanted.
	Next time.Duration
}

// Beat records that a collector is alive, and renews the leases it names. A lost lease is no error. If a shard does not
// answer, only its own leases are affected: they are Limited to 0, their deadlines stay, and the next beat is due soon.
// The answers of the other shards are not delayed.
//
// Errors: [dispatch.ErrCollectorReplaced], and those of the store if nothing could be recorded
// or renewed. Idempotent.
func (d *Dispatcher) Beat(ctx context.Context, info dispatch.CollectorInfo, leases []LeaseBeat) (*BeatResult, error) {
	if info.ID == "" || info.Session == "" {
		return nil, fmt.Errorf("%w: a beat needs the collector's id and session", dispatch.ErrInvalid)
	}
	result := &BeatResult{Next: dispatch.IdleBeat}
	renewals, tokens := result.read(info.ID, leases)
	// Presence is recorded first, so that a replaced session renews nothing. If only that fails or hangs, the leases
	// are renewed nevertheless.
	recorded := d.recordBeat(ctx, info)
	most := presencePatience
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)/2)
	}
	known, err := recordedWithin(ctx, recorded, len(renewals) > 0, most)
	if errors.Is(err, dispatch.ErrCollectorReplaced) || err != nil && len(renewals) == 0 {
		return nil, err
	}
	if err := d.renew(ctx, renewals, tokens, result); err != nil {
		return nil, err
	}
	if result.LeaseDuration > 0 {
		d.newcomers.granted(info.ID)
	}
	if !known {
		if _, err := recordedWithin(ctx, recorded, true, result.LeaseDuration/patience); errors.Is(err, dispatch.ErrCollectorReplaced) {
			return nil, err
		}
	}
	held := d.holds.stops(info.ID, info.Labels)
	if d.noteBeat(&info, len(renewals), held); held {
		result.Held, result.Next = true, min(result.Next, heldBeat)
	}
	return result, nil
}

// read separates invalid leases from renewals; tokens are those of the renewals.
func (r *BeatResult) read(collector string, leases []LeaseBeat) (renewals []dispatch.Renewal, tokens []string) {
	renewals, tokens = make([]dispatch.Renewal, 0, len(leases)), make([]string, 0, len(leases))
	for _, beat := range leases {
		token, err := dispatch.ParseLeaseToken(beat.Token)
		if err != nil || token.Collector != collector || beat.ID.Slot() < 0 {
			r.Lost = append(r.Lost, LostLease{ID: beat.ID, Token: beat.Token, Reason: dispatch.LostMalformed})
			continue
		}
		renewals = append(renewals, dispatch.Renewal{ID: beat.ID, Token: token, Cursor: beat.Cursor})
		tokens = append(tokens, beat.Token)
	}
	return renewals, tokens
}

// recordBeat records a beat, and begins the session if it is new. It continues if its caller stops waiting.
func (d *Dispatcher) recordBeat(ctx context.Context, info dispatch.CollectorInfo) <-chan error {
	recorded := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		info.Outcomes = d.outcomes.of(info.ID)
		state, err := d.store.Beat(ctx, info)
		switch {
		case err != nil:
			err = fmt.Errorf("collector %q: %w", info.ID, timedOut(ctx.Err(), err))
		case state.Replaced:
			err = replaced(info.ID, info.Session)
		case state.NewSession:
			err = d.beginSession(ctx, info.ID, info.Session)
		}
		recorded <- err
	}()
	return recorded
}

// recordedWithin waits until a beat is recorded; if there are leases to renew, at most for most.
func recordedWithin(ctx context.Context, recorded <-chan error, renews bool, most time.Duration) (known bool, err error) {
	var late <-chan time.Time
	if renews {
		late = time.After(most)
	}
	select {
	case err := <-recorded:
		return true, err
	case <-late:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// shardAnswer is what one shard answers to a renewal of leases.
type shardAnswer struct {
	of      []int // the indexes of the renewals
	results []dispatch.RenewResult
	err     error
}

// renew renews leases, each shard by itself, and adds the answers to the result. After the first answer it does not wait long for the
// others. It fails if no shard answered.
func (d *Dispatcher) renew(ctx context.Context, renewals []dispatch.Renewal, tokens []string, result *BeatResult) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	byShard := make(map[int][]int, 1)
	for i := range renewals {
		shard := d.shardOf(renewals[i].ID)
		byShard[shard] = append(byShard[shard], i)
	}
	answers := make(chan shardAnswer, len(byShard))
	for _, of := range byShard {
		go func() { answers <- d.renewIn(ctx, renewals, of) }()
	}
	var late *time.Timer
	defer func() {
		if late != nil {
			late.Stop()
		}
	}()
	var failed error
	answered := len(result.Lost) > 0
	for range byShard {
		answer := <-answers
		if answer.err != nil {
			failed = answer.err
			for _, i := range answer.of {
				result.Limited = append(result.Limited, LimitedLease{ID: renewals[i].ID})
			}
			continue
		}
		answered = true
		result.take(answer, renewals, tokens)
		if late == nil && result.LeaseDuration > 0 {
			late = time.AfterFunc(result.LeaseDuration/patience, func() { stop(dispatch.ErrStoreUnavailable) })
		}
	}
	if failed != nil && !answered {
		return failed
	}
	if failed != nil {
		result.Next = min(result.Next, retryBeat)
	}
	return nil
}

// renewIn renews the leases of one shard.
func (d *Dispatcher) renewIn(ctx context.Context, renewals []dispatch.Renewal, of []int) shardAnswer {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	results, err := d.store.Renew(ctx, pick(renewals, of))
	if err != nil {
		err = fmt.Errorf("renew leases: %w", timedOut(ctx.Err(), err))
	}
	return shardAnswer{of, results, err}
}

// take adds the answer of a shard.
func (r *BeatResult) take(answer shardAnswer, renewals []dispatch.Renewal, tokens []string) {
	for n, i := range answer.of {
		id, res := renewals[i].ID, answer.results[n]
		if res.Lost != dispatch.LostNone {
			r.Lost = append(r.Lost, LostLease{ID: id, Token: tokens[i], Reason: res.Lost})
			continue
		}
		if res.Cancel != dispatch.CancelNone {
			r.Cancel = append(r.Cancel, CancelNotice{ID: id, Reason: res.Cancel})
		}
		r.Next = min(r.Next, max(res.Remaining/3, minBeat).Truncate(time.Millisecond))
		switch {
		case res.Remaining < res.Duration:
			r.Limited = append(r.Limited, LimitedLease{ID: id, Remaining: res.Remaining})
		case r.LeaseDuration == 0 || res.Remaining < r.LeaseDuration:
			r.LeaseDuration = res.Remaining
		}
	}
}
