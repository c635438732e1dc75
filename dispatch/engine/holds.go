package engine

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// holdsAge bounds how stale a dispatcher's holds can be should a hint be lost.
const holdsAge = time.Second

// HoldBook is all holds of collectors at one time. It is not changed once made; nil is one of no
// holds.
type HoldBook struct {
	byID     map[string]*dispatch.Hold
	byLabels []*dispatch.Hold
}

// NewHoldBook makes a book of those of the holds that are of collectors.
func NewHoldBook(holds []dispatch.Hold) *HoldBook {
	b := &HoldBook{byID: make(map[string]*dispatch.Hold)}
	for i := range holds {
		switch h := &holds[i]; {
		case h.Kind != dispatch.GateDrained:
		case h.Target.Collector == "":
			b.byLabels = append(b.byLabels, h)
		default:
			b.byID[h.Target.Collector] = h
		}
	}
	return b
}

// All are the holds of a collector with these labels, the one that ends last first.
func (b *HoldBook) All(collector string, labels map[string]string) (holds []*dispatch.Hold) {
	if b == nil {
		return nil
	}
	if h := b.byID[collector]; h != nil {
		holds = append(holds, h)
	}
	for _, h := range b.byLabels {
		if h.Target.Matches(collector, labels) {
			holds = append(holds, h)
		}
	}
	for i, h := range holds {
		if i > 0 && h.Outlasts(holds[0]) {
			holds[0], holds[i] = h, holds[0]
		}
	}
	return holds
}

// Of is the hold of a collector with these labels, of several the one that ends last; nil if
// there is none.
func (b *HoldBook) Of(collector string, labels map[string]string) *dispatch.Hold {
	if holds := b.All(collector, labels); len(holds) > 0 {
		return holds[0]
	}
	return nil
}

// holdWatch keeps what its dispatcher knows of holds of collectors up to date, so that no fetch
// has to ask for them: that costs one short call of the store in [holdsAge].
type holdWatch struct {
	store   dispatch.Store
	log     *zap.Logger
	rand    func() float64
	changed func() // is called when the holds are not those of before

	hinted chan struct{} // capacity 1: somebody changed the holds
	known  chan struct{} // closed once the holds were read
	book   atomic.Pointer[HoldBook]

	mu    sync.Mutex // guards what follows, and changes of book
	begun uint64     // reads of the holds
	taken uint64     // the read that book is of
}

func newHoldWatch(cfg Config, changed func()) *holdWatch {
	return &holdWatch{store: cfg.Store, log: cfg.Logger, rand: cfg.Rand, changed: changed, hinted: make(chan struct{}, 1), known: make(chan struct{})}
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
		select {
		case <-w.hinted:
		case <-time.After(holdsAge - time.Duration(w.rand()*float64(holdsAge/4))):
		case <-ctx.Done():
		}
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
	holds, err := w.store.Holds(ctx)
	if err != nil {
		return fmt.Errorf("read holds of collectors: %w", timedOut(ctx.Err(), err))
	}
	book, changed := NewHoldBook(holds), false
	w.mu.Lock()
	if read > w.taken { // else a later read was faster
		if w.taken == 0 {
			close(w.known)
		}
		w.taken = read
		changed = !reflect.DeepEqual(book, w.book.Swap(book))
	}
	w.mu.Unlock()
	if changed {
		w.changed()
	}
	return nil
}

// current is the book; before the first was read, that is waited for.
func (w *holdWatch) current(ctx context.Context) (*HoldBook, error) {
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
	return w.book.Load().Of(collector, labels) != nil
}
