package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// storeTimeout bounds one call of the store that no single caller's deadline
// bounds, because it is made for several, or must not be cut off half-way.
const storeTimeout = 5 * time.Second

// flightsPerMerger is how many store calls one merger has under way, at most.
const flightsPerMerger = 2

// batches merge what many callers ask of the store at the same time into few
// calls of it. A call that comes while none is under way starts at once, and each
// does of a store that is [Local].
type batches struct {
	shards   int
	polls    *spread[dispatch.Poll, dispatch.PollState]
	presence *spread[dispatch.CollectorInfo, dispatch.PollState]
	infos    *spread[string, *dispatch.CollectorInfo]
	renewals *spread[dispatch.Renewal, dispatch.RenewResult]
	settling *spread[dispatch.Transition, dispatch.ApplyResult]
	reads    *spread[dispatch.TaskID, reading]
	submits  *spread[submitCall, []dispatch.SubmitResult]
}

func newBatches(store dispatch.Store) *batches {
	shards := max(store.Shards(), 1)
	home := func(name string) int { return dispatch.ShardOf(dispatch.SlotOf(name), shards) }
	of := func(id dispatch.TaskID) int { return shardOfTask(id, shards) }
	b := &batches{
		shards:   shards,
		polls:    newSpread(store, storeCall[dispatch.Poll, dispatch.PollState]{"note polls", store.BeginPolls}, bounds.MaxRenewals, func(p dispatch.Poll) int { return home(p.Collector) }),
		presence: newSpread(store, storeCall[dispatch.CollectorInfo, dispatch.PollState]{"record beats", store.Beats}, bounds.MaxRenewals, func(c dispatch.CollectorInfo) int { return home(c.ID) }),
		infos:    newSpread(store, storeCall[string, *dispatch.CollectorInfo]{"read what collectors tell", infoReader(store)}, bounds.MaxRenewals, home),
		renewals: newSpread(store, storeCall[dispatch.Renewal, dispatch.RenewResult]{"renew leases", store.Renew}, bounds.MaxRenewals, func(r dispatch.Renewal) int { return of(r.ID) }),
		settling: newSpread(store, storeCall[dispatch.Transition, dispatch.ApplyResult]{"settle leases", store.Apply}, bounds.MaxTransitions, func(t dispatch.Transition) int { return of(t.ID) }),
		reads:    newSpread(store, storeCall[dispatch.TaskID, reading]{"read tasks", reader(store)}, bounds.MaxRenewals, of),
		submits:  newSpread(store, storeCall[submitCall, []dispatch.SubmitResult]{"submit tasks", submitter(store)}, bounds.MaxSubmissions, func(c submitCall) int { return of(c.items[0].ID) }),
	}
	for _, m := range b.submits.mergers {
		m.sizeOf = func(c submitCall) int { return len(c.items) }
		m.agreement = agreement
	}
	return b
}

func shardOfTask(id dispatch.TaskID, shards int) int {
	return dispatch.ShardOf(max(id.Slot(), 0), shards)
}

func (b *batches) apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	return b.settling.all(ctx, transitions)
}

// reading is a record without its details, and when it was read by the store's
// clock.
type reading struct {
	task *dispatch.Task // nil for none
	now  time.Time
	// spec of the task's source, once that was read, or why it cannot be.
	spec *dispatch.SourceSpec
	err  error
}

func (b *batches) tasks(ctx context.Context, ids []dispatch.TaskID) ([]reading, error) {
	return b.reads.all(ctx, ids)
}

// infoReader reads what collectors tell of themselves; nil where a session has told
// nothing.
func infoReader(store dispatch.Store) func(context.Context, []string) ([]*dispatch.CollectorInfo, error) {
	return func(ctx context.Context, ids []string) ([]*dispatch.CollectorInfo, error) {
		records, err := store.ListCollectors(ctx, dispatch.CollectorFilter{IDs: ids}, "", 0)
		infos := make([]*dispatch.CollectorInfo, len(records))
		for i, r := range records {
			if r != nil && !r.OnlyPolls {
				infos[i] = &r.Info
			}
		}
		return infos, err
	}
}

