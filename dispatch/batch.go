package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// storeTimeout bounds one call of the store that no single caller's deadline
// bounds, because it is made for several, or must not be cut off half-way.
const storeTimeout = 5 * time.Second

// flightsPerMerger is how many store calls one merger has under way.
const flightsPerMerger = 2

// batches merge what many callers ask of the store at the same time into few
// calls of it. A call that comes while none is under way starts at once.
type batches struct {
	shards   int
	polls    *merger[Poll, PollState]
	presence *merger[CollectorInfo, PollState]
	renewals []*merger[Renewal, RenewResult] // by shard: a failing one fails no other
	settling *merger[Transition, ApplyResult]
	reads    *merger[TaskID, *Task]
	submits  *merger[submitItem, SubmitResult]
}

func newBatches(store Store) *batches {
	shards := max(store.Shards(), 1)
	home := func(name string) int { return ShardOf(SlotOf(name), shards) }
	of := func(id TaskID) int { return shardOfTask(id, shards) }
	readAll := func(ctx context.Context, ids []TaskID) ([]*Task, error) { return store.Tasks(ctx, ids, false) }
	b := &batches{
		shards:   shards,
		polls:    newMerger("note polls", MaxRenewals, store.BeginPolls, func(p Poll) int { return home(p.Collector) }),
		presence: newMerger("record beats", MaxRenewals, store.Beats, func(c CollectorInfo) int { return home(c.ID) }),
		settling: newMerger("settle leases", MaxTransitions, store.Apply, func(t Transition) int { return of(t.ID) }),
		submits:  newMerger("submit tasks", MaxSubmissions, submitter(store), func(i submitItem) int { return of(i.item.ID) }),
		reads:    newMerger("read tasks", MaxRenewals, readAll, of),
	}
	for range b.shards {
		b.renewals = append(b.renewals, newMerger("renew leases", MaxRenewals, store.Renew, func(r Renewal) int { return of(r.ID) }))
	}
	return b
}

func shardOfTask(id TaskID, shards int) int { return ShardOf(max(id.Slot(), 0), shards) }

func (b *batches) beginPolls(ctx context.Context, polls []Poll) ([]PollState, error) {
	return b.polls.do(ctx, polls)
}

func (b *batches) beats(ctx context.Context, infos []CollectorInfo) ([]PollState, error) {
	return b.presence.do(ctx, infos)
}

func (b *batches) apply(ctx context.Context, transitions []Transition) ([]ApplyResult, error) {
	return b.settling.do(ctx, transitions)
}

// tasks reads records without their details.
func (b *batches) tasks(ctx context.Context, ids []TaskID) ([]*Task, error) {
	return b.reads.do(ctx, ids)
}

func (b *batches) submit(ctx context.Context, rulesVersion int64, gates []SourceGate, items []Submission) ([]SubmitResult, error) {
	merged := make([]submitItem, len(items))
	for i := range items {
		merged[i] = submitItem{rules: rulesVersion, gates: gates, item: &items[i]}
	}
	return b.submits.do(ctx, merged)
}

// renew renews leases of any shards. A shard that cannot be reached fails none
// of the others: errs has nil, or why the renewal of the same index failed.
func (b *batches) renew(ctx context.Context, renewals []Renewal) (results []RenewResult, errs []error) {
	results, errs = make([]RenewResult, len(renewals)), make([]error, len(renewals))
	byShard := make(map[int][]int)
	for i, r := range renewals {
		shard := shardOfTask(r.ID, b.shards)
		byShard[shard] = append(byShard[shard], i)
	}
	var wg sync.WaitGroup
	for shard, indexes := range byShard {
		wg.Go(func() {
			part := make([]Renewal, len(indexes))
			for n, i := range indexes {
				part[n] = renewals[i]
			}
			answers, err := b.renewals[shard].do(ctx, part)
			for n, i := range indexes {
				if errs[i] = err; err == nil {
					results[i] = answers[n]
				}
			}
		})
	}
	wg.Wait()
	return results, errs
}

// submitItem is one submission with what its submit was prepared from.
type submitItem struct {
	rules int64
	gates []SourceGate
	item  *Submission
}

// submitter submits items of several callers, those together that were prepared
// from the same rules and the same versions of their sources.
func submitter(store Store) func(context.Context, []submitItem) ([]SubmitResult, error) {
	return func(ctx context.Context, items []submitItem) ([]SubmitResult, error) {
		results := make([]SubmitResult, 0, len(items))
		for len(items) > 0 {
			n, gates := agreeing(items)
			batch := make([]Submission, n)
			for i := range batch {
				batch[i] = *items[i].item
			}
			answers, err := store.Submit(ctx, items[0].rules, gates, batch)
			if err != nil {
				return nil, err
			}
			results = append(results, answers...)
			items = items[n:]
		}
		return results, nil
	}
}

// agreeing counts how many of the first items can go in one call, and joins
// their gates.
func agreeing(items []submitItem) (int, []SourceGate) {
	versions := make(map[string]int64)
	var gates []SourceGate
	var last *SourceGate
	for i := range items {
		if items[i].rules != items[0].rules {
			return i, gates
		}
		if len(items[i].gates) == 0 || &items[i].gates[0] == last {
			continue // of the same caller as the item before
		}
		for _, g := range items[i].gates {
			if v, ok := versions[g.UID]; ok && v != g.Version {
				return i, gates
			}
		}
		for _, g := range items[i].gates {
			if _, ok := versions[g.UID]; !ok {
				versions[g.UID] = g.Version
				gates = append(gates, g)
			}
		}
		last = &items[i].gates[0]
	}
	return len(items), gates
}

