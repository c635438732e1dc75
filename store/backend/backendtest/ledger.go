package backendtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
)

// Ledger keeps groups in memory for one owner after the other, each under a higher epoch. It is for tests of what uses a backend.
type Ledger struct {
	mu     sync.Mutex // guards what follows
	epoch  uint64
	shards int
	pieces [][]byte // of a snapshot; nil: there is none
	from   int      // the first group that is not in it
	groups [][]byte
	apart  map[[16]byte][]byte
	room   int
}

// Backend makes a backend of what the ledger keeps.
func (l *Ledger) Backend() backend.Backend { return &term{Ledger: l} }

// Groups are all that were kept.
func (l *Ledger) Groups() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.groups
}

// Compact replaces the first groups by the pieces of a snapshot.
func (l *Ledger) Compact(pieces [][]byte, groups int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pieces, l.from = pieces, groups
}

// KeepApart takes the entries that a snapshot has given.
func (l *Ledger) KeepApart(entries []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.apart == nil {
		l.apart = make(map[[16]byte][]byte)
	}
	for a, rest, ok := codec.CutApart(entries); ok; a, rest, ok = codec.CutApart(rest) {
		if delete(l.apart, a.Key); a.Kind == codec.Task {
			l.apart[a.Key] = slices.Clone(a.Entry)
		}
	}
}

// Recall implements [backend.Archive].
func (t *term) Recall(_ context.Context, _ int, keys [][16]byte, each func(entry []byte)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		if entry := t.apart[key]; entry != nil {
			each(entry)
		}
	}
	return nil
}

// Each implements [backend.Archive].
func (t *term) Each(_ context.Context, shard int, each func(entry []byte) error) error {
	t.mu.Lock()
	all := slices.Collect(maps.Values(t.apart))
	t.mu.Unlock()
	for _, entry := range all {
		if a, _, _ := codec.CutApart(entry); shard != backend.AllShards && a.Shard != shard {
			continue
		}
		if err := each(entry); err != nil {
			return err
		}
	}
	return nil
}

// term is that of one owner.
type term struct {
	*Ledger
	epoch uint64
}

// Acquire implements [backend.Backend].
func (t *term) Acquire(_ context.Context, owner backend.Owner) (backend.Term, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shards == 0 {
		t.shards = max(owner.Shards, 1)
	}
	if owner.Shards != 0 && owner.Shards != t.shards {
		return backend.Term{}, fmt.Errorf("%w: it has %d shards, not %d", dispatch.ErrStoreMismatch, t.shards, owner.Shards)
	}
	t.Ledger.epoch++
	t.epoch = t.Ledger.epoch
	return backend.Term{Kind: "ledger", Epoch: t.epoch}, nil
}

// Load implements [backend.Backend].
func (t *term) Load(_ context.Context, _ int, items backend.Items) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := items.Begin(t.shards)
	for _, piece := range t.pieces {
		if err == nil {
			err = items.Add(piece)
		}
	}
	if err == nil && t.pieces != nil {
		err = items.Ended()
	}
	for _, group := range t.groups[t.from:] {
		if err == nil {
			err = items.Group(group)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrDamaged, err)
	}
	return nil
}

// Room implements [backend.Backend].
func (t *term) Room(_, bytes int, _ bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.room += bytes
	return t.owned()
}

// Commit implements [backend.Backend].
func (t *term) Commit(_ int, group []byte, room int) backend.Commit {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.room -= room
	err := t.owned()
	if err == nil && group != nil {
		t.groups = append(t.groups, slices.Clone(group))
	}
	return committed{err}
}

// owned is nil while the term is the last one.
func (t *term) owned() error {
	if t.epoch != t.Ledger.epoch {
		return fmt.Errorf("%w: another owner has taken the store over", dispatch.ErrStoreUnavailable)
	}
	return nil
}

// Until implements [backend.Backend].
func (t *term) Until(context.Context, int) (time.Time, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Time{}, t.owned()
}

// EndCopy implements [backend.Backend].
func (*term) EndCopy(context.Context) error { return nil }

// Release implements [backend.Backend].
func (t *term) Release(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owned() == nil {
		t.Ledger.epoch++
	}
	return nil
}

// committed is a group that was kept, or not.
type committed struct{ err error }

// Wait implements [backend.Commit].
func (c committed) Wait(context.Context) error { return c.err }

// Part implements [backend.Commit].
func (c committed) Part(int) backend.Commit { return c }
