package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/time/rate"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// shard is a shard as one who owns it, or wants to, sees it. The decisions are those of package protocol.
type shard struct {
	b      *Backend
	number int
	keys   keys
	log    *zap.Logger
	// warned bounds how often a fault is logged that goes on.
	warned rate.Sometimes
	// tried is closed when the shard is owned for the first time, or cannot be had now.
	tried   latch
	renewal sync.Mutex // one renewal is made at a time

	mu      sync.Mutex // guards what follows
	highest uint64     // the highest epoch that was read or minted
	own     protocol.Epoch
	record  record        // as it was written last
	beat    uint64        // of the last renewal that was sent
	renewed time.Duration // by sinceBoot, just before the last renewal was sent that was confirmed
	owned   bool          // a term goes on, so far as is known
	closed  error         // why nothing may be answered or added now; nil: all may
	quits   bool          // no term follows
	lostAt  time.Time     // since when it does not serve; zero: it does
	line    protocol.Line
	before  time.Time // when the owner before has renewed last, by the clock of Redis; zero: nobody knows
	latest  uint64    // the highest sequence of a head that was read as a candidate
	met     bool      // a record was read
	reread  bool      // the head must be read before the next group
	// rewriting: a failover has lost a part of what memory has, and not all of it is written again.
	rewriting bool
	// placing: the owner takes in what was loaded, and until it has done so its memory is that of before.
	placing bool
	queue   []*pendingGroup // groups that are not kept yet, in order
	doubt   *doubt          // that of the last group; nil: there is none
	rooms   int             // calls of Room without their Commit
	memory  memory
	// feed is the standby; nil: there is none. fed: it gets the groups, warm: it has all in memory.
	feed      *feed
	fed, warm bool
	start     protocol.Head // the groups behind it are fed
	coldSince time.Time     // since when a standby that is there, or was, has not all of it; zero: it has, or none was
	// unconfirmed is closed when a renewal is confirmed that was sent after the stream of a standby has ended; nil: none has. Nothing is
	// answered before: that standby may have taken over.
	unconfirmed chan struct{}
	standby     *standby      // what this dispatcher has, while another one owns the shard
	unplaced    bool          // the owner has not taken in yet what it has as a standby
	awake       chan struct{} // has a value if there is something to do for the writer
	soon        chan struct{} // has a value if a candidate is to look now
	renewSoon   chan struct{} // has a value if the record is to be renewed now
	settled     chan struct{} // has a value if the last room was given back or the queue has become empty
	rewrote     chan struct{} // has a value if a rewrite has ended in the middle of a term
}

// looksOfTerm is how often a candidate reads the record in a term, beatsOfTerm how often an owner renews it.
const looksOfTerm, beatsOfTerm = 12, 6

var (
	errNotYet  = fmt.Errorf("%w: the shard is not owned yet", dispatch.ErrStoreUnavailable)
	errTerm    = errors.New("the ownership was not renewed in time")
	errOutdone = errors.New("another dispatcher has taken the store over")
	errStopped = errors.New("the store was released")
)

func (b *Backend) newShard(number int) *shard {
	s := &shard{
		b: b, number: number, keys: keysOf(b.config.Prefix, number), log: b.config.Logger.With(zap.Int("shard", number)),
		warned: rate.Sometimes{Interval: 10 * time.Second}, tried: newLatch(), closed: errNotYet,
		lostAt: time.Now(),
		awake:  make(chan struct{}, 1), settled: make(chan struct{}, 1), rewrote: make(chan struct{}, 1),
		soon: make(chan struct{}, 1), renewSoon: make(chan struct{}, 1),
	}
	s.standby = &standby{shard: s, came: make(chan struct{}, 1)}
	return s
}

// level is that of what each shard logs at a takeover.
func (s *shard) level() zapcore.Level {
	if s.number == 0 {
		return zap.InfoLevel
	}
	return zap.DebugLevel
}

