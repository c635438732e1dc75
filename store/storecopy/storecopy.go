// Package storecopy copies everything from one store into another one, of another kind or with another number of shards,
// and compares them.
package storecopy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/history"
)

// ErrDiffer is a copy that is not equal to its original.
var ErrDiffer = errors.New("the copy differs from its original")

// Step is what Copy does.
type Step string

// The steps of a copy, in their order.
const (
	Copying   Step = "copying"
	Comparing Step = "comparing"
)

// Report is what a copy has done.
type Report struct {
	From Sum           `json:"from"`
	To   Sum           `json:"to"`
	Took time.Duration `json:"took"`
}

// leastMargin is how far ahead of a comparison things may end that it leaves out: they may end between the two reads.
const leastMargin = 2 * time.Minute

// Copy copies from into to, and compares the two. No dispatcher may use either. It can be repeated after an error: what is
// in to stays, unless from has changed meanwhile, which is an ErrDiffer. progress is called often, by several goroutines, with the
// number of parts that are done of a step.
func Copy(ctx context.Context, from, to dispatch.Store, progress func(Step, int64)) (report Report, err error) {
	began := time.Now()
	c := &copier{from: from, to: to, uids: make(map[string]bool), seeds: make(map[string]dispatch.TaskID), progress: progress}
	for _, step := range []func(context.Context) error{c.sources, c.rules, c.holds, c.parts, c.statuses, c.totals} {
		if err := step(ctx); err != nil {
			return report, err
		}
	}
	if err := compare(ctx, c, time.Since(began), &report); err != nil {
		return report, err
	}
	report.Took = time.Since(began)
	if report.From != report.To {
		return report, fmt.Errorf("%w: %s, and the copy has %s", ErrDiffer, report.From, report.To)
	}
	return report, to.EndCopy(ctx)
}

// compare sums both stores, at the same time. took is how long the copy took.
func compare(ctx context.Context, c *copier, took time.Duration, report *Report) error {
	now, err := c.from.Now(ctx)
	if err != nil {
		return err
	}
	there, err := c.to.Now(ctx)
	if err != nil {
		return err
	}
	if there.After(now) {
		now = there
	}
	until := now.Add(max(leastMargin, 4*took))
	var compared atomic.Int64
	did := func(n int) { c.progress(Comparing, compared.Add(int64(n))) }
	sums, ctx := errgroup.WithContext(ctx)
	sums.Go(func() (err error) {
		report.From, err = sum(ctx, c.from, until, did)
		return err
	})
	sums.Go(func() (err error) {
		report.To, err = sum(ctx, c.to, until, did)
		return err
	})
	return sums.Wait()
}

// copier copies one store into another one.
type copier struct {
	from, to dispatch.Store
	uids     map[string]bool            // of the sources that shards know
	seeds    map[string]dispatch.TaskID // the first of a source
	last     *dispatch.PortableTotals
	progress func(Step, int64)
	copied   int64
}

func (c *copier) did(n int) {
	c.copied += int64(n)
	c.progress(Copying, c.copied)
}

