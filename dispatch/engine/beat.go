package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// minBeat is the shortest interval of beats that is asked for: a third of the
// shortest lease.
const minBeat = bounds.MinLeaseDuration / 3

// drainedBeat is the longest interval of beats of a collector that is drained: a beat
// tells it that it is no longer.
const drainedBeat = MaxRetryAfter

// retryBeat is when a beat is wanted again of which a part failed.
const retryBeat = time.Second

// patience is the part of the shortest lease renewed for which a beat waits for
// shards that have not answered: less than the collector waits for its answer.
const patience = 8

// presencePatience is how long renewals wait for the presence: no lease is shorter
// than what this is a part of.
const presencePatience = bounds.MinLeaseDuration / patience

// Beat records that a collector lives, and renews the leases it names. Leases
// that are lost do not fail it. A shard that does not answer fails only the
// renewals of its own leases, and does not keep the others' answers back: its
// leases are Limited to 0, their deadlines stand as they were, and the next beat
// is wanted soon.
//
// Errors: [ErrCollectorReplaced], and those of the store when nothing could be
// recorded or renewed. Idempotent.
func (d *Dispatcher) Beat(ctx context.Context, info dispatch.CollectorInfo, leases []LeaseBeat) (*BeatResult, error) {
	if info.ID == "" || info.Session == "" {
		return nil, fmt.Errorf("%w: a beat needs the collector's id and session", dispatch.ErrInvalid)
	}
	b := beating{result: &BeatResult{Next: dispatch.IdleBeat}}
	b.read(info.ID, leases)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Presence is recorded first, whatever becomes of the renewals: those of a
	// session that was replaced are not made. If only that fails, or hangs, the
	// leases go on all the same.
	b.present = d.recordAside(ctx, info)
	if err := b.meet(presencePatience); err != nil {
		return nil, err
	}
	answers, open := d.batches.renewals.ask(ctx, b.renewals)
	var late <-chan time.Time
	for b.present != nil || open > 0 {
		select {
		case err := <-b.present:
			if err := b.met(err); err != nil {
				return nil, err
			}
		case answer := <-answers:
			open--
			b.take(answer)
			if late == nil && b.result.LeaseDuration > 0 {
				late = time.After(b.result.LeaseDuration / patience)
			}
		case <-late:
			if err := b.meet(0); err != nil {
				return nil, err
			}
			stop()
			b.present = nil
		}
	}
	result, err := b.end()
	if err == nil && d.drains.beat(&info) {
		result.Drain, result.Next = true, min(result.Next, drainedBeat)
	}
	return result, err
}

// beating is a beat under way.
type beating struct {
	result   *BeatResult
	renewals []dispatch.Renewal
	tokens   []string     // of the renewals
	answered bool         // some renewal was
	failed   error        // why one was not
	present  <-chan error // that the beat was recorded; nil once that is known
}

// meet waits for the beat to be recorded, at most that long; what is there already
// is taken in any case. Its error ends the beat.
func (b *beating) meet(most time.Duration) error {
	select {
	case err := <-b.present:
		return b.met(err)
	default:
	}
	if most == 0 {
		return nil
	}
	select {
	case err := <-b.present:
		return b.met(err)
	case <-time.After(most):
		return nil
	}
}

// met takes what became of recording the beat. Its error ends the beat.
func (b *beating) met(err error) error {
	b.present = nil
	if errors.Is(err, dispatch.ErrCollectorReplaced) || len(b.renewals) == 0 {
		return err
	}
	return nil
}

// recordAside records a beat while others go on.
func (d *Dispatcher) recordAside(ctx context.Context, info dispatch.CollectorInfo) <-chan error {
	recorded := make(chan error, 1)
	go func() { recorded <- d.recordBeat(ctx, info) }()
	return recorded
}

func (d *Dispatcher) recordBeat(ctx context.Context, info dispatch.CollectorInfo) error {
	state, err := d.batches.presence.one(ctx, info)
	if err != nil {
		return fmt.Errorf("record the beat of collector %q: %w", info.ID, err)
	}
	if state.Replaced {
		return fmt.Errorf("session %q of collector %q: %w", info.Session, info.ID, dispatch.ErrCollectorReplaced)
	}
	if state.NewSession {
		return d.beginSession(ctx, info.ID, info.Session)
	}
	return nil
}

// read sorts out what cannot be a lease of this collector.
func (b *beating) read(collector string, leases []LeaseBeat) {
	b.renewals = make([]dispatch.Renewal, 0, len(leases))
	b.tokens = make([]string, 0, len(leases))
	for _, beat := range leases {
		token, err := dispatch.ParseLeaseToken(beat.Token)
		if err != nil || token.Collector != collector || beat.ID.Slot() < 0 {
			b.result.Lost = append(b.result.Lost, LostLease{ID: beat.ID, Token: beat.Token, Reason: dispatch.LostMalformed})
			continue
		}
		b.renewals = append(b.renewals, dispatch.Renewal{ID: beat.ID, Token: token, Cursor: beat.Cursor})
		b.tokens = append(b.tokens, beat.Token)
	}
}

// take sorts the answers of a shard into the result.
func (b *beating) take(answer shardAnswer[dispatch.RenewResult]) {
	r := b.result
	for n, i := range answer.indexes {
		id := b.renewals[i].ID
		if answer.err != nil {
			b.failed = answer.err
			r.Limited = append(r.Limited, LimitedLease{ID: id})
			continue
		}
		b.answered = true
		res := answer.out[n]
		if res.Lost != dispatch.LostNone {
			r.Lost = append(r.Lost, LostLease{ID: id, Token: b.tokens[i], Reason: res.Lost})
			continue
		}
		if res.Cancel != dispatch.CancelNone {
			r.Cancel = append(r.Cancel, CancelNotice{ID: id, Reason: res.Cancel})
		}
		if res.Remaining < res.Duration {
			r.Limited = append(r.Limited, LimitedLease{ID: id, Remaining: res.Remaining})
			continue
		}
		if r.LeaseDuration == 0 || res.Remaining < r.LeaseDuration {
			r.LeaseDuration = res.Remaining
		}
	}
}

// end says when the next beat is wanted. It fails when nothing was answered.
func (b *beating) end() (*BeatResult, error) {
	r := b.result
	if r.LeaseDuration > 0 {
		r.Next = min(r.Next, max(r.LeaseDuration/3, minBeat).Truncate(time.Millisecond))
	}
	if b.failed != nil {
		if !b.answered && len(r.Lost) == 0 {
			return nil, b.failed
		}
		r.Next = min(r.Next, retryBeat)
	}
	return r, nil
}
