package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine/internal/pump"
)

const (
	// newcomerMemory is how long a newcomer is remembered after its last call, here and in the store.
	newcomerMemory = 5 * time.Minute
	newcomerSweep  = 30 * time.Second
	newcomerPage   = 500 // newcomers that one sweep step asks the store about
	// newcomerPlace is how many bytes of what a newcomer sends about itself take one place.
	newcomerPlace = 2 << 10
)

// Newcomer is a collector id that calls, as [Dispatcher.Meet] counts it.
type Newcomer struct {
	Peer      string // the identity or address that uses the id
	Collector string
	Size      int         // bytes that it sends about itself
	Leases    []LeaseBeat // some that the call names
}

// newcomers are the collector ids that called lately. Ids cost nothing to invent, and each has a record in the store: so
// those that this dispatcher has granted nothing are bounded by peer, and forgotten soon.
type newcomers struct {
	mu    sync.Mutex // guards the rest
	met   map[string]*newcomer
	taken map[string]int // places by peer
}

type newcomer struct {
	peer        string
	places      int // 0: it is none any more
	first, last time.Time
}

// Meet reports whether a collector may call: it has been granted something, it holds a lease, or its peer has at most most
// places for newcomers. A newcomer takes a place for each 2 KiB that it sends about itself. Meet comes before anything of
// the id is kept.
func (d *Dispatcher) Meet(ctx context.Context, n Newcomer, most int) bool {
	if d.newcomers.meet(&n, most) {
		return true
	}
	held, err := d.holdsLease(ctx, n.Collector, n.Leases)
	if held {
		d.newcomers.granted(n.Collector)
	}
	return held || err != nil && ctx.Err() == nil // while its shard is away nobody can know
}

// BindCollector gives a collector id to an identity, or keeps it for that: see [dispatch.Collectors]. A newcomer has it for a few
// minutes only. The error wraps [dispatch.ErrCollectorBound] if the id belongs to another identity.
func (d *Dispatcher) BindCollector(ctx context.Context, collector, identity string) error {
	ttl := dispatch.BindingTTL
	if d.newcomers.has(collector) {
		ttl = 2 * newcomerMemory
	}
	owner, err := d.store.BindCollector(ctx, collector, identity, ttl)
	if err != nil {
		return fmt.Errorf("bind collector %s: %w", collector, err)
	}
	if owner != identity {
		return fmt.Errorf("bind collector %s to %s: %w", collector, identity, dispatch.ErrCollectorBound)
	}
	return nil
}

// SourcesOf finds the sources of tasks: one for each task that exists, empty if its source was deleted long ago.
func (d *Dispatcher) SourcesOf(ctx context.Context, ids []string) ([]string, error) {
	named := make([]dispatch.TaskID, len(ids))
	for i, id := range ids {
		named[i] = dispatch.TaskID(id)
	}
	tasks, _, err := d.store.Tasks(ctx, named, false)
	if err != nil {
		return nil, fmt.Errorf("find the sources of tasks: %w", err)
	}
	var sources []string
	for _, t := range tasks {
		if t != nil {
			sources = append(sources, t.SourceID)
		}
	}
	return sources, nil
}

// holdsLease reports whether one of the leases is the collector's.
func (d *Dispatcher) holdsLease(ctx context.Context, collector string, leases []LeaseBeat) (held bool, err error) {
	for _, lease := range leases {
		token, malformed := dispatch.ParseLeaseToken(lease.Token)
		if malformed != nil || token.Collector != collector || lease.ID.Slot() < 0 {
			continue
		}
		found, _, failed := d.store.Tasks(ctx, []dispatch.TaskID{lease.ID}, false)
		if failed != nil {
			err = failed
		} else if t := found[0]; t != nil && t.Lease != nil && t.Lease.Digest == token.Digest() {
			return true, nil
		}
	}
	return false, err
}

// has reports whether this dispatcher has granted nothing to a collector id that it has met lately.
func (s *newcomers) has(collector string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.met[collector]
	return found != nil && found.places > 0
}

// meet notes a call, unless its peer has too many newcomers.
func (s *newcomers) meet(n *Newcomer, most int) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.met[n.Collector]
	switch {
	case found == nil:
		found = &newcomer{peer: n.Peer, first: now}
	case found.places == 0:
		found.last = now
		return true
	}
	more := max(1+n.Size/newcomerPlace-found.places, 0)
	if s.taken[found.peer]+more > most {
		return more == 0
	}
	s.taken[found.peer] += more
	found.places += more
	found.last = now
	s.met[n.Collector] = found
	return true
}

// granted notes that a collector is no newcomer any more.
func (s *newcomers) granted(collector string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.met[collector]
	if found == nil {
		found = &newcomer{last: time.Now()}
		s.met[collector] = found
	}
	s.free(found)
}

