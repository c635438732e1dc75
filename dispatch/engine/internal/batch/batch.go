// Package batch merges concurrent calls of one kind into few calls of a store.
//
// Each shard has at most one call in flight. Later callers wait and share the next call, which waits a moment for as
// many callers as the last one had. So a single caller is served at once, and a busy store gets few calls with many
// items.
package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Config of a [Batcher].
type Config[In, Out any] struct {
	// Name of the call in errors.
	Name string
	// Call is the store call: one result for each item, in order. Only Timeout limits it, not the deadline of a caller.
	Call    func(context.Context, []In) ([]Out, error)
	Timeout time.Duration
	// Limit is how many items one call has, unless a single caller has more. Size is the weight of an item in Limit;
	// nil: 1.
	Limit int
	Size  func(In) int
	// Shards of the store, and the one that an item is for.
	Shards  int
	ShardOf func(In) int
	// Direct: calls are not merged. For a store in the same process, where merging costs more than it saves.
	Direct bool
}

// Batcher merges calls. Its methods may be called concurrently. It has no goroutines while no
// call is in flight.
type Batcher[In, Out any] struct {
	cfg    Config[In, Out]
	shards []shard[In, Out]
}

// shard is what waits for one shard of the store.
type shard[In, Out any] struct {
	mu       sync.Mutex // guards what follows
	inFlight bool
	waiting  []*call[In, Out]
	last     int // how many callers went together in the last call
}

// call is the items of one caller for one shard.
type call[In, Out any] struct {
	Part[Out]
	ctx   context.Context //nolint:containedctx // of the caller, who waits for it
	items []In
	done  chan struct{} // closed once Out and Err are set
}

// Part is what one shard answers.
type Part[Out any] struct {
	Indexes []int // of the caller's items
	Out     []Out // one for each index; none if Err is set
	Err     error
}

// New makes a batcher.
func New[In, Out any](cfg Config[In, Out]) *Batcher[In, Out] {
	return &Batcher[In, Out]{cfg: cfg, shards: make([]shard[In, Out], max(cfg.Shards, 1))}
}

// Do returns one result for each item, in order. If a shard fails, it returns the error after all have answered. If ctx
// ends first, it returns the cause; the items may still take effect.
func (b *Batcher[In, Out]) Do(ctx context.Context, items []In) ([]Out, error) {
	switch {
	case len(items) == 0:
		return nil, nil
	case b.cfg.Direct:
		return b.ask(ctx, items)
	}
	results := make([]Out, len(items))
	var failed error
	for _, c := range b.join(ctx, items) {
		part := b.wait(c)
		if part.Err != nil {
			failed = part.Err
			continue
		}
		for n, i := range part.Indexes {
			results[i] = part.Out[n]
		}
	}
	if failed != nil {
		return nil, failed
	}
	return results, nil
}

// Parts calls each shard with its part of the items. It returns a channel of the answers, and their number. A shard
// that hangs does not delay the others.
func (b *Batcher[In, Out]) Parts(ctx context.Context, items []In) (<-chan Part[Out], int) {
	if b.cfg.Direct && len(items) > 0 {
		parts := make(chan Part[Out], 1)
		part := Part[Out]{Indexes: make([]int, len(items))}
		for i := range items {
			part.Indexes[i] = i
		}
		part.Out, part.Err = b.ask(ctx, items)
		parts <- part
		return parts, 1
	}
	calls := b.join(ctx, items)
	parts := make(chan Part[Out], len(calls))
	for _, c := range calls {
		go func() { parts <- b.wait(c) }()
	}
	return parts, len(calls)
}

// join queues the items, as one call for each shard, and starts a shard that has no call in flight.
func (b *Batcher[In, Out]) join(ctx context.Context, items []In) []*call[In, Out] {
	byShard := make(map[int]*call[In, Out], 1)
	calls := make([]*call[In, Out], 0, 1)
	for i, item := range items {
		n := b.cfg.ShardOf(item)
		c := byShard[n]
		if c == nil {
			c = &call[In, Out]{ctx: ctx, done: make(chan struct{})}
			byShard[n], calls = c, append(calls, c)
		}
		c.Indexes, c.items = append(c.Indexes, i), append(c.items, item)
	}
	for n, c := range byShard {
		s := &b.shards[n]
		s.mu.Lock()
		s.waiting = append(s.waiting, c)
		if !s.inFlight {
			s.inFlight = true
			go b.run(context.WithoutCancel(ctx), s)
		}
		s.mu.Unlock()
	}
	return calls
}

