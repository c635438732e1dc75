package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
)

// runs are the files of the tasks that are apart. A snapshot names those that are valid with it. Each snapshot with tasks to put apart
// writes one run, and merges a run first if the newer ones have as many entries together. So their number grows with the logarithm of
// the entries.
type runs struct {
	mu    sync.Mutex // guards what follows
	valid []*run     // from the oldest on; of an entry that several have the newest counts

	// What follows is of who makes snapshots.
	number uint64              // the highest
	named  map[uint64][]uint64 // the numbers that each snapshot names, by its sequence
}

// freshBytes bounds what a snapshot collects for a run in memory.
const freshBytes = 32 << 20

// use gives the runs that are valid; who has used them calls done.
func (s *runs) use() (of []*run, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of = s.valid
	for _, r := range of {
		r.users++
	}
	return of, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range of {
			if r.users--; r.users == 0 && r.retired {
				_ = r.file.Close() // it was only read
			}
		}
	}
}

// replace makes other runs the valid ones.
func (s *runs) replace(by []*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.valid {
		if slices.Contains(by, r) {
			continue
		}
		if r.retired = true; r.users == 0 {
			_ = r.file.Close() // it was only read
		}
	}
	s.valid = by
}

// recallAtOnce is how many tasks are looked for one after the other: the next ones at the same time, as a disk likes it.
const recallAtOnce = 8

var _ backend.Archive = (*Backend)(nil)

