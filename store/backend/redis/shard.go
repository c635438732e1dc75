package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
	"github.com/waggle-crawl/waggle/store/codec"
)

// shard is a shard as one who owns it, or wants to, sees it. The decisions are those of package protocol.
type shard struct {
	config *config
	me     protocol.Process
	number int
	keys   keys
	// client is for what needs no connection of its own.
	client goredis.UniversalClient
	// options gives those of the server that has the shard now.
	options func(ctx context.Context) (goredis.Options, error)
	log     *zap.Logger
	// snapshot gives all items as of one instant, with their locks, in pages. begun is called at that instant.
	snapshot func(begun func(), page func(items []byte, locks []lock) error) error

	mu      sync.Mutex // guards what follows
	highest uint64     // the highest epoch that was read or minted
	own     protocol.Epoch
	record  record    // as it was written last
	renewed time.Time // just before the last renewal was sent that was confirmed
	lost    error     // why the shard is not owned; nil: it is
	line    protocol.Line
	doubt   bool      // the head must be read before the next group
	waiting []*flight // groups that are to be sent, in order
	awake   chan struct{}
}

// flight is a group with those that wait for it.
type flight struct {
	group group
	done  chan struct{}
	err   error             // once done is closed
	bare  []dispatch.TaskID // of its grants, the tasks that somebody else has locked
}

// Wait returns nil when the group is kept.
func (f *flight) Wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *flight) end(err error) {
	f.err = err
	close(f.done)
}

// looksOfTerm is how often a candidate reads the record in a term, beatsOfTerm how often an owner renews it.
const looksOfTerm, beatsOfTerm = 12, 6

// campaign returns when the shard is owned under an epoch of its own: at once if nobody has it or its owner has released it, else a term
// after the last renewal that could be read.
func (s *shard) campaign(ctx context.Context) error {
	for {
		err := s.watchRecord(ctx)
		if err == nil || !isUnavailable(err) || ctx.Err() != nil {
			return err
		}
		s.log.Warn("cannot read who owns the shard", zap.Int("shard", s.number), zap.Error(err))
		if err := sleep(ctx, s.config.term/looksOfTerm); err != nil {
			return err
		}
	}
}

// watchRecord is a campaign on one connection. When that breaks the watch of the record is over: the next connection may lead to a
// replica that has never received the owner's last renewals.
func (s *shard) watchRecord(ctx context.Context) error {
	options, err := s.options(ctx)
	if err != nil {
		return err
	}
	l := newLink(options, s.keys)
	defer func() { _ = l.close() }() // nothing is lost with it
	var last string
	var since time.Time // the record was read like that from then on
	for {
		f, err := look(ctx, l.conn, s.keys)
		if err == nil {
			err = s.acceptable(f.record)
		}
		if err != nil {
			return err
		}
		if now := time.Now(); f.texts[1] != last || since.IsZero() {
			since, last = now, f.texts[1]
		}
		if owned, err := s.tryAcquire(ctx, l, f, time.Since(since)); owned || err != nil {
			return err
		}
		if err := sleep(ctx, s.config.term/looksOfTerm); err != nil {
			return err
		}
	}
}

// acceptable is an error if this program must not own what the record says.
func (s *shard) acceptable(r record) error {
	switch {
	case r.Format > format:
		return fmt.Errorf("%w: shard %d has items of format %d, this release knows %d", dispatch.ErrStoreMismatch, s.number, r.Format, format)
	case r.Shards != 0 && r.Shards != s.config.shards:
		return fmt.Errorf("%w: the store has %d shards, not %d", dispatch.ErrStoreMismatch, r.Shards, s.config.shards)
	}
	return nil
}

// tryAcquire acquires the shard if it may.
func (s *shard) tryAcquire(ctx context.Context, l *link, f found, watched time.Duration) (bool, error) {
	of, err := f.record.owns()
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.highest = max(s.highest, f.epoch.Number, of.Epoch.Number)
	epoch := protocol.NextEpoch(s.me, f.epoch, s.highest)
	s.mu.Unlock()
	if f.texts[1] != "" && !protocol.MayAcquire(s.me, of, watched, s.config.term) {
		return false, nil
	}
	next := record{
		Name: s.config.name, Address: s.config.address, Epoch: epochText(epoch), Format: format, Shards: s.config.shards,
	}
	sent := time.Now()
	ok, err := acquire(ctx, l.conn, s.keys, f, epoch, next)
	if err != nil || !ok {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.highest, s.own, s.record, s.renewed, s.lost, s.doubt = epoch.Number, epoch, next, sent, nil, true
	return true, nil
}

// until is until when the owner may answer; the error says why it may not at all.
func (s *shard) until() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed.Add(s.config.term * 2 / 3), s.lost
}

