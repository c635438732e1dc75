package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
	"github.com/waggle-crawl/waggle/store/codec"
)

// of are the shards that a number means.
func (b *Backend) of(shard int) []*shard {
	if shard == backend.AllShards {
		return b.shards
	}
	return b.shards[shard : shard+1]
}

// Room implements [backend.Backend].
func (b *Backend) Room(shard, bytes int, grows bool) error {
	of := b.of(shard)
	for n, s := range of {
		if err := s.room(bytes/len(of), grows); err != nil {
			giveBack(of[:n])
			return err
		}
	}
	return nil
}

// headBytes are before the items of a group: the instant of its command, which only a standby needs.
const headBytes = 8

// Commit implements [backend.Backend].
func (b *Backend) Commit(number int, of []byte, _ int) backend.Commit {
	shards := b.of(number)
	if of == nil {
		giveBack(shards)
		return nil
	}
	if len(shards) == 1 && len(of) > headBytes {
		return shards[0].commit(of[:headBytes], of[headBytes:], nil)
	}
	parts, err := cutByShard(of, len(shards))
	if err != nil {
		giveBack(shards)
		return failed(err)
	}
	all := make(cutGroup, len(shards))
	var first *pendingGroup // the others follow from it
	for n, part := range parts {
		if all[n] = shards[n].commit(of[:headBytes], part, first); n == 0 && len(part) > 0 {
			first = all[0]
		}
	}
	return all
}

// cutByShard parts the items of a group by their shards.
func cutByShard(group []byte, shards int) ([][]byte, error) {
	if len(group) < headBytes {
		return nil, fmt.Errorf("a group of %d bytes is shorter than its head", len(group))
	}
	parts := make([][]byte, shards)
	for rest := group[headBytes:]; len(rest) > 0; {
		_, shard, _, after, ok := codec.CutItem(rest)
		if !ok || shard >= shards {
			return nil, errCut
		}
		parts[shard] = append(parts[shard], rest[:len(rest)-len(after)]...)
		rest = after
	}
	return parts, nil
}

// Until implements [backend.Backend].
func (b *Backend) Until(ctx context.Context, shard int) (first time.Time, err error) {
	for _, s := range b.of(shard) {
		until, err := s.until(ctx)
		if err != nil {
			return until, err
		}
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first, nil
}

// usable is an error if nothing may be answered or added. The mutex is held.
func (s *shard) usable() error {
	if s.closed == nil && !protocol.MayServe(sinceBoot()-s.renewed, s.b.config.term) {
		return fmt.Errorf("%w: shard %d: %w", dispatch.ErrStoreUnavailable, s.number, errTerm)
	}
	return s.closed
}

// room takes room for a group.
func (s *shard) room(bytes int, grows bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if grows {
		if err := s.memory.grow(bytes); err != nil {
			return err
		}
	}
	s.rooms++
	return nil
}

// giveBack takes back the rooms of shards: no group comes.
func giveBack(shards []*shard) {
	for _, s := range shards {
		s.mu.Lock()
		s.leaveRoom()
		s.mu.Unlock()
	}
}

// leaveRoom takes back what room gave. The mutex is held.
func (s *shard) leaveRoom() {
	if s.rooms--; s.rooms == 0 {
		signal(s.settled)
	}
}

// commit takes what a command has changed. What comes while a group is on its way goes together, up to maxGroup. Without items it
// returns the last group; nil: all is kept.
//
// It gives the room back under the same lock: else a load could begin a line in between, and would keep what memory of before had.
func (s *shard) commit(head, items []byte, after *pendingGroup) *pendingGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveRoom()
	if !s.line.Loaded { // the command has changed what is not the latest state
		return failed(s.closed)
	}
	last := len(s.queue) - 1
	if len(items) == 0 {
		switch {
		case last < 0 && s.doubt == nil:
			return nil
		case last < 0: // all is kept, and too few replicas have it
			f := newPending()
			f.doubt = s.doubt
			close(f.kept)
			f.end(nil)
			return f
		}
		return s.queue[last]
	}
	if last < 0 || s.queue[last].sealed || s.queue[last].group.bytes+len(items) > maxGroup {
		next := newPending()
		if next.whole = s.feed != nil; next.whole {
			next.raw = make([]byte, headBytes, headBytes+len(items))
		}
		s.queue = append(s.queue, next)
		last++
	}
	f := s.queue[last]
	if f.whole {
		copy(f.raw, head) // the standby takes the group as one of the last instant
		f.raw = append(f.raw, items...)
	}
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

// until is up to when the owner may answer.
func (s *shard) until(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.unconfirmed != nil && s.closed == nil {
		confirmed := s.unconfirmed
		s.mu.Unlock()
		select {
		case <-confirmed:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if err := ctx.Err(); err != nil {
			return time.Time{}, err
		}
	}
	return time.Now().Add(s.renewed + s.b.config.term*2/3 - sinceBoot()), s.closed
}

// pendingGroup is a group that is not kept yet, with those that wait for it. The shard's mutex guards it until done is closed. It stays in
// the queue of its shard until it is kept, also if those that wait got an error: memory has what is in it.
type pendingGroup struct {
	group  group
	sealed bool          // it was sent, so nothing is added
	whole  bool          // raw has all of it
	raw    []byte        // for the standby: the items behind the head of a group
	after  *pendingGroup // of shard 0, that must be kept before; nil: none
	kept   chan struct{} // closed when it is kept
	done   chan struct{} // closed when those that wait are answered
	ended  bool
	err    error          // once done is closed; nil: it is kept
	doubt  *doubt         // once it is kept: too few replicas were known to have it; nil: enough were
	then   backend.Commit // is answered before; nil: nothing
	began  time.Time      // when its first change came
}

// doubt is over when a later group has reached enough replicas: these have all before, too.
type doubt struct{ over atomic.Bool }

// isCut reports whether raw lacks the group: nobody stood by when it was begun.
func (f *pendingGroup) isCut() bool { return !f.whole }

var errUnsure = fmt.Errorf("%w: too few replicas of redis have the group, or nobody knows", dispatch.ErrStoreUnavailable)

func newPending() *pendingGroup {
	return &pendingGroup{kept: make(chan struct{}), done: make(chan struct{}), began: time.Now()}
}

func failed(err error) *pendingGroup {
	f := newPending()
	f.end(fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err))
	return f
}

// Wait implements [backend.Commit]. After the end of a term it is an error until the group is kept in a later one.
func (f *pendingGroup) Wait(ctx context.Context) error {
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-f.kept:
	default:
		return f.err
	}
	switch {
	case f.doubt != nil && !f.doubt.over.Load():
		return errUnsure
	case f.then == nil:
		return nil
	}
	return f.then.Wait(ctx)
}

// Part implements [backend.Commit]: the group is of one shard.
func (f *pendingGroup) Part(int) backend.Commit { return f }

// end answers those that wait. The shard's mutex is held.
func (f *pendingGroup) end(err error) {
	if !f.ended {
		f.ended, f.err = true, err
		close(f.done)
	}
}

// cutGroup is a group of all shards, cut by shard; nil: all of that shard is kept.
type cutGroup []*pendingGroup

// Wait implements [backend.Commit].
func (all cutGroup) Wait(ctx context.Context) error {
	for _, f := range all {
		if f == nil {
			continue
		}
		if err := f.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Part implements [backend.Commit].
func (all cutGroup) Part(shard int) backend.Commit {
	if all[shard] == nil {
		return nil
	}
	return all[shard]
}
