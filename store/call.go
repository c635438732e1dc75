package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
)

// This file has how calls go: a call that changes something makes commands, one that reads looks, and both return when
// the backend has what they changed or saw.

// clock is the time of a store, what keeps it, and whether it is closed, shared by all its parts. Instants are in milliseconds, 0 = not
// set.
type clock struct {
	now     func() time.Time
	backend backend.Backend // nil: nothing outlives the process
	archive backend.Archive // the same, if it keeps tasks apart
	keyed   bool            // leases have locks: [backend.Term]
	broken  atomic.Bool     // a command panicked in its middle
	failed  chan struct{}   // closed then
	closed  chan struct{}   // closed with the store
}

var errBroken = fmt.Errorf("%w: a command failed in its middle; the store must be opened anew", dispatch.ErrStoreUnavailable)

var errClosed = fmt.Errorf("%w: the store is closed", dispatch.ErrStoreUnavailable)

// usable is nil while calls can be answered.
func (c *clock) usable(ctx context.Context) error {
	select {
	case <-c.closed:
		return errClosed
	default:
	}
	if c.broken.Load() {
		return errBroken
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// durable returns when what a call has seen is kept, and the call may be answered: the store has no other owner yet.
func (c *clock) durable(ctx context.Context, all ...seen) error {
	if c.backend == nil {
		return nil
	}
	for _, of := range all {
		if of.last == nil {
			continue
		}
		if err := of.last.Wait(ctx); err != nil {
			return err
		}
	}
	for _, of := range all { // behind all waits: a term may end meanwhile
		until, err := c.backend.Until(ctx, of.shard)
		if err == nil && !until.IsZero() && time.Until(until) <= 0 {
			err = fmt.Errorf("%w: its owner could not renew its term", dispatch.ErrStoreUnavailable)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *clock) millis() int64 { return c.now().UnixMilli() }

// part is what one mutex guards: a shard, the sources, the collectors, or bindings, the audit log and notices.
type part struct {
	clock *clock

	mu sync.Mutex
	// now and micros are the instant of the call that holds mu: time is read once per call.
	now    int64
	micros uint64
	entry  []byte // room for the next group
	// last is the group of the last command.
	last backend.Commit
}

// begin starts a call: it takes the mutex and reads the clock.
func (p *part) begin() {
	p.mu.Lock()
	p.setInstant(p.clock.now())
}

func (p *part) setInstant(now time.Time) {
	p.now, p.micros = now.UnixMilli(), ms.Micros(now)
}

// call makes a call: run changes or reads the part while the call holds the mutex. It returns when what it has changed or read is
// kept.
func (p *part) call(ctx context.Context, run func() error) error {
	if err := p.clock.usable(ctx); err != nil {
		return err
	}
	last, err := p.hold(run)
	if err != nil {
		return err
	}
	return p.clock.durable(ctx, seen{bookShard, last})
}

// hold runs something while it holds the mutex. What it returns waits until what that has changed or read is kept.
func (p *part) hold(run func() error) (backend.Commit, error) {
	p.begin()
	defer p.mu.Unlock()
	err := run()
	return p.last, err
}

// A group begins with the instant of its command, in microseconds since 1970, the lowest byte first. Items follow: those that the
// command has changed, as they are now, or the parts of them that have changed, and those that it has removed.
const groupHead = 8

// bookShard is the shard whose groups have what is of no shard.
const bookShard = 0

// seen is what a call has changed or read: a shard as it was when that commit was its last.
type seen struct {
	shard int
	last  backend.Commit // nil: nothing was changed yet
}

// kept waits until a record of the part is kept. unkept points to the group of the record; nil: the record is kept. The term of the
// shard counts only until then.
func (p *part) kept(ctx context.Context, unkept *backend.Commit) error {
	p.mu.Lock()
	group := *unkept
	p.mu.Unlock()
	if group == nil {
		return nil
	}
	if err := p.clock.durable(ctx, seen{bookShard, group}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if *unkept == group {
		*unkept = nil
	}
	return nil
}

// commit runs a change while the call holds the mutex, and has what it has changed kept, which group appends; room and grows are as
// [machine.Command] has them. A change of nothing has no group, unless it is one of all shards: then last is later than all before
// in any part.
func (p *part) commit(shard, room int, grows bool, run func(), group func(out []byte) []byte) error {
	if p.clock.broken.Load() {
		return errBroken
	}
	keep := p.clock.backend
	if keep == nil {
		p.runWhole(run)
		return nil
	}
	if err := keep.Room(shard, room, grows); err != nil {
		return err
	}
	p.runWhole(func() {
		run()
		p.entry = group(binary.LittleEndian.AppendUint64(p.entry[:0], p.micros))
	})
	if len(p.entry) == groupHead && shard != backend.AllShards {
		keep.Commit(shard, nil, room)
		return nil
	}
	p.last = keep.Commit(shard, p.entry, room)
	if cap(p.entry) > maxEntryRoom {
		p.entry = nil
	}
	return nil
}

// runWhole runs a command. If it panics, the store is not used any more: nothing that it has changed is kept.
func (p *part) runWhole(run func()) {
	whole := false
	defer func() {
		if !whole {
			if p.clock.broken.CompareAndSwap(false, true) {
				close(p.clock.failed)
			}
		}
	}()
	run()
	whole = true
}

// maxEntryRoom bounds the room that a part keeps for its next group.
const maxEntryRoom = 1 << 20

// shard is one of a store: the machine with what one mutex guards.
type shard struct {
	part
	*machine.Shard
	publish func(dispatch.Hint)
	away    atomic.Bool // of a store that is keyed: what is kept is not in memory yet, or not any more
}

// begin starts a call.
func (s *shard) begin() {
	s.mu.Lock()
	s.setInstant(s.clock.now())
}

func (s *shard) setInstant(now time.Time) {
	s.part.setInstant(now)
	s.Shard.At(now)
}

// shard finds a shard by its number.
func (s *Store) shard(ctx context.Context, number int) (*shard, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if number < 0 || number >= len(s.shards) {
		return nil, fmt.Errorf("%w: shard %d is not 0 to %d", dispatch.ErrInvalid, number, len(s.shards)-1)
	}
	return s.shards[number], nil
}

// doIn makes a change of a shard, and returns when the backend has it.
func (s *Store) doIn(ctx context.Context, shard int, c machine.Command) error {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return err
	}
	return sh.do(ctx, c)
}

// do makes a change, and returns when the backend has it.
func (s *shard) do(ctx context.Context, c machine.Command) error {
	last, err := s.performNamed(ctx, c)
	if err != nil {
		return err
	}
	return s.clock.durable(ctx, last)
}

// recheck has a command look again at what it has answered, once that is kept, if the backend has locks: see [machine.Unlocked].
func (s *shard) recheck(look func(*machine.Shard)) {
	if !s.clock.keyed {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	look(s.Shard)
}

// perform makes a change. What it returns waits until the backend has it.
func (s *shard) perform(c machine.Command) (seen, error) {
	s.begin()
	defer s.end()
	err := s.performHeld(c)
	return seen{s.Number, s.last}, err
}

// performNamed makes a change of tasks that it may name. What it returns waits until the backend has it.
func (s *shard) performNamed(ctx context.Context, c machine.Command) (seen, error) {
	s.begin()
	defer s.end()
	if named, ok := c.(machine.Named); ok {
		if err := s.recall(ctx, named); err != nil {
			return seen{}, err
		}
	}
	err := s.performHeld(c)
	return seen{s.Number, s.last}, err
}

// recall has the tasks at hand that are named and apart, while the call holds the mutex: it lets go of that to read them.
func (s *shard) recall(ctx context.Context, named machine.Named) error {
	if s.clock.archive == nil {
		return nil
	}
	var r machine.Recall
	for {
		keys, err := s.Ask(&r, named)
		if err != nil {
			return fmt.Errorf("%w: shard %d: %w", dispatch.ErrStoreUnavailable, s.Number, err)
		}
		if keys == nil {
			return nil
		}
		s.mu.Unlock()
		err = s.clock.archive.Recall(ctx, s.Number, keys, r.Add)
		s.begin()
		if err != nil {
			return err
		}
	}
}

// performHeld makes a change while the call holds the mutex.
func (s *shard) performHeld(c machine.Command) error {
	room, grows := c.Room()
	return s.commit(s.Number, room, grows, func() { s.Shard.Perform(c.Run) }, s.Group)
}

// read reads the shard, and returns when the backend has what was read.
func (s *shard) read(ctx context.Context, work func(*machine.Shard)) error {
	return s.clock.durable(ctx, s.look(work))
}

// readTasks reads tasks of the shard, and returns when the backend has what was read.
func (s *shard) readTasks(ctx context.Context, ids machine.IDs, work func(*machine.Shard)) error {
	s.begin()
	err := s.recall(ctx, ids)
	if err == nil {
		work(s.Shard)
	}
	last := seen{s.Number, s.last}
	if s.end(); err != nil {
		return err
	}
	return s.clock.durable(ctx, last)
}

// look reads the shard. What it returns waits until the backend has what was read.
func (s *shard) look(work func(*machine.Shard)) seen {
	s.begin()
	defer s.end()
	work(s.Shard)
	return seen{s.Number, s.last}
}

// end ends a call: it sends hints for what became grantable earlier.
func (s *shard) end() {
	hints := s.Hints()
	s.EndCall()
	s.mu.Unlock()
	for _, hint := range hints {
		s.publish(hint)
	}
}

// byShard gives, for each shard that owns some of n tasks, the indexes of those tasks in order, at most limit at a time.
// Ids without a slot are left out.
func (s *Store) byShard(n, limit int, id func(int) dispatch.TaskID) iter.Seq2[*shard, []int] {
	groups := make([][]int, len(s.shards))
	if len(groups) == 1 {
		groups[0] = make([]int, 0, n)
	}
	for i := range n {
		if sh := s.shardOfTask(id(i)); sh != nil {
			groups[sh.Number] = append(groups[sh.Number], i)
		}
	}
	return func(yield func(*shard, []int) bool) {
		for number, group := range groups {
			for page := range slices.Chunk(group, limit) {
				if !yield(s.shards[number], page) {
					return
				}
			}
		}
	}
}

// byPage makes a change of n tasks: a command for each page of those of a shard. When the backend has all of them, done takes the
// answers of each.
func byPage[C machine.Command](
	ctx context.Context, s *Store, n, limit int, id func(int) dispatch.TaskID, of func(page []int) C, done func(sh *shard, c C, page []int),
) error {
	// A shard's last commit says nothing of the others: it may be old, if the call changed nothing there.
	var all []seen
	var answers []func()
	for sh, page := range s.byShard(n, limit, id) {
		c := of(page)
		last, err := sh.performNamed(ctx, c)
		if err != nil {
			return err
		}
		all = append(all, last)
		answers = append(answers, func() { done(sh, c, page) })
	}
	if err := s.durable(ctx, all...); err != nil {
		return err
	}
	for _, answer := range answers {
		answer()
	}
	return nil
}

// spread puts the answers for a page to their places among all.
func spread[R any](all []R, page []int, answers []R) {
	for n, i := range page {
		all[i] = answers[n]
	}
}

// pick gives those members in that order: all of them as they are, or copies.
func pick[T any](all []T, page []int) []T {
	if len(page) == len(all) && slices.IsSorted(page) {
		return all
	}
	picked := make([]T, len(page))
	for n, i := range page {
		picked[n] = all[i]
	}
	return picked
}

// readAll reads all shards, one after the other.
func (s *Store) readAll(ctx context.Context, work func(*machine.Shard)) error {
	return s.readEach(ctx, s.shards, work)
}

// readEach reads shards, one after the other.
func (s *Store) readEach(ctx context.Context, shards []*shard, work func(*machine.Shard)) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	all := make([]seen, len(shards))
	for i, sh := range shards {
		all[i] = sh.look(work)
	}
	return s.durable(ctx, all...)
}

// lockShards begins a call on shards, in their order, at one instant.
func (s *Store) lockShards(shards []*shard) {
	for _, sh := range shards {
		sh.mu.Lock()
	}
	now := s.now()
	for _, sh := range shards {
		sh.setInstant(now)
	}
}

func unlockShards(shards []*shard) {
	for _, sh := range shards {
		sh.end()
	}
}

// performAll makes a change of all shards, as one; room and grows are as [machine.Command] has them. What it returns waits until
// the backend has it.
func (s *Store) performAll(room int, grows bool, run func()) (seen, error) {
	s.lockShards(s.shards)
	defer unlockShards(s.shards)
	first := &s.shards[0].part
	err := first.commit(backend.AllShards, room, grows, func() {
		run()
		for _, sh := range s.shards {
			sh.Shard.Perform(func(*machine.Shard) {})
		}
	}, s.groupAll)
	if err != nil {
		return seen{}, err
	}
	all := seen{backend.AllShards, first.last}
	for _, sh := range s.shards {
		sh.last = all.part(sh.Number).last
	}
	return all, nil
}

// part is what a change of all shards has changed in one: who reads that does not wait for another one, which may be away.
func (s seen) part(shard int) seen {
	if s.last != nil {
		s.last = s.last.Part(shard)
	}
	return seen{shard, s.last}
}

// groupAll appends what a command has changed in all shards, and of the rules and holds.
func (s *Store) groupAll(out []byte) []byte {
	for _, n := range s.noted {
		out = s.appendNoted(out, n)
	}
	s.noted = nil
	for _, sh := range s.shards {
		out = sh.Group(out)
	}
	return out
}

// appendNoted appends a rule or a hold as it is now, or its removal.
func (s *Store) appendNoted(out []byte, n machine.Noted) []byte {
	if rule, ok := s.rules.rules.Get(n.Name); ok && n.Kind == codec.Rule {
		return codec.AppendItem(out, n.Kind, 0, func(c *codec.Codec) { ruleFields(c, &rule) })
	}
	if hold, ok := s.holds.holds[n.Name]; ok && n.Kind == codec.Hold {
		return codec.AppendItem(out, n.Kind, 0, func(c *codec.Codec) { holdFields(c, &hold) })
	}
	return codec.RemovedText(out, n.Kind, 0, n.Name)
}

// changeNamed notes that a rule or a hold is set or removed.
func (s *Store) changeNamed(kind codec.Kind, name string) {
	if s.backend != nil {
		s.noted = append(s.noted, machine.Noted{Kind: kind, Name: name})
	}
}
