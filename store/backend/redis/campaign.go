package redis

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// campaign returns when the shard is owned under an epoch of its own, and for how long nobody has owned it: at once if nobody has it or
// its owner has released it, else a term after the last renewal that could be read. Shard 0 is acquired before the others.
func (s *shard) campaign(ctx context.Context) (away time.Duration, err error) {
	for {
		away, err = s.watchRecord(ctx)
		if err == nil || s.isEnd(err) || ctx.Err() != nil {
			return away, err
		}
		s.standby.connectionLost()
		if s.b.first.isSet() {
			s.tried.set()
		}
		s.warned.Do(func() { s.log.Warn("cannot read who owns the shard", zap.Error(err)) })
		if err := sleep(ctx, s.b.config.term/looksOfTerm); err != nil {
			return 0, err
		}
	}
}

// silentPart of a term without a renewal, of which there are more in a term, and an owner counts as away.
const silentPart = 2

// watchRecord is a campaign on one connection. When that breaks the watch of the record is over: the next connection may lead to a
// replica that has never received the owner's last renewals.
func (s *shard) watchRecord(ctx context.Context) (away time.Duration, err error) {
	l, err := s.b.connect(ctx, s.keys)
	if err != nil {
		return 0, err
	}
	defer l.close()
	var last string
	var since time.Time // the record was read like that from then on
	for {
		f, err := s.look(ctx, l)
		if err != nil {
			return 0, err
		}
		if now := time.Now(); f.texts[1] != last || since.IsZero() {
			since, last = now, f.texts[1]
		}
		if s.number == 0 {
			s.b.silent(since, time.Since(since) > s.b.config.term/silentPart)
		}
		owned, err := s.tryAcquire(ctx, l, f, time.Since(since))
		if owned || err != nil {
			return max(s.away(f), time.Since(since)), err
		}
		if err := s.pause(ctx); err != nil {
			return 0, err
		}
	}
}

// pause is the time between two looks. It ends when the other shards may be acquired.
func (s *shard) pause(ctx context.Context) error {
	var first <-chan struct{}
	if s.number != 0 && !s.b.first.isSet() {
		first = s.b.first.c
	}
	each := s.b.config.term / looksOfTerm
	if s.number == 0 && time.Now().UnixNano() < s.b.soonUntil.Load() {
		each = min(each, soonEach)
	}
	select {
	case <-time.After(each):
	case <-s.soon:
	case <-first:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// look reads who owns the shard, and whether this backend may.
func (s *shard) look(ctx context.Context, l *link) (f found, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.b.config.term)
	defer cancel()
	if f, err = look(ctx, l.conn, s.keys); err != nil {
		return f, err
	}
	s.mu.Lock()
	s.latest = max(s.latest, f.head.Seq)
	s.met = s.met || f.texts[1] != ""
	s.mu.Unlock()
	if s.number == 0 {
		s.b.clock.read(f.sent, f.read, f.micros, s.b.loaded.isSet())
		s.b.follow(f)
		if err := s.outdone(f); err != nil {
			return f, err
		}
	}
	return f, s.acceptable(f.record)
}

// outdone is an error if another owner has acquired shard 0 after this one: its memory is not the latest any more.
func (s *shard) outdone(f found) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own.Number != 0 && f.epoch.Process != s.b.me && f.epoch.Number > s.own.Number {
		return fmt.Errorf("%w: %s at %s", errOutdone, f.record.Name, f.record.Address)
	}
	return nil
}

// acceptable is an error if this program must not own what the record says.
func (s *shard) acceptable(r record) error {
	shards := len(s.b.shards)
	switch {
	case r.Format > format:
		return fmt.Errorf("%w: shard %d has items of format %d, this release knows %d", dispatch.ErrStoreMismatch, s.number, r.Format, format)
	case r.Shards != 0 && r.Shards != shards:
		return fmt.Errorf("%w: the store has %d shards, not %d", dispatch.ErrStoreMismatch, r.Shards, shards)
	case s.number == 0:
		return s.b.acceptable(r)
	}
	return nil
}