// run is a candidate and serves terms in turns, until ctx ends or the backend is over.
func (s *shard) run(ctx context.Context) {
	for {
		away, err := s.campaign(ctx)
		if err == nil {
			err = s.serve(ctx, away)
		}
		s.lose(err)
		if ctx.Err() != nil {
			return
		}
		if s.isEnd(err) {
			s.b.fail(ctx, err)
			return
		}
		s.tried.set()
		s.warned.Do(func() { s.log.Warn("the shard is not owned", zap.Error(err)) })
		if sleep(ctx, s.b.config.term/looksOfTerm) != nil {
			return
		}
	}
}

// isEnd reports whether an error of shard 0 ends the backend: another owner has the store, or it is not the store of this backend.
func (s *shard) isEnd(err error) bool {
	return s.number == 0 && (errors.Is(err, errOutdone) || errors.Is(err, errReload) || errors.Is(err, dispatch.ErrStoreMismatch))
}

// serve is a term: it returns why that has ended.
func (s *shard) serve(ctx context.Context, away time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	end := func(err error) {
		s.lose(err)
		cancel(err)
	}
	defer end(errNotYet)
	kept := make(chan bool, 1)
	loops.Go(func() { end(s.renewing(ctx)) })
	loops.Go(func() { end(s.write(ctx, kept)) })
	gain := backend.Gain{Shard: s.number, Away: away, Renewed: s.renewedBefore()}
	select {
	case gain.Kept = <-kept:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		if err := s.b.gained(ctx, s, gain); err != nil {
			end(err)
		}
		select {
		case <-s.rewrote:
			gain.Kept, gain.Away, gain.Renewed = true, 0, time.Time{}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// renewedBefore is when the owner before has renewed its record last.
func (s *shard) renewedBefore() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.before
}

// take has the owner take in the shard. If it must be loaded, it serves after that: until then the owner's memory is not what is kept.
func (s *shard) take(ctx context.Context, gain backend.Gain) error {
	s.mu.Lock()
	if gain.Kept && !s.unplaced {
		s.mu.Unlock()
		return s.b.owner.Gained(ctx, gain)
	}
	s.placing = true
	s.mu.Unlock()
	err := s.b.owner.Gained(ctx, gain)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placing, s.unplaced = false, false
	switch {
	case err != nil:
		s.line = protocol.Line{} // perhaps it was loaded, but not taken in
	case s.owned && s.closed != nil:
		s.serves()
	}
	return err
}

// lose ends a term here: nothing is answered any more, and those that wait for groups get an error. The groups stay.
func (s *shard) lose(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owned && s.closed != nil {
		return
	}
	if s.lostAt.IsZero() {
		s.lostAt = time.Now()
	}
	s.owned = false
	s.closed = fmt.Errorf("%w: shard %d: %w", dispatch.ErrStoreUnavailable, s.number, why)
	switch {
	case s.quits: // the standby is the heir
	case s.warm:
		s.pauseFeed()
	default:
		s.stopFeed()
	}
	s.confirmed()
	for _, f := range s.queue {
		f.end(s.closed)
	}
	signal(s.settled)
}

// epoch is the one that was acquired last.
func (s *shard) epoch() protocol.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own
}

// flush waits until all groups are kept, or cannot be.
func (s *shard) flush(ctx context.Context) {
	for {
		s.mu.Lock()
		done := !s.owned || len(s.queue) == 0
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-s.settled:
		case <-ctx.Done():
			return
		}
	}
}

// quit ends a term for good, and reports whether the record is to be released: no group is on its way.
func (s *shard) quit() bool {
	s.mu.Lock()
	clean := s.owned && len(s.queue) == 0
	s.quits = true
	s.mu.Unlock()
	s.lose(errStopped)
	return clean
}