func reader(store dispatch.Store) func(context.Context, []dispatch.TaskID) ([]reading, error) {
	return func(ctx context.Context, ids []dispatch.TaskID) ([]reading, error) {
		tasks, now, err := store.Tasks(ctx, ids, false)
		readings := make([]reading, len(tasks))
		for i, t := range tasks {
			readings[i] = reading{task: t, now: now}
		}
		return readings, err
	}
}

// merger merges calls of one kind, to one shard. A call that comes while no flight
// is under way starts one at once, if the tower lets it. Others gather until it is
// back, and go together then; when they fill a flight before, that goes beside it. So
// a store that is busy is asked seldom, for many at a time, and one that is far away
// is kept busy. A caller whose ctx ends stops waiting, but its items still go; not so
// while the store does not answer, or they would pile up.
type merger[In, Out any] struct {
	call  storeCall[In, Out]
	tower *tower
	limit int // items in one flight, unless a single caller brings more
	// sizeOf is for how many of the limit an item counts; nil: each for one.
	sizeOf func(In) int
	// agreement begins a flight: it tells of one item after the other whether it can
	// go along; nil: all can. The items of a call go together: they agree.
	agreement func() func(In) bool

	// The tower's mu guards what follows.
	flights int
	waiting []*mergedCall[In, Out]
	items   int // of those that wait, by sizeOf
}

// storeCall asks the store for one result for each item, by the name that it has in
// errors.
type storeCall[In, Out any] struct {
	name string
	ask  func(context.Context, []In) ([]Out, error)
}

func (c *storeCall[In, Out]) of(ctx context.Context, items []In) ([]Out, error) {
	out, err := c.ask(ctx, items)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", c.name, err)
	case len(out) != len(items):
		return nil, fmt.Errorf("%s: the store gave %d answers to %d items", c.name, len(out), len(items))
	}
	return out, nil
}

type mergedCall[In, Out any] struct {
	items []In
	out   []Out
	err   error
	done  chan struct{} // closed once out and err are set
	gone  bool          // nobody waits for it; guarded by the tower's mu
}

// do returns one result for each item, in order.
func (m *merger[In, Out]) do(ctx context.Context, items []In) ([]Out, error) {
	if len(items) == 0 {
		return nil, nil
	}
	m.tower.mu.Lock()
	c := m.add(ctx, items, m.tower.clear())
	m.tower.mu.Unlock()
	return m.wait(ctx, c)
}

// add takes a call in; atOnce: a flight that it begins need not wait.
func (m *merger[In, Out]) add(ctx context.Context, items []In, atOnce bool) *mergedCall[In, Out] {
	c := &mergedCall[In, Out]{items: items, done: make(chan struct{})}
	m.waiting = append(m.waiting, c)
	m.items += m.size(c)
	if m.due(m.flights) {
		m.flights++
		go m.fly(context.WithoutCancel(ctx), m.tower.enter(&m.items, atOnce))
	}
	return c
}

// wait waits for the answer, until a margin before the deadline of ctx.
func (m *merger[In, Out]) wait(ctx context.Context, c *mergedCall[In, Out]) ([]Out, error) {
	late, timer := m.tower.late.start(ctx)
	defer m.tower.late.stop(timer)
	var err error
	select {
	case <-c.done:
		return c.out, c.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-late:
		err = dispatch.ErrStoreUnavailable
	}
	m.tower.mu.Lock()
	c.gone = true
	m.tower.mu.Unlock()
	return nil, fmt.Errorf("%s: %w", m.call.name, err)
}

// fly makes store calls until nobody waits.
func (m *merger[In, Out]) fly(ctx context.Context, f *flight) {
	growStack()
	for trouble := false; f != nil; {
		if f.started != nil {
			<-f.started
		}
		if trouble {
			m.forget()
		}
		// Callers that can run go first, so that what they bring comes along. It makes
		// nobody wait where nobody comes.
		runtime.Gosched()
		calls := m.take()
		if len(calls) > 0 {
			trouble = storeTrouble(m.answer(ctx, calls))
		}
		// First, so that who is answered and asks again does not wait for it.
		f = m.land(f)
		for _, c := range calls {
			close(c.done)
		}
	}
}

