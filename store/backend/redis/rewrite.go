package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
)

// rewrite writes all that memory has, after a failover has lost a part of it, and then deletes what memory lacks: deletions carry no
// sequence, and a store between the two has items of two ages, but lacks nothing. All groups that wait when it begins are in it; what
// they do to locks is done at the end. A lock that a failover has brought back stays until it ends, or until a grant meets it.
func (w *writer) rewrite(ctx context.Context) error {
	w.log.Warn("a failover has lost what was written: it is written again")
	w.b.counts.rewrites.Add(1)
	w.mu.Lock()
	w.rewriting = true
	w.stopFeed()
	if w.closed == nil {
		w.closed = fmt.Errorf("%w: shard %d is written again after a failover", dispatch.ErrStoreUnavailable, w.number)
	}
	w.mu.Unlock()
	err := errRewrite
	for errors.Is(err, errRewrite) {
		r := rewriting{writer: w, seed: maphash.MakeSeed(), has: make(map[uint64]struct{}), group: new(group)}
		err = r.run(ctx)
	}
	return err
}

// rewriting is one attempt of a rewrite.
type rewriting struct {
	*writer
	seed    maphash.Seed
	has     map[uint64]struct{} // hashes of the fields that memory has
	group   *group              // the next one
	covered int                 // how many groups of the queue are in the snapshot
}

func (r *rewriting) run(ctx context.Context) error {
	if err := r.b.owner.Snapshot(r.number, backend.Snapshot{
		Begun: r.begun, Write: func(piece []byte) error { return r.piece(ctx, piece) },
	}); err != nil {
		return err
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	if err := r.deleteOthers(ctx); err != nil {
		return err
	}
	return r.finish(ctx)
}

// begun is called at the instant of the snapshot.
func (r *rewriting) begun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.covered = len(r.queue)
	for _, f := range r.queue {
		f.sealed = true
	}
}

// piece writes a piece of the snapshot.
func (r *rewriting) piece(ctx context.Context, items []byte) error {
	for len(items) > 0 {
		kind, shard, fields, rest, ok := codec.CutItem(items)
		if !ok {
			return errCut
		}
		if items = rest; !kind.OfStore() && shard != r.number { // as of a snapshot of all
			continue
		}
		if err := r.group.add(kind, fields); err != nil {
			return err
		}
	}
	if r.group.bytes < maxGroup {
		return nil
	}
	return r.flush(ctx)
}

// flush sends what was gathered.
func (r *rewriting) flush(ctx context.Context) error {
	g := r.group
	r.group = new(group)
	for at, value := range g.items {
		if value.removed {
			r.b.counts.deleted.Add(1)
			continue
		}
		r.b.counts.rewritten.Add(1)
		r.has[maphash.String(r.seed, at.field)] = struct{}{}
	}
	r.nextHead(g, true)
	_, err := r.apply(ctx, g)
	return err
}

// deleteOthers deletes the items that memory lacks.
func (r *rewriting) deleteOthers(ctx context.Context) error {
	for n := range buckets {
		var fields []string
		err := r.ask(ctx, "read the fields", func(ctx context.Context, node *goredis.Client) (err error) {
			fields, err = node.HKeys(ctx, r.keys.bucket(n)).Result()
			return err
		})
		if err != nil {
			return err
		}
		for _, field := range fields {
			if _, ok := r.has[maphash.String(r.seed, field)]; !ok {
				r.group.set(place{n, field}, span{removed: true})
			}
		}
		if len(r.group.items) >= maxWords {
			if err := r.flush(ctx); err != nil {
				return err
			}
		}
	}
	return r.flush(ctx)
}

// finish ends the rewrite by a group with what the groups in the snapshot do to locks, and answers those.
func (r *rewriting) finish(ctx context.Context) error {
	r.mu.Lock()
	covered := r.queue[:r.covered]
	r.mu.Unlock()
	for _, f := range covered {
		r.group.locks = append(r.group.locks, f.group.locks...)
	}
	r.nextHead(r.group, false)
	result, err := r.apply(ctx, r.group)
	if err != nil {
		return err
	}
	r.log.Info("what a failover had lost is written again", zap.Int("items", len(r.has)))
	r.mu.Lock()
	r.rewriting = false
	r.mu.Unlock()
	if !r.open(r.own) {
		return errNotOwner
	}
	had := result.had
	for _, f := range covered {
		var of []string
		if had != nil {
			of, had = had[:len(f.group.locks)], had[len(f.group.locks):]
		}
		if err := r.answer(ctx, of, result.acked); err != nil {
			return err
		}
	}
	return nil
}