// release marks the record as released: the next owner need not wait. A standby that has the shard in memory is the heir.
func (s *shard) release(ctx context.Context) {
	err := s.renew(ctx, func(r *record) { r.Released = true })
	if err != nil && !errors.Is(err, errNotOwner) {
		s.log.Warn("cannot release the shard: the next owner has to wait for the end of the term", zap.Error(err))
	}
	s.mu.Lock()
	heir := s.feed
	s.mu.Unlock()
	if heir != nil && err == nil {
		heir.push(message{kind: releasedMessage, shard: s.number}, nil)
	}
}

// confirmed lets answers go on: no standby has taken over, or the term is over. The mutex is held.
func (s *shard) confirmed() {
	if s.unconfirmed != nil {
		close(s.unconfirmed)
		s.unconfirmed = nil
	}
}

// open lets answers and commands begin: memory is what is kept. own is the epoch under which that was found out.
func (s *shard) open(own protocol.Epoch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owned || s.own != own {
		return false
	}
	s.serves()
	return true
}

// serves lets answers and commands begin. The mutex is held.
func (s *shard) serves() {
	s.closed = nil
	if s.b.loaded.isSet() { // else it is the begin
		s.b.counts.unowned.Add(int64(time.Since(s.lostAt)))
	}
	s.lostAt = time.Time{}
}

// renewing renews the record until ctx or the term ends.
func (s *shard) renewing(ctx context.Context) error {
	term := s.b.config.term
	for {
		select {
		case <-time.After(term / beatsOfTerm):
		case <-s.renewSoon:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
		owned := s.owned
		s.mu.Unlock()
		if !owned {
			return errNotOwner
		}
		err := s.renew(ctx, func(*record) {})
		if errors.Is(err, errNotOwner) {
			s.b.counts.refuse(s.b.clock.now())
			return err
		}
		s.mu.Lock()
		serves := protocol.MayServe(sinceBoot()-s.renewed, term)
		s.mu.Unlock()
		switch {
		case !serves && ctx.Err() == nil:
			s.b.counts.fence(s.b.clock.now())
			return errors.Join(errTerm, err)
		case err != nil && ctx.Err() == nil:
			s.warned.Do(func() { s.log.Warn("cannot renew the ownership of the shard", zap.Error(err)) })
		}
	}
}

// renew renews the record once, with a change.
func (s *shard) renew(ctx context.Context, change func(*record)) error {
	s.renewal.Lock()
	defer s.renewal.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.b.config.term/3)
	defer cancel()
	s.mu.Lock()
	own, next, before, unconfirmed := s.own, s.record, s.line, s.unconfirmed
	s.beat++
	next.Standby, next.StandbyName = "", ""
	if s.warm && unconfirmed == nil { // else it is that standby perhaps, which has come back
		next.Standby, next.StandbyName = processText(s.feed.process), s.feed.name
	}
	next.Beat, next.Time = s.beat, 0 // redis writes the time
	s.mu.Unlock()
	change(&next)
	began, sent := sinceBoot(), time.Now()
	node, err := s.b.node(ctx, s.keys.record())
	if err != nil {
		return err
	}
	r, err := renew(ctx, node, s.keys, own, next)
	if err != nil {
		return err
	}
	if s.number == 0 {
		s.b.clock.read(sent, time.Now(), r.micros, true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != own {
		return errNotOwner
	}
	s.record, s.renewed = next, began
	if unconfirmed != nil && s.unconfirmed == unconfirmed {
		s.confirmed()
		signal(s.renewSoon) // to name the next one
	}
	s.memory.read(r.used, r.limit)
	// Groups may have been kept since the renewal was sent.
	later := r.head.Epoch == own && (before.Kept.Epoch != own || r.head.Seq >= before.Kept.Seq)
	if step := before.Resolve(own, own, r.head); before.Loaded && !later && step != protocol.Resend && step != protocol.Confirm {
		s.reread = true
		s.wake()
	}
	return nil
}

// wake makes the writer look at what there is to do. The mutex is held.
func (s *shard) wake() { signal(s.awake) }

// signal gives a channel a value, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
