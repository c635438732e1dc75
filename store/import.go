package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Import implements [dispatch.Portable].
func (s *Store) Import(ctx context.Context, batch *dispatch.PortableBatch) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	last, err := s.importCollectors(batch.Collectors)
	if err == nil {
		err = s.durable(ctx, last)
	}
	if err != nil {
		return err
	}
	if err := checkTasks(batch.Tasks); err != nil {
		return err
	}
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	if last, err = s.performAll((*importCommand)(batch)); err != nil {
		return err
	}
	return s.durable(ctx, last)
}

// EndCopy implements [dispatch.Portable].
func (s *Store) EndCopy(ctx context.Context) error {
	if s.backend == nil {
		return nil // a store in memory is not opened for a copy
	}
	return s.backend.EndCopy(ctx)
}

// importCollectors replaces what is known of collectors. Their home shards refuse the sessions that were replaced.
func (s *Store) importCollectors(all []dispatch.PortableCollector) (last backend.Commit, err error) {
	b := &s.collectors
	for i := range all {
		p := &all[i]
		c := collector{
			info: copyInfo(p.Info), first: ms.Of(p.First), seen: ms.Of(p.Seen), told: !p.OnlyPolls, fresh: p.Fresh,
			replaced: slices.Clone(p.Replaced),
		}
		if last, err = b.hold(func() error { return b.record(&c) }); err != nil {
			return nil, err
		}
		if len(c.replaced) == 0 {
			continue
		}
		home := s.shardOfName(c.info.ID)
		if last, err = home.perform(&machine.Mark{Collector: c.info.ID, Session: c.info.Session}); err != nil {
			return nil, err
		}
	}
	return last, nil
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

// importCommand is [dispatch.Portable.Import] of all but the collectors.
type importCommand dispatch.PortableBatch

// Room implements [change].
func (c *importCommand) Room() (bytes int, grows bool) {
	items := len(c.Gates) + len(c.Tasks) + len(c.Holds) + len(c.Queues) + len(c.Tokens) + len(c.Statuses)
	return machine.SmallGroup + dispatch.MaxPortableBytes + items*machine.ChangedBytes, true
}

func (c *importCommand) runAll(s *Store) {
	if len(c.Holds) > 0 {
		for i := range c.Holds {
			s.changeNamed(codec.Hold, c.Holds[i].Key())
		}
		s.holds.holds = s.holds.changed(&dispatch.HoldChange{Set: c.Holds})
		for _, sh := range s.shards {
			sh.ImportHolds(c.Holds)
		}
	}
	for i := range c.Gates {
		for _, sh := range s.shards {
			sh.ImportGate(c.Gates[i])
		}
	}
	for i := range c.Tasks {
		s.shardOfTask(c.Tasks[i].Task.ID).ImportTask(&c.Tasks[i])
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		s.shardOfName(q.Name).ImportQueue(q)
	}
	for i := range c.Tokens {
		for _, sh := range s.shards {
			sh.ImportTokens(&c.Tokens[i])
		}
	}
	for i := range c.Statuses {
		s.importStatus(&c.Statuses[i])
	}
	if c.Totals != nil {
		s.importTotals(c.Totals)
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
		sh.AddStatus(p.UID, &came)
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
	(&startCommand{away: dispatch.OutageGrace}).runAll(s) // nobody knows how long the outage is
	s.shards[0].ImportTotals(want, &have)
}