// Recall implements [backend.Archive].
func (b *Backend) Recall(ctx context.Context, _ int, keys [][16]byte, each func(entry []byte)) error {
	of, done := b.runs.use()
	defer done()
	if len(of) == 0 {
		return nil
	}
	slices.SortFunc(keys, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	var mu sync.Mutex
	var parts errgroup.Group
	for part := range slices.Chunk(keys, recallAtOnce) {
		parts.Go(func() error {
			var buf []byte
			for _, key := range part {
				err := findIn(of, key, &buf, func(entry []byte) {
					mu.Lock()
					defer mu.Unlock()
					each(entry)
				})
				if err := errors.Join(err, ctx.Err()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := parts.Wait(); err != nil {
		return fmt.Errorf("%w: read tasks that are over: %w", dispatch.ErrStoreUnavailable, err)
	}
	return nil
}

// findIn gives the newest entry of a key, unless that is a removal.
func findIn(of []*run, key [16]byte, buf *[]byte, each func(entry []byte)) error {
	for _, r := range slices.Backward(of) {
		a, ok, err := r.find(key, buf)
		if err != nil {
			return err
		}
		if ok && a.Kind == codec.Task {
			each(a.Entry)
		}
		if ok {
			return nil
		}
	}
	return nil
}

// Each implements [backend.Archive].
func (b *Backend) Each(ctx context.Context, shard int, each func(entry []byte) error) error {
	err := b.eachApart(ctx, nil, func(a *codec.Apart) error {
		if shard != backend.AllShards && a.Shard != shard {
			return nil
		}
		return each(a.Entry)
	})
	if errors.Is(err, backend.ErrDamaged) {
		err = fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err)
	}
	return err
}

// eachApart gives the tasks that are apart. unread, unless nil, gets the error of a block that is left out.
func (b *Backend) eachApart(ctx context.Context, unread func(error), each func(*codec.Apart) error) error {
	of, done := b.runs.use()
	defer done()
	return eachEntry(ctx, of, unread, func(a *codec.Apart) error {
		if a.Kind != codec.Task {
			return nil
		}
		return each(a)
	})
}

// expand gives the entries of the tasks that are apart to a snapshot that has them as items.
func (b *Backend) expand(ctx context.Context) func(each func(entry []byte) error) error {
	var unread func(error)
	if b.salvaging {
		unread = func(error) {}
	}
	return func(each func(entry []byte) error) error {
		return b.eachApart(ctx, unread, func(a *codec.Apart) error { return each(a.Entry) })
	}
}

// openRuns makes the runs that a snapshot names the valid ones.
func (b *Backend) openRuns(sequence uint64, named []runName) error {
	var of []*run
	for _, name := range named {
		r, err := b.openRun(name)
		if err != nil && b.salvaging {
			continue
		}
		if err != nil {
			for _, r := range of {
				err = errors.Join(err, r.file.Close())
			}
			return err
		}
		of = append(of, r)
	}
	b.runs.replace(of)
	b.runs.named = map[uint64][]uint64{sequence: numbersOf(of)}
	return nil
}

func numbersOf(of []*run) []uint64 {
	numbers := make([]uint64, len(of))
	for i, r := range of {
		numbers[i] = r.named.number
	}
	return numbers
}

// freshRuns are those that a snapshot makes, behind the ones that it keeps.
type freshRuns struct {
	b       *Backend
	of      []*run // all
	made    []*run // that nothing names yet
	content []byte // entries of the next one, as they came
}

// merge begins those of a snapshot: it merges a run with the newer ones once those have as many entries together. If that fails it goes on
// with those there are: a disk without room gets some by the snapshot, since that makes a part of the log needless.
func (b *Backend) merge(ctx context.Context) *freshRuns {
	of, done := b.runs.use()
	defer done()
	f := &freshRuns{b: b, of: slices.Clone(of)}
	newer, from := 0, len(of)
	for i, r := range slices.Backward(of) {
		if len(r.marks) <= newer {
			from = i
		}
		newer += len(r.marks)
	}
	if from == len(of) {
		return f
	}
	began := time.Now()
	merged, err := f.write(func(add func(*codec.Apart) error) error {
		return eachEntry(ctx, of[from:], nil, func(a *codec.Apart) error {
			if from == 0 && a.Kind != codec.Task { // nothing is older
				return nil
			}
			return add(a)
		})
	})
	if err != nil {
		b.config.Logger.Warn("could not merge files of tasks that are over: trying again with the next snapshot", zap.Error(err))
		return f
	}
	if f.of = append(f.of[:from], merged...); len(merged) > 0 {
		b.config.Logger.Info("merged files of tasks that are over", zap.Int("files", len(of)-from), zap.Int64("bytes", merged[0].named.bytes),
			zap.Duration("took", time.Since(began).Round(time.Millisecond)))
	}
	return f
}

// write writes a run of what content adds: none, if that is nothing.
func (f *freshRuns) write(content func(add func(*codec.Apart) error) error) (made []*run, err error) {
	f.b.runs.number++
	w, err := f.b.newRun(f.b.runs.number)
	if err != nil {
		if w != nil {
			_, err = w.end(err)
		}
		return nil, err
	}
	err = content(w.add)
	if err == nil && len(w.run.marks) == 0 {
		return nil, w.file.drop()
	}
	r, err := w.end(err)
	if err != nil {
		return nil, err
	}
	f.made = append(f.made, r)
	return []*run{r}, nil
}

// add takes entries of a snapshot.
func (f *freshRuns) add(entries []byte) error {
	f.content = append(f.content, entries...)
	if len(f.content) < freshBytes {
		return nil
	}
	return f.flush()
}

// flush makes a run of the entries so far. Of a key that comes several times the last one counts.
func (f *freshRuns) flush() error {
	if len(f.content) == 0 {
		return nil
	}
	var all []codec.Apart
	for a, rest, ok := codec.CutApart(f.content); ok; a, rest, ok = codec.CutApart(rest) {
		all = append(all, a)
	}
	slices.SortStableFunc(all, func(a, b codec.Apart) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	made, err := f.write(func(add func(*codec.Apart) error) error {
		for i := range all {
			if i+1 < len(all) && all[i+1].Key == all[i].Key {
				continue
			}
			if err := add(&all[i]); err != nil {
				return err
			}
		}
		return nil
	})
	f.of, f.content = append(f.of, made...), f.content[:0]
	return err
}

// frame is the last frame of the snapshot: it names the runs.
func (f *freshRuns) frame() (content []byte) {
	for _, r := range f.of {
		content = codec.AppendItem(content, codec.Run, 0, r.named.fields)
	}
	return content
}

// parseRuns reads what frame wrote.
func parseRuns(content []byte) (named []runName, err error) {
	for len(content) > 0 {
		kind, _, fields, rest, ok := codec.CutItem(content)
		if !ok || kind != codec.Run {
			return nil, errors.New("what it names of tasks that are over cannot be read")
		}
		var name runName
		c := codec.Reader(fields)
		if name.fields(c); c.Known() != nil {
			return nil, c.Known()
		}
		named, content = append(named, name), rest
	}
	return named, nil
}

// use makes them the valid ones, with the snapshot of that sequence.
func (f *freshRuns) use(sequence uint64) {
	f.b.runs.replace(f.of)
	f.b.runs.named[sequence] = numbersOf(f.of)
	f.made = nil
}

// drop removes those that nothing names.
func (f *freshRuns) drop() (err error) {
	for _, r := range f.made {
		err = errors.Join(err, r.file.Close(), f.b.config.fs.Remove(r.path))
	}
	return err
}

// dropRuns removes the runs that no snapshot names that is kept.
func (b *Backend) dropRuns() error {
	names, err := b.config.fs.List(b.config.Dir)
	if err != nil {
		return err
	}
	for sequence := range b.runs.named {
		if !slices.Contains(b.snapshots.kept, sequence) {
			delete(b.runs.named, sequence)
		}
	}
	for _, name := range names {
		number, ok := runNumber(name)
		for _, numbers := range b.runs.named {
			ok = ok && !slices.Contains(numbers, number)
		}
		if ok {
			err = errors.Join(err, b.config.fs.Remove(filepath.Join(b.config.Dir, name)))
		}
	}
	return err
}

// forgetAtOnce is how many tasks a command forgets.
const forgetAtOnce = 512

// forgetOver has tasks forgotten whose time has come, in those runs that have many of them.
func (b *Backend) forgetOver(ctx context.Context) error {
	of, done := b.runs.use()
	defer done()
	now := time.Now()
	if b.owner.Now != nil {
		now = b.owner.Now()
	}
	for _, r := range of {
		if r.look > now.UnixMilli() {
			continue
		}
		if err := b.forgetIn(ctx, r, now.UnixMilli()); err != nil {
			return fmt.Errorf("forget tasks that are over: %w", err)
		}
	}
	return nil
}

func (b *Backend) forgetIn(ctx context.Context, r *run, now int64) error {
	over := make(map[int][][16]byte) // by shard
	since := r.until
	forget := func(shard int) error {
		keys := over[shard]
		delete(over, shard)
		runtime.Gosched() // nobody waits for this
		return b.owner.Forget(ctx, shard, keys)
	}
	err := eachEntry(ctx, []*run{r}, nil, func(a *codec.Apart) error {
		if a.Until > now {
			since = min(since, a.Until)
		}
		if a.Until == 0 || a.Until > now {
			return nil
		}
		over[a.Shard] = append(over[a.Shard], a.Key)
		if len(over[a.Shard]) < forgetAtOnce {
			return nil
		}
		return forget(a.Shard)
	})
	for shard := range over {
		if err == nil {
			err = forget(shard)
		}
	}
	if err == nil {
		if r.look = lookAt(since, r.until); r.until <= now {
			r.look = lookAt(0, 0)
		}
	}
	return err
}
