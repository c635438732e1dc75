package operate

import (
	"context"
	"sync/atomic"
	"time"
)

// How often the owner looks for findings, and how much of each list it reads then: it goes on with the sources at its next look, so
// that those of 50,000 sources are a minute old.
const (
	findEvery   = 10 * time.Second
	watchLimit  = 100 * time.Millisecond
	watchMost   = 5 * time.Second // for all, of a store that hangs
	watchedPage = 200             // sources at a time
)

// findingWatch is what the owner knows of findings from look to look. Only the chore uses it, but for what is atomic.
type findingWatch struct {
	counts atomic.Pointer[map[FindingKind]int]
	heed   atomic.Pointer[func(*Findings)] // nil: nobody wants them

	after string        // the last source that was looked at
	pass  *look         // over the sources, under way; nil: none
	spent time.Duration // on it so far
}

// FindingCounts are how many things the findings of each kind are about, as of the last look. Until the first one they are 0.
func (o *Operator) FindingCounts() map[FindingKind]int {
	if counts := o.watch.counts.Load(); counts != nil {
		return *counts
	}
	return countFindings(nil)
}

// HeedFindings has heed called with the findings of each look from now on; it must not block, and not change them.
func (o *Operator) HeedFindings(heed func(*Findings)) { o.watch.heed.Store(&heed) }

func countFindings(found []Finding) map[FindingKind]int {
	counts := make(map[FindingKind]int)
	for _, kind := range FindingKinds() {
		counts[kind] = 0
	}
	for i := range found {
		counts[found[i].Kind] += found[i].Count
	}
	return counts
}

// lookForFindings is a look of the owner.
func (o *Operator) lookForFindings(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchMost)
	defer cancel()
	found, err := o.find(ctx, nil, watchLimit, &o.watch)
	if err != nil {
		return err
	}
	counts := countFindings(found.All)
	o.watch.counts.Store(&counts)
	if heed := o.watch.heed.Load(); heed != nil {
		(*heed)(found)
	}
	return nil
}

// readSources goes on with the pass over the sources, and gives l what the last whole one has found, or the first one so far.
func (w *findingWatch) readSources(ctx context.Context, l *look) error {
	if w.pass == nil {
		w.pass, w.after, w.spent = &look{out: &Findings{}, sources: make(map[sourceCause]*sourceCount)}, "", 0
	}
	w.pass.snapshot = l.snapshot
	err := w.goOn(ctx, l)
	from := w.pass
	if seen := l.seen.Load(); seen != nil {
		from = seen
	}
	l.takeFrom(from)
	return err
}

// goOn goes on with the pass until it has seen all sources, or the time of a look is over.
func (w *findingWatch) goOn(ctx context.Context, l *look) error {
	for begun := time.Now(); ; {
		found, next, err := l.ListSources(ctx, SourceQuery{Gates: true, Moves: true}, w.after, watchedPage)
		if err != nil {
			return err
		}
		for _, v := range found {
			w.pass.takeSource(v)
		}
		w.after = next
		if took := time.Since(begun); next == "" {
			w.pass.keepSeen(w.spent + took)
			w.pass = nil
			return nil
		} else if took >= l.limit {
			w.spent += took
			return errCut
		}
	}
}