// eachSource gives all sources of a store.
func eachSource(ctx context.Context, s dispatch.Store, each func(*dispatch.Source) error) error {
	for after, more := "", true; more; {
		var sources []*dispatch.Source
		var err error
		if sources, more, err = s.ListSources(ctx, dispatch.SourceFilter{}, after, dispatch.MaxPortable); err != nil {
			return err
		}
		for _, src := range sources {
			after = src.ID
			if err := each(src); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *copier) sources(ctx context.Context) error {
	return eachSource(ctx, c.from, func(src *dispatch.Source) error {
		if err := c.to.PutSource(ctx, src, 0); err != nil {
			return fmt.Errorf("copy source %s: %w", src.ID, err)
		}
		if len(src.AppliedSeeds) > 0 {
			c.seeds[src.UID] = src.AppliedSeeds[0]
		}
		c.did(1)
		return nil
	})
}

// rules copies the queue rules. Of several for the same settings the last that is put holds, so they are put in the order
// of their changes.
func (c *copier) rules(ctx context.Context) error {
	rules, _, err := c.from.Rules(ctx)
	if err != nil {
		return err
	}
	have, version, err := c.to.Rules(ctx)
	if err != nil {
		return err
	}
	there := make(map[string]bool)
	for i := range have {
		there[have[i].Pattern] = true
	}
	slices.SortStableFunc(rules, func(a, b dispatch.QueueRule) int { return a.Time.Compare(b.Time) })
	for i := range rules {
		if there[rules[i].Pattern] {
			continue
		}
		if version, err = c.to.PutRule(ctx, rules[i].Pattern, &rules[i], version); err != nil {
			return fmt.Errorf("copy queue rule %s: %w", rules[i].Pattern, err)
		}
		c.did(1)
	}
	return nil
}

func (c *copier) holds(ctx context.Context) error {
	holds, _, _, err := c.from.Holds(ctx, -1)
	if err != nil || len(holds) == 0 {
		return err
	}
	if err := c.to.Import(ctx, &dispatch.PortableBatch{Holds: holds}); err != nil {
		return fmt.Errorf("copy holds: %w", err)
	}
	c.did(len(holds))
	return nil
}

// parts copies what the store exports. The next batch is read while one is written.
func (c *copier) parts(ctx context.Context) error {
	batches := make(chan *dispatch.PortableBatch, 1)
	copying, ctx := errgroup.WithContext(ctx)
	copying.Go(func() error {
		defer close(batches)
		return c.from.Export(ctx, func(batch *dispatch.PortableBatch) error {
			select {
			case batches <- batch:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	copying.Go(func() error {
		for batch := range batches {
			if batch.Totals != nil {
				c.last, batch.Totals = batch.Totals, nil // when all is counted
			}
			for _, gate := range batch.Gates {
				c.uids[gate.UID] = true
			}
			if err := c.to.Import(ctx, batch); err != nil {
				return err
			}
			c.did(parts(batch))
		}
		return nil
	})
	return copying.Wait()
}

// parts is how many a batch has.
func parts(batch *dispatch.PortableBatch) int {
	n := len(batch.Tasks) + len(batch.Queues) + len(batch.Collectors)
	for i := range batch.Tokens {
		n += len(batch.Tokens[i].Digests)
	}
	return n
}

// statusesAtOnce is how many sources are counted by one call.
const statusesAtOnce = 100

// statuses copies what is counted of sources, after their tasks.
func (c *copier) statuses(ctx context.Context) error {
	for uids := range slices.Chunk(slices.Sorted(maps.Keys(c.uids)), statusesAtOnce) {
		want, err := c.from.SourceStatuses(ctx, uids, true)
		if err != nil {
			return err
		}
		var batch dispatch.PortableBatch
		for i, uid := range uids {
			batch.Statuses = append(batch.Statuses, dispatch.PortableStatus{UID: uid, Seed: c.seeds[uid], Status: want[i]})
		}
		if err := c.to.Import(ctx, &batch); err != nil {
			return err
		}
		if err := c.filtered(ctx, batch.Statuses); err != nil {
			return err
		}
		c.did(len(uids))
	}
	return nil
}

// filtered adds what the sources of the copy have not counted yet.
func (c *copier) filtered(ctx context.Context, page []dispatch.PortableStatus) error {
	uids := make([]string, len(page))
	for i := range page {
		uids[i] = page[i].UID
	}
	have, err := c.to.SourceStatuses(ctx, uids, false)
	if err != nil {
		return err
	}
	for i := range page {
		more := page[i].Status.Filtered
		for k := range more {
			more[k] -= have[i].Filtered[k]
		}
		if more == (dispatch.Filtered{}) {
			continue
		}
		shard := dispatch.ShardOf(max(page[i].Seed.Slot(), 0), c.to.Shards())
		if page[i].Seed == "" {
			shard = dispatch.ShardOf(dispatch.SlotOf(page[i].UID), c.to.Shards())
		}
		if err := c.to.CountEntries(ctx, shard, page[i].UID, history.Entries{Filtered: more}); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) totals(ctx context.Context) error {
	if c.last == nil {
		return nil
	}
	return c.to.Import(ctx, &dispatch.PortableBatch{Totals: c.last})
}
