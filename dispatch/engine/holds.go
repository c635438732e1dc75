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
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

const (
	// holdsRetry is the pause before the holds are read again after an error.
	holdsRetry = time.Second
	// holdsLook is how often the store's clock is looked at while a hold is to end by itself: it may be stepped.
	holdsLook = time.Second
)

// holdWatch keeps the dispatcher's cache of the holds current, so that no fetch has to read them. A claim with outdated holds is
// refused ([dispatch.ErrStaleHolds]).
type holdWatch struct {
	store   dispatch.Store
	log     *zap.Logger
	rand    func() float64
	changed func() // is called when the holds are not those of before

	hinted chan struct{} // capacity 1: somebody changed the holds
	known  chan struct{} // closed once the holds were read
	book   atomic.Pointer[holdbook.Book]

	mu      sync.Mutex // guards what follows, and changes of book
	begun   uint64     // reads of the holds
	taken   uint64     // the read that the following is of
	holds   []dispatch.Hold
	version int64
	now     time.Time // the store's clock at the instant read
	read    time.Time
}

func newHoldWatch(cfg Config, changed func()) *holdWatch {
	return &holdWatch{
		store: cfg.Store, log: cfg.Logger, rand: cfg.Rand, changed: changed,
		hinted: make(chan struct{}, 1), known: make(chan struct{}), version: -1,
	}
}

// run reads the holds at each hint until ctx ends, and drops holds that are over.
func (w *holdWatch) run(ctx context.Context) error {
	failing := false
	for {
		err := w.refresh(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			w.log.Warn("failed to read holds; the known holds still apply", zap.Error(err))
		case err == nil && failing:
			w.log.Info("reading holds works again")
		}
		failing = err != nil
		next := w.nextEnd()
		if failing {
			next = time.After(jittered(w.rand, holdsRetry))
		}
		select {
		case <-w.hinted:
		case <-next:
		case <-ctx.Done():
		}
	}
}

// nextEnd has a value when the next hold ends by itself; nil: none does.
func (w *holdWatch) nextEnd() <-chan time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if book := w.book.Load(); book != nil && !book.Next.IsZero() {
		return time.After(min(max(book.Next.Sub(w.clock()), 0), holdsLook))
	}
	return nil
}

// clock estimates the store's clock from the last read of the holds.
func (w *holdWatch) clock() time.Time { return w.now.Add(time.Since(w.read)) }

// hint makes run read the holds now.
func (w *holdWatch) hint() {
	select {
	case w.hinted <- struct{}{}:
	default:
	}
}

// refresh reads the holds, if they have changed.
func (w *holdWatch) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	w.mu.Lock()
	w.begun++
	read, have := w.begun, w.version
	w.mu.Unlock()
	holds, version, now, err := w.store.Holds(ctx, have)
	if err != nil {
		return fmt.Errorf("read holds: %w", timedOut(ctx.Err(), err))
	}
	if w.take(read, have, holds, version, now) {
		w.changed()
	}
	return nil
}

// take stores what was read, and reports whether it has changed.
func (w *holdWatch) take(read uint64, have int64, holds []dispatch.Hold, version int64, now time.Time) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if read < w.taken || version == have && version != w.version {
		return false // a later read was faster
	}
	if w.taken == 0 {
		close(w.known)
	}
	w.taken, w.now, w.read = read, now, time.Now()
	if version != w.version {
		w.holds, w.version = holds, version
	} else if before := w.book.Load(); before.Next.IsZero() || before.Next.After(now) {
		return false
	}
	book := holdbook.New(w.holds, w.version, now)
	before := w.book.Swap(book)
	return before == nil || !reflect.DeepEqual(before.All, book.All)
}

// current is the book; before the first was read, that is waited for.
func (w *holdWatch) current(ctx context.Context) (*holdbook.Book, error) {
	if book := w.book.Load(); book != nil {
		return book, nil
	}
	if err := w.refresh(ctx); err != nil {
		return nil, err
	}
	return w.book.Load(), nil
}

// stops reports whether a hold in the cache stops a collector.
func (w *holdWatch) stops(collector string, labels map[string]string) bool {
	return w.book.Load().StopsCollector(collector, labels)
}
