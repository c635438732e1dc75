package memstore

import (
	"context"
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

var _ dispatch.Portable = (*Store)(nil)

// Export implements [dispatch.Portable].
func (s *Store) Export(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	if err := s.exportGates(ctx, each); err != nil {
		return err
	}
	for _, sh := range s.shards {
		for next := 0; next >= 0; {
			var batch dispatch.PortableBatch
			err := sh.read(ctx, func(sh *shard) { next = sh.exportTasks(&batch, next) })
			if err == nil && len(batch.Tasks) > 0 {
				err = each(&batch)
			}
			if err != nil {
				return err
			}
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

func (s *Store) exportGates(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	var gates []dispatch.SourceGate
	err := s.readAll(ctx, func(sh *shard) {
		gates = sh.exportGates(gates)
	})
	if err != nil {
		return err
	}
	for page := range slices.Chunk(gates, dispatch.MaxPortable) {
		if err := each(&dispatch.PortableBatch{Gates: page}); err != nil {
			return err
		}
	}
	return nil
}

// exportGates adds the gates of the sources.
func (s *shard) exportGates(gates []dispatch.SourceGate) []dispatch.SourceGate {
	for src := range s.sources.all() {
		gates = append(gates, src.gate)
	}
	return gates
}

// exportTasks gives a page of the tasks of a shard, and where the next begins; -1: nowhere. With those of a source that
// the shard has forgotten comes its gate.
func (s *shard) exportTasks(batch *dispatch.PortableBatch, from int) (next int) {
	bytes := 0
	for {
		r, after, ok := s.records.from(from)
		if !ok {
			return -1
		}
		if n := len(batch.Tasks); n == dispatch.MaxPortable || n > 0 && bytes+r.listedBytes() > dispatch.MaxPortableBytes {
			return from
		}
		if from = after; s.known(r) == nil {
			continue
		}
		if src, n := r.lane.source, len(batch.Gates); src.forgotten && (n == 0 || batch.Gates[n-1].UID != src.gate.UID) {
			batch.Gates = append(batch.Gates, src.gate)
		}
		bytes += r.listedBytes()
		batch.Tasks = append(batch.Tasks, dispatch.PortableTask{ForgetAt: instant(r.forgetAt)})
		t := &batch.Tasks[len(batch.Tasks)-1]
		s.copyTo(&t.Task, r, allDetails)
		if r.waiting() {
			t.Task.Lock = s.tellStray(r)
		}
		if l := r.lease; l != nil {
			t.Session, t.LockDeleted = l.note.session, l.lockDeleted
		}
	}
}

func (s *Store) exportQueues(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	for _, sh := range s.shards {
		var queues []dispatch.PortableQueue
		err := sh.read(ctx, func(sh *shard) {
			queues = sh.exportQueues()
		})
		if err != nil {
			return err
		}
		for page := range slices.Chunk(queues, dispatch.MaxPortable) {
			if err := each(&dispatch.PortableBatch{Queues: page}); err != nil {
				return err
			}
		}
	}
	return nil
}

// exportQueues gives the queues.
func (s *shard) exportQueues() (queues []dispatch.PortableQueue) {
	s.queueNames.Scan(func(_ string, q *queue) bool {
		if !q.over(s.now) {
			queues = append(queues, q.export())
		}
		return true
	})
	return queues
}

func (q *queue) export() dispatch.PortableQueue {
	return dispatch.PortableQueue{
		Name: q.name, NextGrant: instant(q.nextGrant), Blocked: instant(q.blocked), BlockedAt: instant(q.blockedAt),
		BlockStep: q.blockStep, Cause: clone(q.cause), Asked: q.asked, FailedURLs: slices.Clone(q.failedURLs),
	}
}

func (s *Store) exportCollectors(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	b := &s.collectors
	var all []dispatch.PortableCollector
	b.begin()
	b.byID.Scan(func(id string, c *collector) bool {
		if _, known := b.known(id); known {
			all = append(all, dispatch.PortableCollector{
				Info: copyInfo(c.info), First: instant(c.first), Seen: instant(c.seen), OnlyPolls: !c.told, Fresh: c.fresh,
				Replaced: slices.Clone(c.replaced),
			})
		}
		return true
	})
	last := b.last
	b.mu.Unlock()
	if err := durable(ctx, last); err != nil {
		return err
	}
	for page := range slices.Chunk(all, dispatch.MaxPortable) {
		if err := each(&dispatch.PortableBatch{Collectors: page}); err != nil {
			return err
		}
	}
	return nil
}

// exportTokens gives the used client tokens, each once, though several shards may have one.
func (s *Store) exportTokens(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	steps := make(map[int64]map[uint64]struct{})
	err := s.readAll(ctx, func(sh *shard) { sh.exportTokens(steps) })
	if err != nil {
		return err
	}
	for step, tokens := range steps {
		for page := range slices.Chunk(slices.Collect(maps.Keys(tokens)), dispatch.MaxPortable) {
			if err := each(&dispatch.PortableBatch{Tokens: []dispatch.PortableTokens{{Step: step, Digests: page}}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// exportTokens adds the used client tokens by their steps.
func (s *shard) exportTokens(steps map[int64]map[uint64]struct{}) {
	for step, tokens := range s.used {
		if step < dispatch.TokenStep(instant(s.now))-1 {
			continue
		}
		if steps[step] == nil {
			steps[step] = make(map[uint64]struct{})
		}
		maps.Copy(steps[step], tokens.has)
	}
}

func (s *Store) exportTotals(ctx context.Context, each func(*dispatch.PortableBatch) error) error {
	totals, err := s.totals(ctx)
	if err != nil {
		return err
	}
	return each(&dispatch.PortableBatch{Totals: totals})
}

func (s *Store) totals(ctx context.Context) (*dispatch.PortableTotals, error) {
	totals := new(dispatch.PortableTotals)
	err := s.readAll(ctx, func(sh *shard) { sh.addTotals(totals) })
	return totals, err
}

// addTotals adds what the shard counts.
func (s *shard) addTotals(totals *dispatch.PortableTotals) {
	totals.Fence = max(totals.Fence, s.lastFence)
	totals.RulesVersion, totals.HoldsVersion = max(totals.RulesVersion, s.rulesVersion), max(totals.HoldsVersion, s.holdsVersion)
	totals.Granted += s.granted
	totals.Settled += s.settled
	totals.Expired += s.expired
	totals.Orphaned += s.orphaned
	totals.Dropped += s.dropped
	totals.Done += s.counts[dispatch.StateDone]
}
