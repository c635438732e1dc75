package redis

import (
	"context"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
)

// flight is a group on its way, with those that wait for it. The shard's mutex guards it until done is closed. It stays in the queue of
// its shard until it is kept, also when those that wait have got an error: memory has what is in it.
type flight struct {
	group  group
	sealed bool          // it was sent, so nothing is added
	after  *flight       // of shard 0, that must be kept before; nil: none
	kept   chan struct{} // closed when it is kept
	done   chan struct{} // closed when those that wait are answered
	ended  bool
	err    error          // once done is closed
	then   backend.Commit // is answered before; nil: nothing
}

func newFlight() *flight { return &flight{kept: make(chan struct{}), done: make(chan struct{})} }

// Wait implements [backend.Commit].
func (f *flight) Wait(ctx context.Context) error {
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.err != nil || f.then == nil {
		return f.err
	}
	return f.then.Wait(ctx)
}

// end answers those that wait. The shard's mutex is held.
func (f *flight) end(err error) {
	if !f.ended {
		f.ended, f.err = true, err
		close(f.done)
	}
}

// flights are those of a group that was cut by shards.
type flights []*flight

// Wait implements [backend.Commit].
func (all flights) Wait(ctx context.Context) error {
	for _, f := range all {
		if err := f.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// headBytes are before the items of a group: the instant of its command, which no backend with items needs.
const headBytes = 8

// Commit implements [backend.Backend].
func (b *Backend) Commit(number int, of []byte, _ int) backend.Commit {
	shards := b.of(number)
	for _, s := range shards {
		s.giveBack()
	}
	switch {
	case of == nil:
		return nil
	case len(of) < headBytes:
		return failed(fmt.Errorf("a group of %d bytes is shorter than its head", len(of)))
	case len(shards) == 1 && len(of) > headBytes:
		return shards[0].commit(of[headBytes:], nil)
	}
	parts, err := cutByShard(of[headBytes:], len(shards))
	if err != nil {
		return failed(err)
	}
	var all flights
	var first *flight // the others follow from it
	for n, part := range parts {
		if f := shards[n].commit(part, first); f != nil {
			all = append(all, f)
			if n == 0 && len(part) > 0 {
				first = f
			}
		}
	}
	return all
}

// cutByShard parts the items of a group by their shards.
func cutByShard(items []byte, shards int) ([][]byte, error) {
	parts := make([][]byte, shards)
	for rest := items; len(rest) > 0; {
		_, shard, _, after, ok := codec.CutItem(rest)
		if !ok || shard >= shards {
			return nil, errCut
		}
		parts[shard] = append(parts[shard], rest[:len(rest)-len(after)]...)
		rest = after
	}
	return parts, nil
}

func failed(err error) *flight {
	f := newFlight()
	f.end(fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err))
	return f
}

// commit takes what a command has changed. What comes while a group is on its way goes together, up to maxGroup. Without items it
// returns the last flight; nil: all is kept.
func (s *shard) commit(items []byte, after *flight) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.line.Loaded { // the command has changed what is not the latest state
		return failed(s.closed)
	}
	last := len(s.queue) - 1
	if len(items) == 0 {
		if last < 0 {
			return nil
		}
		return s.queue[last]
	}
	if last < 0 || s.queue[last].sealed || s.queue[last].group.bytes+len(items) > maxGroup {
		s.queue = append(s.queue, newFlight())
		last++
	}
	f := s.queue[last]
	if after != nil {
		f.after = after
	}
	if err := f.group.addAll(items); err != nil { // the store writes what this program cannot read: nothing more is kept
		s.owned, s.quits, s.closed = false, true, fmt.Errorf("%w: a group: %w", dispatch.ErrStoreUnavailable, err)
	}
	if !s.owned {
		f.end(s.closed)
	}
	s.wake()
	return f
}
