package store_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
)

// keyedLedger is a keyed backend in memory: it has the last state of each item, all groups, and the locks.
type keyedLedger struct {
	t      *testing.T
	clock  func() time.Time
	shards int

	mu       sync.Mutex // guards what follows
	items    map[itemName][]byte
	groups   [][]byte
	locks    map[string]ledgerLock // by task
	unlocked []shardUnlocked       // that the owner does not know of yet
	owner    func(shard int, locks []backend.Unlocked) (backend.Commit, error)
}

// itemName names an item: the first field does, within its kind.
type itemName struct {
	shard int
	kind  codec.Kind
	name  string
}

// ledgerLock is a lock; without an end it has a zero time.
type ledgerLock struct {
	value string
	ends  time.Time
}

// shardUnlocked is a lock of a shard that a group has found otherwise.
type shardUnlocked struct {
	shard int
	lock  backend.Unlocked
}

func newKeyedLedger(t *testing.T, shards int, clock func() time.Time) *keyedLedger {
	t.Helper()
	return &keyedLedger{t: t, clock: clock, shards: shards, items: map[itemName][]byte{}, locks: map[string]ledgerLock{}}
}

// now is by which locks end: in whole milliseconds, as those of a store.
func (l *keyedLedger) now() time.Time { return l.clock().Truncate(time.Millisecond) }

// term is that of the one owner.
func (l *keyedLedger) term() backend.Term {
	term := backend.Term{Kind: "ledger", Keyed: true, Shards: l.shards, Now: l.clock}
	for shard := range l.shards {
		term.Gained = append(term.Gained, backend.Gain{Shard: shard})
	}
	return term
}

// Acquire implements [backend.Backend].
func (l *keyedLedger) Acquire(_ context.Context, owner backend.Owner) (backend.Term, error) {
	l.owner = owner.Unlocked
	return l.term(), nil
}

// Load implements [backend.Backend].
func (l *keyedLedger) Load(_ context.Context, shard int, items backend.Items) error {
	return items.Add(l.piece(shard))
}

// names are the items that are kept, in an order that nothing depends on.
func (l *keyedLedger) names() []itemName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Keys(l.items), func(a, b itemName) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
}

// read appends items as they are now.
func (l *keyedLedger) read(out []byte, names []itemName) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if fields, ok := l.items[name]; ok {
			out = codec.AppendEncoded(out, name.kind, name.shard, fields)
		}
	}
	return out
}

// piece has the items of a shard.
func (l *keyedLedger) piece(shard int) []byte {
	return l.read(nil, slices.DeleteFunc(l.names(), func(n itemName) bool { return n.shard != shard }))
}

// Room implements [backend.Backend].
func (*keyedLedger) Room(int, int, bool) error { return nil }

// Until implements [backend.Backend].
func (*keyedLedger) Until(context.Context, int) (time.Time, error) { return time.Time{}, nil }

// EndCopy implements [backend.Backend].
func (*keyedLedger) EndCopy(context.Context) error { return nil }

// Release implements [backend.Backend].
func (*keyedLedger) Release(context.Context) error { return nil }

// Commit implements [backend.Backend].
func (l *keyedLedger) Commit(_ int, group []byte, _ int) backend.Commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	if group == nil {
		return nil
	}
	l.groups = append(l.groups, slices.Clone(group))
	l.each(l.groups[len(l.groups)-1], l.keep)
	return settled{l}
}

// groupHead is the length of what a group has before its items.
const groupHead = 8

// each goes through the items of a group.
func (l *keyedLedger) each(group []byte, take func(kind codec.Kind, shard int, fields []byte)) {
	for rest := group[groupHead:]; len(rest) > 0; {
		kind, shard, fields, after, ok := codec.CutItem(rest)
		if !ok {
			l.t.Error("an item of a group is cut off")
		}
		take(kind, shard, fields)
		rest = after
	}
}

func (l *keyedLedger) keep(kind codec.Kind, shard int, fields []byte) {
	_, _, n := protowire.ConsumeField(fields)
	of := itemName{shard, kind &^ codec.Removed, string(fields[:max(n, 0)])}
	switch {
	case kind == codec.LockItem:
		lock, err := codec.ReadLock(fields)
		if err != nil {
			l.t.Error(err)
		}
		l.setLock(shard, &lock)
	case kind == codec.Used|codec.Removed: // all of a step
		maps.DeleteFunc(l.items, func(n itemName, _ []byte) bool {
			return n.shard == shard && n.kind == codec.Used && strings.HasPrefix(n.name, of.name)
		})
	case of.kind == codec.Used:
		of.name = string(fields)
		l.items[of] = fields
	case of.kind == codec.Shard:
		of.name = ""
		l.items[of] = fields
	case kind&codec.Removed != 0:
		delete(l.items, of)
	default:
		l.items[of] = fields
	}
}

// setLock does to a lock what a group wants.
func (l *keyedLedger) setLock(shard int, lock *codec.Lock) {
	now := l.now()
	has, stands := l.locks[lock.Task]
	stands = stands && (has.ends.IsZero() || has.ends.After(now))
	bad := backend.Unlocked{Task: lock.Task, Token: lock.Token, Ends: lock.Ends}
	switch {
	case lock.Write == codec.LockRelease:
		if has.value == lock.Token {
			delete(l.locks, lock.Task)
		}
		return
	case lock.Write == codec.LockGrant && stands && has.value != lock.Token:
		if bad.Value = has.value; !has.ends.IsZero() {
			bad.TTL = has.ends.Sub(now)
		}
		l.unlocked = append(l.unlocked, shardUnlocked{shard, bad})
		return
	case lock.Write == codec.LockRenew && !stands:
		l.unlocked = append(l.unlocked, shardUnlocked{shard, bad})
	}
	l.locks[lock.Task] = ledgerLock{lock.Token, now.Add(time.Duration(max(lock.TTL, 1)) * time.Millisecond)}
}

// settled waits until the owner knows what groups have found.
type settled struct{ *keyedLedger }

// Wait implements [backend.Commit].
func (l settled) Wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		if len(l.unlocked) == 0 {
			l.mu.Unlock()
			return nil
		}
		next := l.unlocked[0]
		l.unlocked = l.unlocked[1:]
		l.mu.Unlock()
		last, err := l.owner(next.shard, []backend.Unlocked{next.lock})
		if err == nil && last != nil {
			err = last.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// Part implements [backend.Commit].
func (l settled) Part(int) backend.Commit { return l }

// lock is that of a task; empty: there is none.
func (l *keyedLedger) lock(id dispatch.TaskID) (value string, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch lock := l.locks[string(id)]; {
	case lock.ends.IsZero():
		return lock.value, 0
	case lock.ends.After(l.now()):
		return lock.value, lock.ends.Sub(l.now())
	}
	return "", 0
}

// putLock sets a lock by hand, or deletes it.
func (l *keyedLedger) putLock(id dispatch.TaskID, value string, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := ledgerLock{value: value}
	if ttl > 0 {
		lock.ends = l.now().Add(ttl)
	}
	if l.locks[string(id)] = lock; value == "" {
		delete(l.locks, string(id))
	}
}
