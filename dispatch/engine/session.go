package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine/internal/pump"
)

const (
	// sessionPage is how many leases of a replaced session are ended at once.
	sessionPage = 100
	// shardsAtOnce limits the concurrent calls of work on all shards.
	shardsAtOnce = 8
	// endingPatience is how long the first call of a session waits for the end of the older ones, which then continues
	// in the background.
	endingPatience = 500 * time.Millisecond
	// maxEndings limits how many collectors' older sessions end at the same time. Beyond it, the next call of the
	// collector retries.
	maxEndings = 10_000
)

// notePoll records a fetch in the store: when the collector was seen, and its current session. repeated: the client
// token had a grant before, and the outcome has its leases that are still held (P7).
func (d *Dispatcher) notePoll(ctx context.Context, poll dispatch.Poll) (out pump.Outcome, repeated bool, err error) {
	state, err := d.poll(ctx, poll)
	if err != nil {
		if ctx.Err() != nil {
			d.giveBackPolled(poll)
		}
		return out, false, err
	}
	switch {
	case state.Replaced:
		return out, false, replaced(poll.Collector, poll.Session)
	case state.NewSession:
		// What an older session was granted under this client token ends with it.
		return pump.Outcome{End: pump.TokenUsed}, state.Used, d.beginSession(ctx, poll.Collector, poll.Session)
	case len(state.Replay) > 0:
		return pump.Outcome{End: pump.Granted, Grants: state.Replay, Call: poll.Call}, true, nil
	case state.Used:
		return pump.Outcome{End: pump.TokenUsed}, true, nil
	}
	return out, false, nil
}

// poll notes a poll. It does so in a goroutine of its own, so that the stack of a fetch that waits does not have the size that the
// store needs (TestParkedFetch_memory).
func (d *Dispatcher) poll(ctx context.Context, poll dispatch.Poll) (dispatch.PollState, error) {
	type noted struct {
		state dispatch.PollState
		err   error
	}
	answer := make(chan noted)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		state, err := d.store.BeginPoll(ctx, poll)
		if err != nil {
			err = fmt.Errorf("note a poll: %w", timedOut(ctx.Err(), err))
		}
		answer <- noted{state, err}
	}()
	n := <-answer
	return n.state, n.err
}

// giveBackPolled gives back what a poll returned to a caller that was gone. It polls once more, after the first, to
// learn what that is.
func (d *Dispatcher) giveBackPolled(poll dispatch.Poll) {
	d.pump.Background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		state, err := d.poll(ctx, poll)
		if err != nil {
			d.pump.GiveBackFailed(poll, zap.Error(err))
			return
		}
		d.giveBack(ctx, poll, d.shardsOf(state.Replay))
	})
}

func replaced(collector, session string) error {
	return fmt.Errorf("session %q of collector %q: %w", session, collector, dispatch.ErrCollectorReplaced)
}

// sessionEnded ends the waiting fetches and the heartbeat streams of all sessions of the collector except current.
func (d *Dispatcher) sessionEnded(collector, current string) {
	d.outcomes.forget(collector)
	d.pump.EndSessions(collector, current)
	d.pushes.endSessions(collector, current)
}

// beginSession ends the fetches, streams and leases of a collector's older sessions. It waits only a short time for that. If it fails, the store reports the session as new again, and the next poll or beat retries.
// The slowdown of the older session ends, since its cause may be repaired.
func (d *Dispatcher) beginSession(ctx context.Context, collector, session string) error {
	d.sessionEnded(collector, session)
	d.slowed.note(collector, true)
	ended := d.beginning.DoChan(collector+"/"+session, func() (any, error) {
		defer d.endings.Add(-1)
		if d.endings.Add(1) > maxEndings {
			return nil, nil
		}
		done := make(chan error, 1)
		if !d.pump.Background(func(ctx context.Context) { done <- d.endOlder(ctx, collector, session) }) {
			return nil, nil // this dispatcher has ended; the next poll or beat comes to another
		}
		return nil, <-done
	})
	select {
	case <-ended:
	case <-time.After(endingPatience):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// endOlder ends the older sessions within storeTimeout.
func (d *Dispatcher) endOlder(ctx context.Context, collector, session string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	err := d.endSession(ctx, collector, session)
	if err != nil {
		d.log.Warn("failed to end the older session of a collector; its next call retries", zap.String("collector", collector), zap.Error(err))
	}
	return err
}

// endSession ends the leases of all sessions of the collector except keep, in all shards; none if keep was replaced
// meanwhile. The home shard comes last: until then, the store reports the session as new.
func (d *Dispatcher) endSession(ctx context.Context, collector, keep string) error {
	shards := d.store.Shards()
	home := dispatch.ShardOf(dispatch.SlotOf(collector), shards)
	g, others := errgroup.WithContext(ctx)
	g.SetLimit(shardsAtOnce)
	for shard := range shards {
		if shard != home {
			g.Go(func() error { return d.endSessionIn(others, shard, collector, keep) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return d.endSessionIn(ctx, home, collector, keep)
}

func (d *Dispatcher) endSessionIn(ctx context.Context, shard int, collector, keep string) error {
	for {
		held, err := d.store.EndSession(ctx, shard, collector, keep, sessionPage)
		if err != nil || len(held) == 0 {
			return err
		}
		now, err := d.store.Now(ctx)
		if err != nil {
			return err
		}
		applied, err := d.EndLeases(ctx, held, now, d.policy.Replace)
		if err != nil {
			return err
		}
		if CountEnded(applied) == 0 {
			return fmt.Errorf("none of %d leases in shard %d could be ended; they change all the time", len(held), shard)
		}
	}
}

// giveBack undoes the effect of a call on the grants that it got, in the shards that have them.
func (d *Dispatcher) giveBack(ctx context.Context, poll dispatch.Poll, shards []int) {
	for _, shard := range shards {
		d.pump.GiveBack(ctx, shard, poll)
	}
}

// shardsOf are the shards of grants.
func (d *Dispatcher) shardsOf(grants []dispatch.Grant) (shards []int) {
	for i := range grants {
		if shard := d.shardOf(grants[i].Task.ID); !slices.Contains(shards, shard) {
			shards = append(shards, shard)
		}
	}
	return shards
}
