package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

const (
	// maxWaiting is how many bytes of groups may wait while a standby loads.
	maxWaiting = 256 << 20
	// The port of an owner whose stream broke is tried so often, since the end of a process takes a moment.
	refusals, refusalsEach = 10, 10 * time.Millisecond
	// refusedWithin is how long that may take: a port may answer nothing.
	refusedWithin = time.Second
	// warmEach is the time after which what a standby has follows the time: tasks have become due.
	warmEach = 15 * time.Second
	// perItem is how long a load takes for an item, about (BenchmarkStore_Load).
	perItem = 2 * time.Microsecond
	// soonFor is how long a candidate looks often after it was told that the owner changes, with soonEach between.
	soonFor, soonEach = 2 * time.Second, 20 * time.Millisecond
)

// standby is what a dispatcher that stands by has of a shard. It is a cache: at a takeover it is compared with the head.
type standby struct {
	*shard

	mu        sync.Mutex // guards what follows
	stage     stage
	stale     bool           // it is warm, and its owner sends no groups any more
	round     int            // counts starts: a load of an earlier one is given up
	epoch     protocol.Epoch // of the owner
	following protocol.Following
	items     backend.Standby
	held      []byte // the group that is not applied yet
	waiting   []message
	bytes     int            // of these
	came      chan struct{}  // has a value if something waits
	gone      protocol.Epoch // of the owner whose stream broke and whose port refuses
	tried     uint64         // the number of the last epoch that was to be forced
}

type stage int

const (
	cold    stage = iota // it has nothing
	loading              // it reads what is kept
	warm                 // it has all
	taken                // the owner of the shard has it now
)

// followOwners stands by for whoever owns the store, until this dispatcher does.
func (b *Backend) followOwners(ctx context.Context) {
	for ctx.Err() == nil && !b.first.isSet() {
		b.mu.Lock()
		owner := b.other
		b.mu.Unlock()
		if owner != (Other{}) {
			err := b.standBy(ctx, owner)
			b.config.Logger.Debug("does not stand by any more", zap.String("owner", owner.Name), zap.Error(err))
		}
		select {
		case <-time.After(b.config.term / looksOfTerm):
		case <-b.ownerSeen:
		case <-b.first.c:
		case <-ctx.Done():
		}
	}
}

// logColdTakeover logs what a takeover by this dispatcher takes, since it does not stand by.
func (b *Backend) logColdTakeover(ctx context.Context) {
	select {
	case <-b.ownerSeen:
	case <-ctx.Done():
		return
	}
	items := 0
	for _, s := range b.shards {
		lengths, err := s.lengths(ctx)
		if err != nil {
			return // why is logged already
		}
		for _, n := range lengths {
			items += n
		}
	}
	b.config.Logger.Info("does not stand by: a takeover by this dispatcher loads the store", zap.Int("items", items),
		zap.Duration("takes_about", time.Duration(items)*perItem))
}

// standBy stands by for one owner, until its stream ends.
func (b *Backend) standBy(ctx context.Context, owner Other) error {
	ctx, end := context.WithCancelCause(ctx)
	var loads sync.WaitGroup
	defer loads.Wait()
	defer end(nil)
	loads.Go(func() { end(b.ownerMoved(ctx, owner)) })
	loads.Go(func() {
		for sleep(ctx, warmEach) == nil {
			for _, s := range b.shards {
				if err := s.standby.rewarm(); err != nil {
					end(err)
				}
			}
		}
	})
	stream, err := b.config.Reach(ctx, owner)
	if err != nil {
		return err
	}
	for _, s := range b.shards {
		s.standby.streamBegan()
	}
	hello := message{kind: helloMessage, process: b.me, name: b.config.Name}
	if err := stream.Send(hello.encode()); err != nil {
		return err
	}
	for {
		var m message
		if m, err = receiveMessage(stream); err != nil {
			break
		}
		if m.shard < 0 || m.shard >= len(b.shards) {
			continue
		}
		s := b.shards[m.shard]
		var resumed bool
		resumed, err = s.standby.take(m, func(round int, start protocol.Head) {
			loads.Go(func() {
				if err := s.standby.load(ctx, round, start, stream); err != nil && !errors.Is(err, errGivenUp) {
					end(fmt.Errorf("load shard %d: %w", s.number, err))
				}
			})
		})
		if err == nil && resumed {
			ready := message{kind: warmMessage, shard: s.number, after: m.after}
			err = stream.Send(ready.encode())
		}
		if err != nil {
			end(err)
		}
	}
	switch {
	case b.first.isSet():
	case ctx.Err() == nil:
		b.lostOwner(ctx, owner)
	default:
		err = context.Cause(ctx)
		for _, s := range b.shards {
			s.standby.streamEnded(false)
		}
	}
	return err
}

