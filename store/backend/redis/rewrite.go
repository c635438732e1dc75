package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/store/codec"
)

// rewrite writes all that memory has, after a failover has lost a part of it, and then deletes what memory lacks: deletions carry no
// sequence, and a store between the two has items of two ages, but lacks nothing. All flights that were taken or wait when it
// begins are in it.
func (w *writer) rewrite(ctx context.Context) error {
	w.log.Warn("a failover has lost what was written: it is written again", zap.Int("shard", w.number))
	err := errRewrite
	for errors.Is(err, errRewrite) {
		err = w.rewriteOnce(ctx)
	}
	return err
}

func (w *writer) rewriteOnce(ctx context.Context) error {
	seed := maphash.MakeSeed()
	has := make(map[uint64]struct{}) // by the hash of the field
	g := new(group)
	flush := func(rewriting bool) error {
		_, err := w.apply(ctx, g, rewriting)
		g = new(group)
		return err
	}
	begun := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.taken, w.waiting = append(w.taken, w.waiting...), nil
	}
	err := w.snapshot(begun, func(items []byte, locks []lock) error {
		for len(items) > 0 {
			kind, _, fields, rest, ok := codec.CutItem(items)
			if !ok {
				return errors.New("an item of the snapshot is cut off")
			}
			at, err := placeOf(kind, fields)
			if err != nil {
				return err
			}
			has[maphash.String(seed, at.field)] = struct{}{}
			if err := g.addItem(kind, fields); err != nil {
				return err
			}
			items = rest
		}
		g.locks = append(g.locks, locks...)
		if g.bytes < maxGroup {
			return nil
		}
		return flush(true)
	})
	if err != nil {
		return err
	}
	if err := flush(true); err != nil {
		return err
	}
	err = w.eachPage(ctx, func(hash string, fields []string) error {
		for i := 0; i < len(fields); i += 2 {
			if _, ok := has[maphash.String(seed, fields[i])]; !ok {
				if g.items == nil {
					g.items = make(map[place]*[]byte)
				}
				g.items[place{hash, fields[i]}] = nil
				if task, ok := taskOf(fields[i]); ok {
					g.locks = append(g.locks, lock{task: task, write: lockForget})
				}
			}
		}
		if len(g.items) < pageOfItems {
			return nil
		}
		return flush(true)
	})
	if err != nil {
		return fmt.Errorf("delete what a failover has brought back: %w", err)
	}
	return flush(false)
}