// renewing renews the record until ctx ends or another owner has the shard.
func (s *shard) renewing(ctx context.Context) error {
	for {
		if err := sleep(ctx, s.config.term/beatsOfTerm); err != nil {
			return err
		}
		if err := s.renew(ctx); errors.Is(err, errNotOwner) {
			return err
		} else if err != nil {
			s.log.Warn("cannot renew the ownership of the shard", zap.Int("shard", s.number), zap.Error(err))
		}
	}
}

// renew renews the record once.
func (s *shard) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.term*2/3)
	defer cancel()
	s.mu.Lock()
	own, last := s.own, s.record
	s.mu.Unlock()
	next := last
	next.Beat++
	sent := time.Now()
	r, err := renew(ctx, s.client, s.keys, own, next)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record, s.renewed = next, sent
	// While a group is on its way the head may be the one of before or its own.
	if step := s.line.Resolve(own, own, r.head); s.line.Loaded && step != protocol.Resend && step != protocol.Confirm {
		s.doubt = true
		s.wake()
	}
	return nil
}

// stepDown ends ownership here: nothing is answered any more, and groups that wait fail.
func (s *shard) stepDown(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, why)
	}
	for _, f := range s.waiting {
		f.end(s.lost)
	}
	s.waiting = nil
}

// commit takes what a command has changed. What comes while a group is on its way goes together, up to maxGroup.
func (s *shard) commit(items []byte, locks []lock) (*flight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil {
		return nil, s.lost
	}
	last := len(s.waiting) - 1
	if last < 0 || s.waiting[last].group.bytes+len(items) > maxGroup {
		s.waiting = append(s.waiting, &flight{done: make(chan struct{})})
		last++
	}
	f := s.waiting[last]
	if err := f.group.add(items); err != nil {
		return nil, err
	}
	f.group.locks = append(f.group.locks, locks...)
	s.wake()
	return f, nil
}

// load gives all items of the shard to take, and begins the line of memory. It fails if the shard was lost meanwhile.
func (s *shard) load(ctx context.Context, take func(item []byte) error) error {
	s.mu.Lock()
	own := s.own
	s.mu.Unlock()
	head, err := parsed(s.client.Get(ctx, s.keys.head()), parseHead)
	if err != nil {
		return err
	}
	var item []byte
	err = s.eachPage(ctx, func(_ string, fields []string) error {
		for i := 0; i < len(fields); i += 2 {
			item = codec.AppendEncoded(item[:0], codec.Kind(fields[i][0]), s.number, []byte(fields[i+1]))
			if err := take(item); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Items that a failover has changed between two pages are of two ages.
	found, err := look(ctx, s.client, s.keys)
	if err != nil {
		return err
	}
	again, err := parsed(s.client.Get(ctx, s.keys.head()), parseHead)
	switch {
	case err != nil:
		return err
	case found.epoch != own || !again.Same(head):
		return fmt.Errorf("%w: shard %d has changed while it was read", dispatch.ErrStoreUnavailable, s.number)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = protocol.NewLine(own, head)
	s.line.Loaded = true
	return nil
}

// eachPage gives the fields of all hashes and their values, in turns. What is there all the while comes at least once.
func (s *shard) eachPage(ctx context.Context, page func(hash string, fields []string) error) error {
	for n := range buckets {
		hash := bucketName(n)
		for cursor := uint64(0); ; {
			fields, next, err := s.client.HScan(ctx, s.keys.prefix+hash, cursor, "", pageOfItems).Result()
			if err == nil {
				err = page(hash, fields)
			}
			if err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// pageOfItems is how many items are read at a time, about.
const pageOfItems = 1000

// wake makes the writer look at what there is to do. mu is held.
func (s *shard) wake() {
	select {
	case s.awake <- struct{}{}:
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

// isUnavailable reports whether an error is one of a server that does not answer or is no primary, which ends by itself.
func isUnavailable(err error) bool {
	return !errors.Is(err, dispatch.ErrStoreMismatch) && !errors.Is(err, context.Canceled)
}