// merger merges calls of one kind. A call starts at once while fewer than
// flightsPerMerger are under way; others gather until one is back, and go
// together then. A caller whose ctx ends stops waiting, but its items still go.
type merger[In, Out any] struct {
	name  string
	limit int // items in one flight, unless a single caller brings more
	call  func(context.Context, []In) ([]Out, error)
	// shardOf is where an item is.
	shardOf func(In) int

	mu      sync.Mutex // guards flights and waiting
	flights int
	waiting []*mergedCall[In, Out]
}

type mergedCall[In, Out any] struct {
	items []In
	out   []Out
	err   error
	done  chan struct{} // closed once out and err are set
}

func newMerger[In, Out any](name string, limit int, call func(context.Context, []In) ([]Out, error), shardOf func(In) int) *merger[In, Out] {
	return &merger[In, Out]{name: name, limit: limit, call: call, shardOf: shardOf}
}

// do returns one result for each item, in order.
func (m *merger[In, Out]) do(ctx context.Context, items []In) ([]Out, error) {
	if len(items) == 0 {
		return nil, nil
	}
	c := &mergedCall[In, Out]{items: items, done: make(chan struct{})}
	m.mu.Lock()
	m.waiting = append(m.waiting, c)
	if m.flights < flightsPerMerger {
		m.flights++
		go m.fly(context.WithoutCancel(ctx))
	}
	m.mu.Unlock()
	select {
	case <-c.done:
		return c.out, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", m.name, context.Cause(ctx))
	}
}

// fly makes store calls until nobody waits.
func (m *merger[In, Out]) fly(ctx context.Context) {
	for {
		calls := m.take()
		if len(calls) == 0 {
			return
		}
		m.answer(ctx, calls)
		for _, c := range calls {
			close(c.done)
		}
	}
}

// take removes the calls of one flight from those that wait; none ends the
// flight.
func (m *merger[In, Out]) take() []*mergedCall[In, Out] {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, items := 0, 0
	for n < len(m.waiting) && (n == 0 || items+len(m.waiting[n].items) <= m.limit) {
		items += len(m.waiting[n].items)
		n++
	}
	if n == 0 {
		m.flights--
		return nil
	}
	calls := slices.Clone(m.waiting[:n])
	m.waiting = slices.Delete(m.waiting, 0, n)
	return calls
}

// answer makes one store call for all. Where that fails, it makes one for each
// shard, so that one that is away or full fails no other; or one for each caller,
// where an item of one made the store refuse them all.
func (m *merger[In, Out]) answer(ctx context.Context, calls []*mergedCall[In, Out]) {
	err := m.together(ctx, calls)
	if err == nil || len(calls) == 1 {
		return
	}
	if !storeTrouble(err) {
		for _, c := range calls {
			c.out, c.err = m.once(ctx, c.items)
		}
		return
	}
	groups := m.byShard(calls)
	if len(groups) == 1 {
		return
	}
	var wg sync.WaitGroup
	for _, group := range groups {
		wg.Go(func() { _ = m.together(ctx, group) }) // each call has the error
	}
	wg.Wait()
}

// together makes one store call for all; its error is that of each.
func (m *merger[In, Out]) together(ctx context.Context, calls []*mergedCall[In, Out]) error {
	var items []In
	for _, c := range calls {
		items = append(items, c.items...)
	}
	out, err := m.once(ctx, items)
	for _, c := range calls {
		if c.err = err; err == nil {
			c.out, out = out[:len(c.items):len(c.items)], out[len(c.items):]
		}
	}
	return err
}

// byShard groups calls by the shard that all their items are in; those with
// items in several are one group.
func (m *merger[In, Out]) byShard(calls []*mergedCall[In, Out]) map[int][]*mergedCall[In, Out] {
	const several = -1
	groups := make(map[int][]*mergedCall[In, Out])
	for _, c := range calls {
		shard := m.shardOf(c.items[0])
		if slices.ContainsFunc(c.items[1:], func(item In) bool { return m.shardOf(item) != shard }) {
			shard = several
		}
		groups[shard] = append(groups[shard], c)
	}
	return groups
}

func (m *merger[In, Out]) once(ctx context.Context, items []In) ([]Out, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	out, err := m.call(ctx, items)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", m.name, timedOut(ctx, err))
	case len(out) != len(items):
		return nil, fmt.Errorf("%s: the store gave %d answers to %d items", m.name, len(out), len(items))
	}
	return out, nil
}

// timedOut makes the end of a store call's own deadline what it means to those
// who wait for it.
func timedOut(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ErrStoreUnavailable) {
		return fmt.Errorf("%w: %w", ErrStoreUnavailable, err)
	}
	return err
}

// storeTrouble reports whether the error is about the store and not about what
// it was asked.
func storeTrouble(err error) bool {
	return errors.Is(err, ErrStoreUnavailable) || errors.Is(err, ErrStoreReadOnly) || errors.Is(err, ErrStoreFull)
}
