package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
	"github.com/waggle-crawl/waggle/store/codec"
)

// Stream carries messages between an owner and a dispatcher that stands by. Its methods fail once it has ended.
type Stream interface {
	// Send sends a message, of up to some MiB. It may wait for the other side.
	Send(message []byte) error
	// Receive waits for the next message.
	Receive() (message []byte, err error)
}

const (
	// maxUnsent is how many bytes may wait for a standby; one that lets more wait is dropped.
	maxUnsent = 64 << 20
	// handedWithin is how long a group waits until it is handed to the stream. On a busy machine that takes some milliseconds; after a
	// standby that does not read, no group waits any more.
	handedWithin = 100 * time.Millisecond
	// lastWithin is how long the last messages of an owner may take.
	lastWithin = time.Second
)

// Kinds of messages: those of the standby, then those of the owner.
const (
	helloMessage    = 1 + iota // who stands by
	warmMessage                // it has the shard in memory
	startMessage               // the groups behind a head follow: the standby loads the shard now
	groupMessage               // a group
	stopMessage                // no more groups of the shard follow, and what the standby has of it is no use
	releasedMessage            // the shard was handed over to the standby
)

// message is what a stream carries.
type message struct {
	kind, shard int
	process     protocol.Process // of hello
	name        string
	epoch       protocol.Epoch // of start: that of the owner
	after, head protocol.Head  // what start, warm and group follow, and the head of the group
	group       []byte
}

func (m *message) fields(c *codec.Codec) {
	after, head, epoch := headText(m.after), headText(m.head), epochText(m.epoch)
	codec.Int(c, 1, &m.kind)
	codec.Int(c, 2, &m.shard)
	codec.Uint(c, 3, &m.process)
	codec.Text(c, 4, &m.name)
	codec.Text(c, 5, &epoch)
	codec.Text(c, 6, &after)
	codec.Text(c, 7, &head)
	c.Bytes(8, &m.group)
	if !c.Reading() {
		return
	}
	var errs [3]error
	m.epoch, errs[0] = parseEpoch(epoch)
	m.after, errs[1] = parseHead(after)
	m.head, errs[2] = parseHead(head)
	if err := errors.Join(errs[:]...); err != nil {
		c.Failf("a head: %v", err)
	}
}

func (m *message) encode() []byte {
	c := codec.Writer(make([]byte, 0, 160+len(m.group)))
	m.fields(c)
	return c.Buffer()
}

// receiveMessage receives a message. Fields that it does not know are of a newer release, and ignored.
func receiveMessage(stream Stream) (m message, err error) {
	data, err := stream.Receive()
	if err != nil {
		return m, err
	}
	c := codec.Reader(data)
	m.fields(c)
	_, err = c.End()
	return m, err
}

// feed is the standby that an owner has: it gets each group before Redis has it.
type feed struct {
	process protocol.Process
	name    string
	awake   chan struct{} // has a value if there is something to send
	over    latch         // nothing is sent any more
	late    atomic.Bool   // a group was not handed to the stream in time, and more wait since then

	mu    sync.Mutex // guards what follows
	queue []unsent
	bytes int // of these
}

// unsent is a message that is not handed to the stream.
type unsent struct {
	data   []byte
	handed chan struct{} // closed when it is; nil: nobody waits
}

// push has a message sent. It does not wait for the standby.
func (f *feed) push(m message, handed chan struct{}) {
	data := m.encode()
	f.mu.Lock()
	f.queue, f.bytes = append(f.queue, unsent{data, handed}), f.bytes+len(data)
	if f.bytes > maxUnsent {
		f.over.set()
	}
	f.mu.Unlock()
	signal(f.awake)
}

// send hands messages to the stream until the feed is over, and then what is left.
func (f *feed) send(stream Stream) error {
	for over := false; ; {
		f.mu.Lock()
		queue := f.queue
		f.queue, f.bytes = nil, 0
		f.mu.Unlock()
		for _, u := range queue {
			err := stream.Send(u.data)
			if u.handed != nil {
				close(u.handed)
			}
			if err != nil {
				return err
			}
		}
		switch {
		case len(queue) > 0:
			continue
		case over:
			return nil
		}
		f.late.Store(false)
		select {
		case <-f.awake:
		case <-f.over.c:
			over = true
		}
	}
}

