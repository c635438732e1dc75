package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// minBeat is the shortest interval of beats that is asked for: a third of the
// shortest lease.
const minBeat = MinLeaseDuration / 3

// retryBeat is when a beat is wanted again of which a part failed.
const retryBeat = time.Second

// Beat records that a collector lives, and renews the leases it names. Leases
// that are lost do not fail it. A shard that does not answer fails only the
// renewals of its own leases: they are Limited to 0, their deadlines stand as
// they were, and the next beat is wanted soon.
//
// Errors: [ErrCollectorReplaced], and those of the store when nothing could be
// recorded or renewed. Idempotent.
func (d *Dispatcher) Beat(ctx context.Context, info CollectorInfo, leases []LeaseBeat) (*BeatResult, error) {
	if info.ID == "" || info.Session == "" {
		return nil, fmt.Errorf("%w: a beat needs the collector's id and session", ErrInvalid)
	}
	info.Leases = len(leases)
	result := &BeatResult{Next: IdleBeat}
	renewals, tokens := d.readBeats(info.ID, leases, result)

	// Presence is recorded before anything else can fail. If only that fails,
	// the leases go on all the same.
	presence := d.recordBeat(ctx, info)
	if errors.Is(presence, ErrCollectorReplaced) || presence != nil && len(renewals) == 0 {
		return nil, presence
	}
	results, errs := d.batches.renew(ctx, renewals)
	renewed, failed := result.take(renewals, tokens, results, errs)
	if failed != nil {
		if !renewed && len(result.Lost) == 0 {
			return nil, failed
		}
		result.Next = min(result.Next, retryBeat)
	}
	return result, nil
}

func (d *Dispatcher) recordBeat(ctx context.Context, info CollectorInfo) error {
	states, err := d.batches.beats(ctx, []CollectorInfo{info})
	if err != nil {
		return fmt.Errorf("record the beat of collector %q: %w", info.ID, err)
	}
	if states[0].Replaced {
		return fmt.Errorf("session %q of collector %q: %w", info.Session, info.ID, ErrCollectorReplaced)
	}
	if states[0].NewSession {
		d.beginSession(ctx, info.ID, info.Session)
	}
	return nil
}

// readBeats sorts out what cannot be a lease of this collector.
func (d *Dispatcher) readBeats(collector string, leases []LeaseBeat, result *BeatResult) ([]Renewal, []string) {
	renewals := make([]Renewal, 0, len(leases))
	tokens := make([]string, 0, len(leases))
	for _, beat := range leases {
		token, err := ParseLeaseToken(beat.Token)
		if err != nil || token.Collector != collector || beat.ID.Slot() < 0 {
			result.Lost = append(result.Lost, LostLease{ID: beat.ID, Token: beat.Token, Reason: LostMalformed})
			continue
		}
		renewals = append(renewals, Renewal{ID: beat.ID, Token: token, Cursor: beat.Cursor})
		tokens = append(tokens, beat.Token)
	}
	return renewals, tokens
}

// take sorts the answers to the renewals into the result. It reports whether
// any was answered, and the error of one that was not.
func (r *BeatResult) take(renewals []Renewal, tokens []string, results []RenewResult, errs []error) (answered bool, failed error) {
	for i, renewal := range renewals {
		if errs[i] != nil {
			failed = errs[i]
			r.Limited = append(r.Limited, LimitedLease{ID: renewal.ID})
			continue
		}
		answered = true
		res := results[i]
		if res.Lost != LostNone {
			r.Lost = append(r.Lost, LostLease{ID: renewal.ID, Token: tokens[i], Reason: res.Lost})
			continue
		}
		if res.Cancel != CancelNone {
			r.Cancel = append(r.Cancel, CancelNotice{ID: renewal.ID, Reason: res.Cancel})
		}
		if res.Remaining < res.Duration {
			r.Limited = append(r.Limited, LimitedLease{ID: renewal.ID, Remaining: res.Remaining})
			continue
		}
		if r.LeaseDuration == 0 || res.Remaining < r.LeaseDuration {
			r.LeaseDuration = res.Remaining
		}
	}
	if r.LeaseDuration > 0 {
		r.Next = min(r.Next, max(r.LeaseDuration/3, minBeat).Truncate(time.Millisecond))
	}
	return answered, failed
}
