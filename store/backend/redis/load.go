package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// Load implements [backend.Backend].
func (b *Backend) Load(ctx context.Context, number int, items backend.Items) error {
	for _, s := range b.of(number) {
		if number == backend.AllShards && s.epoch() == (protocol.Epoch{}) {
			continue
		}
		if err := s.load(ctx, items); err != nil {
			return err
		}
	}
	return nil
}

// load gives all items of the shard, and begins the line of memory. If the term ends meanwhile it begins again in the next one.
func (s *shard) load(ctx context.Context, items backend.Items) error {
	for tries := 0; ; tries++ {
		if s.number == 0 || tries > 0 {
			if err := items.Begin(len(s.b.shards)); err != nil {
				return err
			}
		}
		err := s.loadOnce(ctx, items)
		if !errors.Is(err, errChanged) || !s.ownedAgain(ctx) {
			return err
		}
		s.log.Warn("the shard is loaded again", zap.Error(err))
	}
}

var errChanged = fmt.Errorf("%w: the shard has changed while it was read", dispatch.ErrStoreUnavailable)

// ownedAgain waits until a term goes on, for as long as one lasts, and reports whether it does.
func (s *shard) ownedAgain(ctx context.Context) bool {
	for limit := time.Now().Add(s.b.config.term); time.Now().Before(limit); {
		s.mu.Lock()
		owned := s.owned
		s.mu.Unlock()
		if owned {
			return true
		}
		if sleep(ctx, s.b.config.term/looksOfTerm) != nil {
			return false
		}
	}
	return false
}

func (s *shard) loadOnce(ctx context.Context, items backend.Items) error {
	began := time.Now()
	own, head, err := s.readOwnership(ctx)
	if err != nil {
		return err
	}
	loaded, err := s.readItems(ctx, items)
	if err != nil {
		return unavailable("load the shard "+strconv.Itoa(s.number), err)
	}
	// Items that a failover has changed between two pages are of two ages.
	again, last, err := s.readOwnership(ctx)
	if err == nil && (again != own || !last.Same(head)) {
		err = errChanged
	}
	if err == nil {
		err = s.begin(ctx, own, head)
	}
	if err != nil {
		return err
	}
	if head.Rewriting {
		s.log.Warn("the owner before has died while it wrote again what a failover had lost: some items may be older than others")
	}
	took := time.Since(began)
	s.b.counts.load(took, loaded)
	s.log.Log(s.level(), "the shard is loaded", zap.Int("items", loaded), zap.Duration("took", took.Round(time.Millisecond)))
	if s.number == 0 {
		s.b.loaded.set()
	}
	return nil
}

// readOwnership reads the epoch, which must be that of this owner, and the head.
func (s *shard) readOwnership(ctx context.Context) (own protocol.Epoch, head protocol.Head, err error) {
	s.mu.Lock()
	own = s.own
	owned := s.owned
	s.mu.Unlock()
	if !owned {
		return own, head, errChanged
	}
	err = s.ask(ctx, "read the head", func(ctx context.Context, node *goredis.Client) error {
		pipe := node.TxPipeline()
		epochs, heads := pipe.Get(ctx, s.keys.epoch()), pipe.Get(ctx, s.keys.head())
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, goredis.Nil) {
			return err
		}
		epoch, err := parsed(epochs, parseEpoch)
		if err == nil && epoch != own {
			return errNotOwner
		}
		var headErr error
		head, headErr = parsed(heads, parseHead)
		return errors.Join(err, headErr)
	})
	if errors.Is(err, errNotOwner) {
		err = errChanged
	}
	return own, head, err
}

// begin begins the line of memory that was loaded, once no command is under way that has seen the memory of before.
func (s *shard) begin(ctx context.Context, own protocol.Epoch, head protocol.Head) error {
	for {
		s.mu.Lock()
		waits := s.rooms > 0
		if !waits {
			break
		}
		s.mu.Unlock()
		select {
		case <-s.settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer s.mu.Unlock()
	if !s.owned || s.own != own {
		return errChanged
	}
	s.begins(head)
	if !s.placing {
		s.serves()
	}
	return nil
}

// begins begins the line of memory that is what is kept under a head. The mutex is held.
func (s *shard) begins(head protocol.Head) {
	if s.latest > head.Seq {
		lost := s.latest - head.Seq
		s.b.counts.lost.Add(int64(lost)) //nolint:gosec // it is small
		s.log.Error("a failover has lost changes that the owner before had kept: they died with it", zap.Uint64("tasks", lost))
	}
	s.latest = 0
	s.line = protocol.NewLine(s.own, head)
	s.line.Loaded = true
}