// Feed sends what changes to a dispatcher that stands by, until the stream or the ownership ends. While another one stands by it
// waits.
func (b *Backend) Feed(ctx context.Context, stream Stream) error {
	hello, err := receiveMessage(stream)
	switch {
	case err != nil:
		return err
	case hello.kind != helloMessage:
		return errors.New("the first message of a standby is not who it is")
	}
	select {
	case b.feedTurn <- struct{}{}:
		defer func() { <-b.feedTurn }()
	case <-b.over.c:
		return b.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !b.loaded.isSet() || b.over.isSet() {
		return fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, errNotOwner)
	}
	f := &feed{process: hello.process, name: hello.name, awake: make(chan struct{}, 1), over: newLatch()}
	b.config.Logger.Info("another dispatcher stands by", zap.String("standby", f.name))
	for _, s := range b.shards {
		s.attach(f)
	}
	sent, received := make(chan error, 1), make(chan error, 1)
	go func() { sent <- f.send(stream) }()
	go func() { received <- b.receive(stream, f) }()
	select {
	case err = <-sent:
	case err = <-received:
	case <-f.over.c:
		err = fmt.Errorf("the standby does not read; %d bytes may wait", maxUnsent)
	case <-b.handed.c: // the last messages say so
		f.over.set()
		select {
		case err = <-sent:
		case <-time.After(lastWithin):
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	f.over.set()
	for _, s := range b.shards {
		s.detach(f)
	}
	b.config.Logger.Info("the other dispatcher does not stand by any more", zap.String("standby", f.name), zap.Error(err))
	return err
}

// receive takes what a standby sends.
func (b *Backend) receive(stream Stream, f *feed) error {
	for {
		m, err := receiveMessage(stream)
		switch {
		case err != nil:
			return err
		case m.kind == warmMessage && m.shard >= 0 && m.shard < len(b.shards):
			b.shards[m.shard].nameStandby(f, m.after)
		}
	}
}

// attach lets a standby follow the shard, from the next group on.
func (s *shard) attach(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.coldSince.IsZero() || time.Since(s.coldSince) > missedFor {
		s.coldSince = time.Now()
	}
	s.feed, s.fed, s.warm = f, false, false
	s.wake()
}

// nameStandby has the record name the standby, which has the shard in memory since that start.
func (s *shard) nameStandby(f *feed, start protocol.Head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feed == f && s.fed && s.start == start {
		s.warm, s.coldSince = true, time.Time{}
		signal(s.renewSoon)
	}
}

// detach ends what attach began. The standby may take over by force now, if the record names it: nothing is answered until a renewal
// that was sent later does not.
func (s *shard) detach(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feed != f {
		return
	}
	s.cool()
	s.feed = nil
	if s.owned && s.unconfirmed == nil {
		s.unconfirmed = make(chan struct{})
		signal(s.renewSoon)
	}
}

// startFeed lets the standby load the shard: the groups that follow are all sent to it. The mutex is held, between two groups.
func (s *shard) startFeed() {
	if s.feed == nil || s.fed || !s.owned || !s.line.Loaded || s.rewriting || slices.ContainsFunc(s.queue, (*pendingGroup).isCut) {
		return
	}
	s.fed, s.start = true, s.line.Kept
	s.feed.push(message{kind: startMessage, shard: s.number, epoch: s.own, after: s.start}, nil)
}

// pauseFeed ends what startFeed began, until it begins again. What the standby has stays of use: it is compared with what is kept then,
// and at a takeover. The mutex is held.
func (s *shard) pauseFeed() (paused bool) {
	if paused = s.fed; paused {
		s.cool()
		signal(s.renewSoon)
	}
	return paused
}

// cool notes that the standby has not all of the shard any more. The mutex is held.
func (s *shard) cool() {
	if s.warm {
		s.coldSince = time.Now()
	}
	s.fed, s.warm = false, false
}

// missedFor is how long a standby that went counts as one that is missing. Nobody means to have one after that.
const missedFor = time.Hour

// missing is for how long the shard has lacked a standby that is there, or was lately. The mutex is held.
func (s *shard) missing() time.Duration {
	span := time.Since(s.coldSince)
	if s.coldSince.IsZero() || s.feed == nil && span > missedFor {
		return 0
	}
	return span
}

// stopFeed reports that what the standby has of the shard is no use any more. The mutex is held.
func (s *shard) stopFeed() {
	if s.pauseFeed() {
		s.feed.push(message{kind: stopMessage, shard: s.number}, nil)
	}
}

// feedGroup sends a group to the standby, before Redis has it: the standby is then not behind at whatever instant this process dies.
func (w *writer) feedGroup(f *pendingGroup) {
	w.mu.Lock()
	to, fed, line := w.feed, w.fed, w.line
	w.mu.Unlock()
	if !fed {
		return
	}
	handed, late := make(chan struct{}), to.late.Load()
	to.push(message{kind: groupMessage, shard: w.number, after: line.Kept, head: line.Sent, group: f.raw}, handed)
	if late {
		return
	}
	select {
	case <-handed:
		runtime.Gosched() // the transport writes by a goroutine of its own
	case <-to.over.c:
	case <-time.After(handedWithin):
		to.late.Store(true)
	}
}

// HandOver implements [backend.Owned].
func (b *Backend) HandOver(context.Context) (to string, err error) {
	if !b.loaded.isSet() || b.over.isSet() {
		return "", fmt.Errorf("%w: this dispatcher does not own the store", dispatch.ErrNoStandby)
	}
	for _, s := range b.shards {
		s.mu.Lock()
		if s.owned && s.warm {
			to = s.feed.name
		} else {
			err = fmt.Errorf("%w: no other dispatcher has shard %d in memory", dispatch.ErrNoStandby, s.number)
		}
		s.mu.Unlock()
		if err != nil {
			return "", err
		}
	}
	b.moving.set()
	return to, nil
}

// Moving is closed when the store is to be handed over: its owner ends what is under way, and calls Release.
func (b *Backend) Moving() <-chan struct{} { return b.moving.c }
