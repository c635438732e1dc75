package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Export implements [dispatch.Portable].
func (s *Store) Export(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	s.snapshots.Lock() // with one tasks go from the memory that was exported to what is exported later
	defer s.snapshots.Unlock()
	if err := s.exportGates(ctx, each); err != nil {
		return err
	}
	for _, sh := range s.shards {
		for next := 0; next >= 0; {
			var batch dispatch.PortableBatch
			err := sh.read(ctx, func(sh *machine.Shard) { next = sh.ExportTasks(&batch, next) })
			if err == nil && len(batch.Tasks) > 0 {
				err = each(&batch)
			}
			if err != nil {
				return err
			}
		}
		if err := sh.exportApart(ctx, each); err != nil {
			return err
		}
	}
	for _, export := range [...]func(context.Context, func(*dispatch.PortableBatch) error) error{
		s.exportQueues, s.exportCollectors, s.exportTokens, s.exportTotals,
	} {
		if err := export(ctx, each); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// exportApart gives the tasks that are apart.
func (s *shard) exportApart(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	if s.clock.archive == nil {
		return nil
	}
	var batch dispatch.PortableBatch
	bytes := 0
	give := func() error {
		of := batch
		if batch, bytes = (dispatch.PortableBatch{}), 0; len(of.Tasks) == 0 {
			return nil
		}
		return each(&of)
	}
	err := s.clock.archive.Each(ctx, s.Number, func(entry []byte) error {
		a, _, ok := codec.CutApart(entry)
		if !ok {
			return fmt.Errorf("%w: a task that is apart cannot be read", dispatch.ErrStoreUnavailable)
		}
		if a.Kind != codec.Task {
			return nil
		}
		if len(batch.Tasks) == dispatch.MaxPortable || bytes+len(a.Fields) > dispatch.MaxPortableBytes {
			if err := give(); err != nil {
				return err
			}
		}
		bytes += len(a.Fields) + machine.ChangedBytes
		var err error
		s.look(func(sh *machine.Shard) { err = sh.ExportApart(&batch, a.Key, a.Fields) })
		return err
	})
	if err != nil {
		return err
	}
	return give()
}

func (s *Store) exportGates(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	var gates []dispatch.SourceGate
	err := s.readAll(ctx, func(sh *machine.Shard) {
		gates = sh.ExportGates(gates)
	})
	return inPages(gates, err, func(page []dispatch.SourceGate) error { return each(&dispatch.PortableBatch{Gates: page}) })
}

// inPages gives what was read, if it was, in pages.
func inPages[T any](all []T, err error, each func(page []T) error) error {
	for page := range slices.Chunk(all, dispatch.MaxPortable) {
		if err == nil {
			err = each(page)
		}
	}
	return err
}

func (s *Store) exportQueues(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	for _, sh := range s.shards {
		var queues []dispatch.PortableQueue
		err := sh.read(ctx, func(sh *machine.Shard) {
			queues = sh.ExportQueues()
		})
		err = inPages(queues, err, func(page []dispatch.PortableQueue) error { return each(&dispatch.PortableBatch{Queues: page}) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) exportCollectors(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	b := &s.collectors
	var all []dispatch.PortableCollector
	err := b.call(ctx, func() error {
		b.byID.Scan(func(id string, c *collector) bool {
			if _, known := b.known(id); known {
				all = append(all, dispatch.PortableCollector{
					Info: copyInfo(c.info), First: ms.Time(c.first), Seen: ms.Time(c.seen), OnlyPolls: !c.told, Fresh: c.fresh,
					Replaced: slices.Clone(c.replaced),
				})
			}
			return true
		})
		return nil
	})
	return inPages(all, err, func(page []dispatch.PortableCollector) error {
		return each(&dispatch.PortableBatch{Collectors: page})
	})
}

// exportTokens gives the used client tokens, each once, though several shards may have one.
func (s *Store) exportTokens(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	steps := make(map[int64]map[uint64]struct{})
	err := s.readAll(ctx, func(sh *machine.Shard) { sh.ExportTokens(steps) })
	for step, tokens := range steps {
		err = inPages(slices.Collect(maps.Keys(tokens)), err, func(page []uint64) error {
			return each(&dispatch.PortableBatch{Tokens: []dispatch.PortableTokens{{Step: step, Digests: page}}})
		})
	}
	return err
}

func (s *Store) exportTotals(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	totals := new(dispatch.PortableTotals)
	if err := s.readAll(ctx, func(sh *machine.Shard) { sh.AddTotals(totals) }); err != nil {
		return err
	}
	return each(&dispatch.PortableBatch{Totals: totals})
}