// ownerMoved returns when the owner is not the one any more that this dispatcher stands by for: its stream may be open for long.
func (b *Backend) ownerMoved(ctx context.Context, owner Other) error {
	for {
		select {
		case <-b.ownerSeen:
		case <-b.first.c: // nobody else has the store
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		b.mu.Lock()
		other := b.other
		b.mu.Unlock()
		if other != (Other{}) && other.Address != owner.Address {
			signal(b.ownerSeen)
			return fmt.Errorf("%s owns the store now", other.Name)
		}
	}
}

// lostOwner finds out whether the process of the owner has ended: its port refuses connections. Then a standby need not wait.
func (b *Backend) lostOwner(ctx context.Context, owner Other) {
	ctx, cancel := context.WithTimeout(ctx, refusedWithin)
	defer cancel()
	refused := b.config.Refuses(ctx, owner)
	for n := 1; n < refusals && !refused && sleep(ctx, refusalsEach) == nil; n++ {
		refused = b.config.Refuses(ctx, owner)
	}
	for _, s := range b.shards {
		s.standby.streamEnded(refused)
	}
	b.LookSoon()
}

// LookSoon has a candidate look often for a while: the owner changes.
func (b *Backend) LookSoon() {
	b.mu.Lock()
	shards := b.shards
	b.mu.Unlock()
	b.soonUntil.Store(time.Now().Add(soonFor).UnixNano())
	for _, s := range shards {
		signal(s.soon)
	}
}

// streamBegan notes that a stream to an owner begins, which feeds this standby from the start on.
func (s *standby) streamBegan() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch, s.gone = protocol.Epoch{}, protocol.Epoch{}
}

// streamEnded notes that the owner's stream has ended. What is whole stays: until another owner keeps something it is what is kept, and a
// takeover compares that.
func (s *standby) streamEnded(refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage == loading {
		s.drop()
	}
	if refused {
		s.gone = s.epoch
	}
	s.stale = s.stage == warm
}

// drop forgets what the standby has. The mutex is held.
func (s *standby) drop() {
	if s.stage != taken {
		s.round++
		s.stage, s.stale, s.items, s.held, s.waiting, s.bytes = cold, false, nil, nil, nil, 0
		signal(s.came) // for the load that is given up
	}
}

// take takes a message of the owner. load loads the shard beside. resumed: that of an earlier stream is still what is kept.
func (s *standby) take(m message, load func(round int, start protocol.Head)) (resumed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stage == taken:
	case m.kind == startMessage && s.stage == warm && s.resumes(m.after):
		s.epoch, s.stale = m.epoch, false
		return true, nil
	case m.kind == startMessage:
		s.drop()
		s.stage, s.epoch, s.following = loading, m.epoch, protocol.Following{Has: m.after}
		load(s.round, m.after)
	case m.kind == stopMessage:
		s.drop()
	case m.kind == releasedMessage:
		signal(s.soon)
	case m.kind == groupMessage && s.stage == loading:
		if s.waiting, s.bytes = append(s.waiting, m), s.bytes+len(m.group); s.bytes > maxWaiting {
			return false, fmt.Errorf("%d bytes of groups came while the shard was loaded", s.bytes)
		}
		signal(s.came)
	case m.kind == groupMessage && s.stage == warm:
		return false, s.group(m)
	}
	return false, nil
}

// resumes reports whether memory is what is kept under the head from which an owner begins to send groups. The mutex is held.
func (s *standby) resumes(head protocol.Head) bool {
	switch s.following.Takeover(head) {
	case protocol.ApplyHeld:
		return s.applyHeld() == nil
	case protocol.Hold:
		s.following, s.held = protocol.Following{Has: head}, nil
		return true
	default:
		return false
	}
}

var (
	errBehind  = errors.New("the standby lacks a group")
	errGivenUp = errors.New("the owner has begun anew, or stopped")
)

// group takes a group: it is applied when the next one shows that it is kept. The mutex is held.
func (s *standby) group(m message) error {
	next, step := s.following.Receive(m.after, m.head)
	switch step {
	case protocol.Behind:
		s.drop()
		return errBehind
	case protocol.ApplyHeld:
		if err := s.applyHeld(); err != nil {
			return err
		}
	case protocol.Hold, protocol.DropHeld:
	}
	s.following, s.held = next, m.group
	return nil
}

