package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/history"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Import implements [dispatch.Portable].
func (s *Store) Import(ctx context.Context, batch *dispatch.PortableBatch) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := checkTasks(batch.Tasks); err != nil {
		return err
	}
	if err := s.importCollectors(batch.Collectors); err != nil {
		return err
	}
	items := len(batch.Gates) + len(batch.Holds) + len(batch.Queues) + len(batch.Tokens) + len(batch.Statuses)
	room := machine.SmallGroup + dispatch.MaxPortableBytes + items*machine.ChangedBytes + len(batch.Statuses)*history.MostBytes
	last, err := s.performImport(room, batch)
	if err != nil {
		return err
	}
	if err := s.durable(ctx, last); err != nil { // it is behind the groups of the collectors
		return err
	}
	return byPage(ctx, s, len(batch.Tasks), dispatch.MaxPortable, func(i int) dispatch.TaskID { return batch.Tasks[i].Task.ID },
		func(page []int) *machine.ImportTasks { return &machine.ImportTasks{Tasks: pick(batch.Tasks, page)} },
		func(*shard, *machine.ImportTasks, []int) {})
}

func (s *Store) performImport(room int, batch *dispatch.PortableBatch) (seen, error) {
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	return s.performAll(room, true, func() { s.importBatch(batch) })
}

// EndCopy implements [dispatch.Portable].
func (s *Store) EndCopy(ctx context.Context) error {
	if s.backend == nil {
		return nil // a store in memory is not opened for a copy
	}
	return s.backend.EndCopy(ctx)
}

// importCollectors replaces what is known of collectors. Their home shards refuse the sessions that were replaced.
func (s *Store) importCollectors(all []dispatch.PortableCollector) error {
	b := &s.collectors
	for i := range all {
		p := &all[i]
		c := collector{
			info: copyInfo(p.Info), first: ms.Of(p.First), seen: ms.Of(p.Seen), told: !p.OnlyPolls, fresh: p.Fresh,
			replaced: slices.Clone(p.Replaced),
		}
		if _, err := b.hold(func() error { return b.record(&c) }); err != nil {
			return err
		}
		if len(c.replaced) == 0 {
			continue
		}
		home := s.shardOfName(c.info.ID)
		if _, err := home.perform(&machine.Mark{Collector: c.info.ID, Session: c.info.Session}); err != nil {
			return err
		}
	}
	return nil
}

// checkTasks checks the tasks of a batch.
func checkTasks(tasks []dispatch.PortableTask) error {
	for i := range tasks {
		t := &tasks[i].Task
		if _, err := dispatch.ParseTaskID(string(t.ID)); err != nil {
			return err
		}
		if (t.State == dispatch.StateLeased) != (t.Lease != nil) {
			return fmt.Errorf("%w: task %s is %s; a lease belongs to tasks that are LEASED", dispatch.ErrInvalid, t.ID, t.State)
		}
	}
	return nil
}

// importBatch takes in all of a batch but the collectors and the tasks.
func (s *Store) importBatch(batch *dispatch.PortableBatch) {
	if len(batch.Holds) > 0 {
		for i := range batch.Holds {
			s.changeNamed(codec.Hold, batch.Holds[i].Key())
		}
		s.holds.holds = s.holds.changed(&dispatch.HoldChange{Set: batch.Holds})
		for _, sh := range s.shards {
			sh.ImportHolds(batch.Holds)
		}
	}
	for i := range batch.Gates {
		for _, sh := range s.shards {
			sh.ImportGate(batch.Gates[i])
		}
	}
	for i := range batch.Queues {
		q := &batch.Queues[i]
		s.shardOfName(q.Name).ImportQueue(q)
	}
	for i := range batch.Tokens {
		for _, sh := range s.shards {
			sh.ImportTokens(&batch.Tokens[i])
		}
	}
	for i := range batch.Statuses {
		s.importStatus(&batch.Statuses[i])
	}
	if batch.Totals != nil {
		s.importTotals(batch.Totals)
	}
}

// importStatus sets what a source counts, in the shard of its seed or of its uid; the tasks are counted by themselves.
func (s *Store) importStatus(p *dispatch.PortableStatus) {
	home := s.shardOfTask(p.Seed)
	if home == nil {
		home = s.shardOfName(p.UID)
	}
	var came dispatch.SourceStatus
	for _, sh := range s.shards {
		sh.AddStatus(p.UID, &came, false)
	}
	home.ImportStatus(p, max(p.Status.Counts.Done-came.Counts.Done, 0)) // the tasks that came are the least
}

// importTotals sets the counters of the store, in its first shard, and what only rises, in all.
func (s *Store) importTotals(want *dispatch.PortableTotals) {
	var have dispatch.PortableTotals
	s.rules.version, s.holds.version = max(s.rules.version, want.RulesVersion), max(s.holds.version, want.HoldsVersion)
	for _, sh := range s.shards {
		sh.ImportVersions(want.Fence, s.rules.version, s.holds.version)
		sh.AddTotals(&have)
	}
	s.start(dispatch.OutageGrace) // nobody knows how long the outage is
	s.shards[0].ImportTotals(want, &have)
}
