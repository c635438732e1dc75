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
	// shardsAtOnce bounds the calls of work that goes to all shards.
	shardsAtOnce = 8
	// endingPatience is how long the first call of a session waits until the older ones have
	// ended. That goes on without it.
	endingPatience = 500 * time.Millisecond
	// maxEndings of older sessions are under way at once. Beyond it one is left to the next call
	// of its collector.
	maxEndings = 10_000
)

// notePoll has the store note a fetch: that the collector was seen, and which session is its
// current one. repeated: the client token had a grant before, and the outcome is what is still
// held of that (P7).
func (d *Dispatcher) notePoll(ctx context.Context, poll dispatch.Poll) (out pump.Outcome, repeated bool, err error) {
	states, err := d.batches.polls.Do(ctx, []dispatch.Poll{poll})
	if err != nil {
		if ctx.Err() != nil {
			d.giveBackPolled(poll)
		}
		return out, false, err
	}
	state := states[0]
	switch {
	case state.Replaced:
		return out, false, replaced(poll.Collector, poll.Session)
	case state.NewSession:
		// What an older session was granted under this client token ends with it.
		return pump.Outcome{End: pump.TokenUsed}, state.Used, d.beginSession(ctx, poll.Collector, poll.Session)
	}
	d.noted.Set(poll.Collector, poll.Session, dispatch.PollNoted)
	switch {
	case len(state.Replay) > 0:
		return pump.Outcome{End: pump.Granted, Grants: state.Replay, Call: poll.Call}, true, nil
	case state.Used:
		return pump.Outcome{End: pump.TokenUsed}, true, nil
	}
	return out, false, nil
}

// giveBackPolled gives back what a poll repeated to a call whose caller went before the answer:
// it polls once more, behind the first, to learn what that is.
func (d *Dispatcher) giveBackPolled(poll dispatch.Poll) {
	d.pump.Background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		if states, err := d.batches.polls.Do(ctx, []dispatch.Poll{poll}); err == nil {
			d.giveBack(ctx, poll, states[0].Replay)
		}
	})
}

func replaced(collector, session string) error {
	return fmt.Errorf("session %q of collector %q: %w", session, collector, dispatch.ErrCollectorReplaced)
}

// sessionEnded ends what this dispatcher has of all sessions of the collector but current: the
// fetches that wait, and the heartbeat streams.
func (d *Dispatcher) sessionEnded(collector, current string) {
	d.noted.Delete(collector)
	d.pump.EndSessions(collector, current)
	d.pushes.endSessions(collector, current)
}

// beginSession ends what the older sessions of a collector have, here and at other dispatchers:
// their fetches, their streams and their leases. It waits for that only a while. If it fails,
// the store calls the session new again, and the next poll or beat repeats it. What failed of
// the older one's own means may be mended: the new one is not slowed.
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

// endOlder ends the older sessions within the time of one call of the store.
func (d *Dispatcher) endOlder(ctx context.Context, collector, session string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	// A lost hint does no harm: the shards refuse claims of replaced sessions.
	err := d.store.Publish(ctx, dispatch.Hint{Kind: dispatch.HintSession, ID: collector, Session: session})
	if failed := d.endSession(ctx, collector, session); failed != nil {
		err = failed
	}
	if err != nil {
		d.log.Warn("failed to end the older session of a collector; its next call retries", zap.String("collector", collector), zap.Error(err))
	}
	return err
}

// endSession ends the leases of all sessions of the collector but keep, in all shards; of none
// if keep was replaced meanwhile. The collector's home shard comes last: until it is done, the
// store calls the session new.
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

// giveBack undoes what a call did with the grants that it was answered with, in each shard that
// has a part of them.
func (d *Dispatcher) giveBack(ctx context.Context, poll dispatch.Poll, grants []dispatch.Grant) {
	var shards []int
	for i := range grants {
		if shard := d.shardOf(grants[i].Task.ID); !slices.Contains(shards, shard) {
			shards = append(shards, shard)
			d.pump.GiveBack(ctx, shard, poll)
		}
	}
}