// land ends a flight, and is the one after it, nil when none is due.
func (m *merger[In, Out]) land(f *flight) *flight {
	m.tower.mu.Lock()
	defer m.tower.mu.Unlock()
	m.tower.land(f)
	if len(m.waiting) == 0 || !m.due(m.flights-1) {
		m.flights--
		return nil
	}
	return m.tower.enter(&m.items, m.tower.clear())
}

// forget drops calls that nobody waits for.
func (m *merger[In, Out]) forget() {
	m.tower.mu.Lock()
	defer m.tower.mu.Unlock()
	m.waiting = slices.DeleteFunc(m.waiting, func(c *mergedCall[In, Out]) bool {
		if c.gone {
			m.items -= m.size(c)
		}
		return c.gone
	})
}

// due reports whether those that wait are to go while so many flights are under
// way.
func (m *merger[In, Out]) due(flights int) bool {
	return flights == 0 || flights < flightsPerMerger && m.items >= m.limit
}

// take removes the calls of one flight from those that wait, none when none is due
// any more.
func (m *merger[In, Out]) take() []*mergedCall[In, Out] {
	m.tower.mu.Lock()
	defer m.tower.mu.Unlock()
	if len(m.waiting) == 0 || !m.due(m.flights-1) {
		return nil
	}
	fits := func(In) bool { return true }
	if m.agreement != nil {
		fits = m.agreement()
	}
	var calls, others []*mergedCall[In, Out]
	items, n := 0, 0
	for ; n < len(m.waiting); n++ {
		c := m.waiting[n]
		size := m.size(c)
		if len(calls) > 0 && items+size > m.limit {
			break
		}
		if !fits(c.items[0]) {
			others = append(others, c)
			continue
		}
		calls = append(calls, c)
		items += size
	}
	m.waiting = slices.Replace(m.waiting, 0, n, others...)
	m.items -= items
	return calls
}

// size is for how many of the limit a call counts.
func (m *merger[In, Out]) size(c *mergedCall[In, Out]) int {
	if m.sizeOf == nil {
		return len(c.items)
	}
	n := 0
	for _, item := range c.items {
		n += m.sizeOf(item)
	}
	return n
}

// answer makes one store call for all. Where the store refuses that, an item of one
// may have made it refuse them all: then it makes one for each caller, until the store
// is in trouble, which the others need not wait for again. It returns that, or why the
// first call failed.
func (m *merger[In, Out]) answer(ctx context.Context, calls []*mergedCall[In, Out]) error {
	err := m.together(ctx, calls)
	if err == nil || len(calls) == 1 || storeTrouble(err) {
		return err
	}
	for i, c := range calls {
		if c.out, c.err = m.once(ctx, c.items); storeTrouble(c.err) {
			for _, other := range calls[i+1:] {
				other.err = c.err
			}
			return c.err
		}
	}
	return err
}

// together makes one store call for all; its error is that of each.
func (m *merger[In, Out]) together(ctx context.Context, calls []*mergedCall[In, Out]) error {
	items := calls[0].items
	if len(calls) > 1 {
		n := 0
		for _, c := range calls {
			n += len(c.items)
		}
		items = make([]In, 0, n)
		for _, c := range calls {
			items = append(items, c.items...)
		}
	}
	out, err := m.once(ctx, items)
	for _, c := range calls {
		if c.err = err; err == nil {
			c.out, out = out[:len(c.items):len(c.items)], out[len(c.items):]
		}
	}
	return err
}

func (m *merger[In, Out]) once(ctx context.Context, items []In) ([]Out, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	out, err := m.call.of(ctx, items)
	return out, timedOut(ctx, err)
}

// timedOut makes the end of a store call's own deadline what it means to those
// who wait for it.
func timedOut(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(err, dispatch.ErrStoreUnavailable) {
		return fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err)
	}
	return err
}

// storeTrouble reports whether the error is about the store and not about what
// it was asked.
func storeTrouble(err error) bool {
	return errors.Is(err, dispatch.ErrStoreUnavailable) || errors.Is(err, dispatch.ErrStoreReadOnly) || errors.Is(err, dispatch.ErrStoreFull)
}