// applyHeld applies the group that is held: it is kept. The mutex is held.
func (s *standby) applyHeld() error {
	err := s.items.Group(s.held)
	if err != nil {
		s.drop()
		return err
	}
	s.following, s.held = protocol.Following{Has: s.following.Next}, nil
	return nil
}

// rewarm has what the standby has follow the time, so that a takeover stays short.
func (s *standby) rewarm() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stage != warm:
		return nil
	case s.stale: // there is another stream, by which no groups come
		s.drop()
		return nil
	}
	err := s.items.Warm()
	if err != nil {
		s.drop()
	}
	return err
}

// connectionLost is called when the connection to Redis broke: a failover may have brought back a record that names this standby.
func (s *standby) connectionLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = protocol.Epoch{}
}

// load reads the shard while groups come, and then applies these: an item that is in one of them is as new as the last of them, and each
// other one was not changed while it was read.
func (s *standby) load(ctx context.Context, round int, start protocol.Head, stream Stream) error {
	select {
	case s.b.loadTurn <- struct{}{}: // one shard at a time
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.b.loadTurn }()
	if s.isGivenUp(round) {
		return errGivenUp
	}
	began := time.Now()
	items, err := s.b.owner.Follow(backend.Followed{Shard: s.number, Shards: len(s.b.shards), Now: s.b.clock.now})
	if err != nil {
		return err
	}
	total, err := s.readItems(ctx, items)
	if err != nil {
		return err
	}
	last, err := s.readHead(ctx)
	if err != nil {
		return err
	}
	if err := s.catchUp(ctx, round, items, last, false); err != nil {
		return err
	}
	if err := items.Warm(); err != nil {
		return err
	}
	if err := s.catchUp(ctx, round, items, last, true); err != nil {
		return err
	}
	s.log.Log(s.level(), "the shard is in memory: this dispatcher stands by", zap.Int("items", total), zap.Duration("took", time.Since(began).Round(time.Millisecond)))
	ready := message{kind: warmMessage, shard: s.number, after: start}
	return stream.Send(ready.encode())
}

// isGivenUp reports whether a load is of no use any more.
func (s *standby) isGivenUp(round int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.round != round
}

// readHead reads the head. What was read of the shard before is no newer.
func (s *standby) readHead(ctx context.Context) (head protocol.Head, err error) {
	err = s.ask(ctx, "read the head", func(ctx context.Context, node *goredis.Client) (err error) {
		head, err = parsed(node.Get(ctx, s.keys.head()), parseHead)
		return err
	})
	return head, err
}

// catchUp applies the groups that wait, until none does and memory is as new as read, which was the head when everything was read. warms:
// groups are applied as they come from then on.
func (s *standby) catchUp(ctx context.Context, round int, items backend.Standby, read protocol.Head, warms bool) error {
	for {
		s.mu.Lock()
		if s.round != round {
			s.mu.Unlock()
			return errGivenUp
		}
		groups := s.waiting
		s.waiting, s.bytes, s.items = nil, 0, items
		var err error
		if len(groups) == 0 && s.following.Takeover(read) == protocol.ApplyHeld {
			err = s.applyHeld()
		}
		done := len(groups) == 0 && !read.Rewriting && read.Seq <= s.following.Has.Seq // what was read is no newer than memory
		if done && warms {
			s.stage = warm
		}
		s.mu.Unlock()
		if err != nil || done {
			return err
		}
		for _, m := range groups {
			if err := s.caughtUp(round, m); err != nil {
				return err
			}
		}
		if len(groups) > 0 {
			continue
		}
		select {
		case <-s.came:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *standby) caughtUp(round int, m message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.round != round {
		return errGivenUp
	}
	return s.group(m)
}

// mayForce reports whether this standby may take over without waiting. It may once.
func (s *standby) mayForce(of protocol.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != warm || !protocol.MayForce(s.b.me, of, s.gone, s.tried) {
		return false
	}
	s.tried = s.gone.Number
	return true
}

// takeOver gives the owner of the shard what the standby has, if that is what is kept under this head.
func (s *standby) takeOver(head protocol.Head) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != warm {
		s.drop()
		return false, nil
	}
	switch s.following.Takeover(head) {
	case protocol.ApplyHeld:
		if err := s.applyHeld(); err != nil {
			return false, err
		}
	case protocol.Hold:
	default:
		s.log.Warn("what this standby has of the shard is not what is kept: it is loaded", zap.String("kept", headText(head)),
			zap.String("has", headText(s.following.Has)), zap.String("held", headText(s.following.Next)))
		s.drop()
		return false, nil
	}
	s.stage, s.items, s.held = taken, nil, nil
	return true, nil
}
