package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// holdsAge bounds how stale a dispatcher's holds can be should a hint be lost.
const holdsAge = time.Second

// DrainBook is all drains at one time. It is not changed once made; nil is one of
// no drains.
type DrainBook struct {
	byID     map[string]*dispatch.Drain
	byLabels []*dispatch.Drain
}

// NewDrainBook makes a book of drains.
func NewDrainBook(drains []dispatch.Drain) *DrainBook {
	b := &DrainBook{}
	for i := range drains {
		d := &drains[i]
		if d.Collector == "" {
			b.byLabels = append(b.byLabels, d)
			continue
		}
		if b.byID == nil {
			b.byID = make(map[string]*dispatch.Drain)
		}
		b.byID[d.Collector] = d
	}
	return b
}

// Of is the drain of a collector, of several the one that ends last; nil when it is
// not drained. info is what it tells of itself; nil: not known.
func (b *DrainBook) Of(id string, info *dispatch.CollectorInfo) *dispatch.Drain {
	if b == nil {
		return nil
	}
	last := b.byID[id]
	if info == nil {
		return last
	}
	for _, d := range b.byLabels {
		if d.Outlasts(last) && d.Holds(id, info.Labels) {
			last = d
		}
	}
	return last
}

// All are the drains of a collector, the one that ends last first.
func (b *DrainBook) All(id string, info *dispatch.CollectorInfo) (drains []*dispatch.Drain) {
	last := b.Of(id, info)
	if last == nil {
		return nil
	}
	drains = append(drains, last)
	if d := b.byID[id]; d != nil && d != last {
		drains = append(drains, d)
	}
	for _, d := range b.byLabels {
		if d != last && d.Holds(id, info.Labels) {
			drains = append(drains, d)
		}
	}
	return drains
}

// holdWatch keeps what its dispatcher knows of holds of collectors up to date, so that no fetch
// has to ask for them: that costs one short call of the store in [holdsAge].
type holdWatch struct {
	store   dispatch.Store
	log     *zap.Logger
	rand    func() float64
	changed func() // is called when other collectors are held than before

	hinted chan struct{} // capacity 1: somebody changed the holds
	book   atomic.Pointer[DrainBook]

	mu    sync.Mutex // guards what follows, and changes of book
	begun uint64     // reads of the holds
	taken uint64     // the read that book is of
}

func newHoldWatch(cfg Config, changed func()) *holdWatch {
	return &holdWatch{store: cfg.Store, log: cfg.Logger, rand: cfg.Rand, changed: changed, hinted: make(chan struct{}, 1)}
}

// run reads the holds, at hints and each second, until ctx ends.
func (w *holdWatch) run(ctx context.Context) error {
	failing := false
	for {
		err := w.refresh(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			w.log.Warn("cannot read the holds of collectors; those known stay in force", zap.Error(err))
		case err == nil && failing:
			w.log.Info("holds of collectors are read again")
		}
		failing = err != nil
		timer := time.NewTimer(holdsAge - time.Duration(w.rand()*float64(holdsAge/4)))
		select {
		case <-w.hinted:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// hint has the holds read now.
func (w *holdWatch) hint() {
	select {
	case w.hinted <- struct{}{}:
	default:
	}
}

// refresh reads the holds.
func (w *holdWatch) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	w.mu.Lock()
	w.begun++
	read := w.begun
	w.mu.Unlock()
	drains, err := w.store.Drains(ctx)
	if err != nil {
		return fmt.Errorf("read holds of collectors: %w", timedOut(ctx, err))
	}
	book := NewDrainBook(drains)
	w.mu.Lock()
	newer := read > w.taken // else a later read was faster
	if newer {
		w.taken = read
		w.book.Store(book)
	}
	w.mu.Unlock()
	if newer {
		w.changed()
	}
	return nil
}

// current is the book; before the first was read, that is waited for.
func (w *holdWatch) current(ctx context.Context) (*DrainBook, error) {
	if book := w.book.Load(); book != nil {
		return book, nil
	}
	if err := w.refresh(ctx); err != nil {
		return nil, err
	}
	return w.book.Load(), nil
}

// stops reports whether a hold stops a collector, as far as is known.
func (w *holdWatch) stops(collector string, labels map[string]string) bool {
	return w.book.Load().Of(collector, &dispatch.CollectorInfo{Labels: labels}) != nil
}

// Drains are the drains of collectors as the dispatcher knows them.
func (d *Dispatcher) Drains(ctx context.Context) (*DrainBook, error) { return d.holds.current(ctx) }

// RefreshDrains reads the drains of collectors now.
func (d *Dispatcher) RefreshDrains(ctx context.Context) error { return d.holds.refresh(ctx) }