// free frees the places of a newcomer.
func (s *newcomers) free(n *newcomer) {
	if s.taken[n.peer] -= n.places; s.taken[n.peer] <= 0 {
		delete(s.taken, n.peer)
	}
	n.places = 0
}

// silent drops collectors that were granted something and have not called lately, and returns the newcomers that have not.
func (s *newcomers) silent() map[string]newcomer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]newcomer)
	for id, n := range s.met {
		switch {
		case time.Since(n.last) < newcomerMemory:
		case n.places == 0:
			delete(s.met, id)
		default:
			out[id] = *n
		}
	}
	return out
}

// seen notes when a collector called another dispatcher; if it has not lately, it is dropped.
func (s *newcomers) seen(id string, ago time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.met[id]
	if last := time.Now().Add(-ago); last.After(n.last) {
		n.last = last
	}
	if time.Since(n.last) >= newcomerMemory {
		s.free(n)
		delete(s.met, id)
	}
}

// forgetNewcomers has the store forget newcomers that are silent, until ctx ends.
func (d *Dispatcher) forgetNewcomers(ctx context.Context) {
	failing := false
	for pause(ctx, newcomerSweep) {
		silent := d.newcomers.silent()
		var err error
		for page := range slices.Chunk(slices.Collect(maps.Keys(silent)), newcomerPage) {
			if err = d.forgetSilent(ctx, page, silent); err != nil {
				break
			}
		}
		if err != nil && !failing && ctx.Err() == nil {
			d.log.Warn("failed to forget collectors that were granted nothing", zap.Error(err))
		}
		failing = err != nil
	}
}

// forgetSilent forgets those of a page that have called no dispatcher lately. Those that hold leases, or were known before
// this dispatcher met them, are remembered as all others are.
func (d *Dispatcher) forgetSilent(ctx context.Context, page []string, silent map[string]newcomer) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	now, err := d.store.Now(ctx)
	if err != nil {
		return err
	}
	records, err := d.store.ListCollectors(ctx, dispatch.CollectorFilter{IDs: page, Held: true}, "", 0)
	if err != nil {
		return err
	}
	var forgotten []string
	for i, r := range records {
		knownBefore := r != nil && now.Sub(r.First) > time.Since(silent[page[i]].first)+newcomerSweep
		if r != nil && r.Held == 0 && !knownBefore && now.Sub(r.Seen) >= newcomerMemory {
			forgotten = append(forgotten, page[i])
		}
	}
	if len(forgotten) > 0 {
		before := now.Add(time.Millisecond - newcomerMemory) // also those seen just then
		if _, err = d.store.Forget(ctx, forgotten, before, len(forgotten)); err != nil {
			return err
		}
	}
	for i, id := range page {
		ago := newcomerMemory
		if records[i] != nil {
			ago = now.Sub(records[i].Seen)
		}
		d.newcomers.seen(id, ago)
	}
	return nil
}

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
// token had a grant before, and the outcome has its leases that are still held (P7). most is how many tasks it asks for.
func (d *Dispatcher) notePoll(ctx context.Context, poll dispatch.Poll, most int) (out pump.Outcome, repeated bool, err error) {
	d.pump.EndFill(&poll)
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
		return pump.Outcome{End: pump.Granted, Grants: d.repeated(ctx, poll, most, state.Replay), Call: poll.Call}, true, nil
	case state.Used:
		return pump.Outcome{End: pump.TokenUsed}, true, nil
	}
	return out, false, nil
}

// repeated are the grants of a repeat: those of all shards, but no more than it asks for. A fetch that has left a slow claim may have a grant
// too many until that is given back.
func (d *Dispatcher) repeated(ctx context.Context, poll dispatch.Poll, most int, grants []dispatch.Grant) []dispatch.Grant {
	// A claim that was left is the earlier one: the last grants are what the call was answered with, most likely.
	latest := slices.SortedFunc(slices.Values(grants), func(a, b dispatch.Grant) int { return cmp.Compare(b.Token.Fence, a.Token.Fence) })
	count := make(map[int]int)
	for i := range grants {
		count[d.shardOf(grants[i].Task.ID)]++
	}
	answered := 0
	for _, shard := range d.shardsOf(latest) {
		if answered += count[shard]; answered > max(most, count[shard]) {
			answered -= count[shard]
			count[shard] = 0
			d.pump.GiveBack(ctx, shard, poll)
		}
	}
	return slices.DeleteFunc(grants, func(g dispatch.Grant) bool { return count[d.shardOf(g.Task.ID)] == 0 })
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
	d.activity.forget(collector)
	d.pump.EndSessions(collector, current)
	d.pushes.endSessions(collector, current)
}

// beginSession ends the fetches, streams and leases of a collector's older sessions. It waits only a short time for that. If that fails,
// the store reports the session as new again, and the next poll or beat retries. The slowdown of the older session ends, since its
// cause may be repaired.
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