// wait waits for the answer to a call, or until its ctx ends.
func (b *Batcher[In, Out]) wait(c *call[In, Out]) Part[Out] {
	select {
	case <-c.done:
		return c.Part
	case <-c.ctx.Done():
		return Part[Out]{Indexes: c.Indexes, Err: fmt.Errorf("%s: %w", b.cfg.Name, context.Cause(c.ctx))}
	}
}

// run calls the store until nobody waits.
func (b *Batcher[In, Out]) run(ctx context.Context, s *shard[In, Out]) {
	for calls := b.take(s); len(calls) > 0; calls = b.take(s) {
		var items []In
		for _, c := range calls {
			items = append(items, c.items...)
		}
		out, err := b.ask(ctx, items)
		for _, c := range calls {
			switch {
			case err == nil:
				c.Out, out = out[:len(c.items):len(c.items)], out[len(c.items):]
			case len(calls) == 1 || Trouble(err):
				c.Err = err
			default: // one caller's items may have made the store refuse them all
				c.Out, c.Err = b.ask(ctx, c.items)
				if Trouble(c.Err) { // then those behind it are not asked for
					err = c.Err
				}
			}
			close(c.done)
		}
	}
}

// take removes the callers of the next store call from the queue. It first waits until there are as many as the last
// time, or for a moment. It drops calls with an ended ctx. If none is left, no call is in flight any more.
func (b *Batcher[In, Out]) take(s *shard[In, Out]) []*call[In, Out] {
	Gather(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.waiting) == 0 || len(s.waiting) >= s.last
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(c *call[In, Out]) bool { return c.ctx.Err() != nil })
	size := 0
	next := slices.IndexFunc(s.waiting, func(c *call[In, Out]) bool {
		before := size
		for _, item := range c.items {
			if size++; b.cfg.Size != nil {
				size += b.cfg.Size(item) - 1
			}
		}
		return before > 0 && size > b.cfg.Limit
	})
	if next < 0 {
		next = len(s.waiting)
	}
	calls := slices.Clone(s.waiting[:next])
	s.waiting = slices.Delete(s.waiting, 0, next)
	if s.inFlight = next > 0; s.inFlight {
		s.last = next
	}
	return calls
}

// ask makes one store call.
func (b *Batcher[In, Out]) ask(ctx context.Context, items []In) ([]Out, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	out, err := b.cfg.Call(ctx, items)
	switch {
	case err != nil && ctx.Err() != nil && !Trouble(err):
		return nil, fmt.Errorf("%s: %w: %w", b.cfg.Name, dispatch.ErrStoreUnavailable, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", b.cfg.Name, err)
	case len(out) != len(items):
		return nil, fmt.Errorf("%s: the store gave %d answers to %d items", b.cfg.Name, len(out), len(items))
	}
	return out, nil
}

// Trouble reports whether the error is about the store and not about the items.
func Trouble(err error) bool {
	return errors.Is(err, dispatch.ErrStoreUnavailable) || errors.Is(err, dispatch.ErrStoreReadOnly) || errors.Is(err, dispatch.ErrStoreFull)
}

// gatherFor is the longest wait for more callers. It is short compared with a call of a busy store.
const gatherFor = time.Millisecond

// Gather waits a moment, or until there are enough callers, so that concurrent callers share a call.
func Gather(enough func() bool) {
	runtime.Gosched()
	if enough() {
		return
	}
	tick := time.NewTicker(gatherFor / 10)
	defer tick.Stop()
	for until := time.Now().Add(gatherFor); !enough() && time.Now().Before(until); {
		<-tick.C
	}
}