// tryAcquire acquires the shard if it may.
func (s *shard) tryAcquire(ctx context.Context, l *link, f found, watched time.Duration) (bool, error) {
	of, err := f.record.owns()
	if err != nil {
		return false, err
	}
	if of.Epoch != f.epoch { // somebody has written one of them alone
		of = protocol.Record{Epoch: f.epoch, Beat: of.Beat}
	}
	s.mu.Lock()
	s.highest = max(s.highest, f.epoch.Number, of.Epoch.Number, s.b.counts.highest.Load())
	epoch := protocol.NextEpoch(s.b.me, f.epoch, s.highest)
	// A record that is gone was lost: its owner may live, and has in memory what is lost with it.
	owned := f.texts[1] != "" || s.met && s.own == (protocol.Epoch{})
	s.mu.Unlock()
	if s.b.config.Watch || s.number != 0 && !s.b.first.isSet() {
		return false, nil
	}
	forced := false
	if owned && !protocol.MayAcquire(s.b.me, of, watched, s.b.config.term) {
		if forced = s.standby.mayForce(of); !forced {
			return false, nil
		}
	}
	next := record{
		Name: s.b.config.Name, Address: s.b.config.Address, Epoch: epochText(epoch), Format: format, Shards: len(s.b.shards),
		Time: int64(f.micros / 1000), //nolint:gosec // of a clock
	}
	if s.number == 0 {
		next.CopyOf = s.b.copying()
	}
	sent := sinceBoot()
	ok, err := acquire(ctx, l.conn, s.keys, f, epoch, next)
	if err != nil || !ok {
		return false, err
	}
	if forced {
		s.b.counts.forced.Add(1)
	}
	if s.number == 0 {
		s.b.counts.see(epoch.Number)
		s.b.setOther(Other{}, true, s.b.clock.now())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quits {
		return false, errStopped
	}
	s.highest, s.own, s.record, s.renewed, s.owned, s.reread = epoch.Number, epoch, next, sent, true, false
	if forced { // the owner that died may come back as the standby
		s.coldSince = time.Now()
	}
	s.before = time.Time{}
	if f.record.Time != 0 {
		s.before = time.UnixMilli(f.record.Time)
	}
	s.log.Log(s.level(), "the shard is owned", zap.Uint64("epoch", epoch.Number), zap.String("before", f.record.Name), zap.Bool("forced", forced))
	return true, nil
}

// away is how long nobody has owned the shard, by what its record says.
func (s *shard) away(f found) time.Duration {
	if f.record.Time == 0 {
		return 0
	}
	return time.Duration(int64(f.micros/1000)-f.record.Time) * time.Millisecond //nolint:gosec // of a clock
}

// follow notes who owns shard 0.
func (b *Backend) follow(f found) {
	var other Other
	standby := ""
	if f.texts[1] != "" && !f.record.Released && f.epoch.Process != b.me {
		other = Other{Name: f.record.Name, Address: f.record.Address, Epoch: f.epoch.Number}
		standby = f.record.StandbyName
	}
	b.mu.Lock()
	b.standby = standby
	b.mu.Unlock()
	b.counts.see(f.epoch.Number)
	b.setOther(other, false, time.UnixMicro(int64(f.micros))) //nolint:gosec // of a clock
}

// acceptable is an error if the store is not the one that is wanted. Once it was, a failover may have lost what says so.
func (b *Backend) acceptable(r record) error {
	copying := b.copying()
	switch {
	case b.first.isSet():
		return nil
	case r == (record{}) && b.config.Existing:
		return fmt.Errorf("%w: there is no store in redis under %q", dispatch.ErrStoreMismatch, b.config.Prefix)
	case r == (record{}) || r.CopyOf == copying:
		return nil
	case r.CopyOf == "":
		return fmt.Errorf("%w: redis has a store under %q already", dispatch.ErrStoreMismatch, b.config.Prefix)
	default:
		return fmt.Errorf("%w: the store in redis under %q is an unfinished copy of %s", dispatch.ErrStoreMismatch, b.config.Prefix, r.CopyOf)
	}
}
