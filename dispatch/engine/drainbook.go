package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

const (
	// drainsAge bounds how stale a dispatcher's drains can be should a hint be lost.
	drainsAge = time.Second
	// toldAge is how long it counts what a session told of itself; that it told nothing
	// counts for drainsAge.
	toldAge = dispatch.IdleBeat
)

// DrainBook is all drains at one time. It is not changed once made; nil is one of
// no drains.
type DrainBook struct {
	byID     map[string]*dispatch.Hold
	byLabels []*dispatch.Hold
	names    []string // ascending
}

// NewDrainBook makes a book of those of the holds that are drains.
func NewDrainBook(holds []dispatch.Hold) *DrainBook {
	b := &DrainBook{}
	for i := range holds {
		switch d := &holds[i]; {
		case d.Kind != dispatch.GateDrained:
			continue
		case d.Target.Collector == "":
			b.byLabels = append(b.byLabels, d)
		default:
			if b.byID == nil {
				b.byID = make(map[string]*dispatch.Hold)
			}
			b.byID[d.Target.Collector] = d
		}
		b.names = append(b.names, holds[i].Key())
	}
	return b
}

// Of is the drain of a collector, of several the one that ends last; nil when it is
// not drained. info is what it tells of itself; nil: not known.
func (b *DrainBook) Of(id string, info *dispatch.CollectorInfo) *dispatch.Hold {
	if b == nil {
		return nil
	}
	last := b.byID[id]
	if info == nil {
		return last
	}
	for _, d := range b.byLabels {
		if d.Outlasts(last) && d.Target.Matches(id, info.Labels) {
			last = d
		}
	}
	return last
}

// All are the drains of a collector, the one that ends last first.
func (b *DrainBook) All(id string, info *dispatch.CollectorInfo) (drains []*dispatch.Hold) {
	last := b.Of(id, info)
	if last == nil {
		return nil
	}
	drains = append(drains, last)
	if d := b.byID[id]; d != nil && d != last {
		drains = append(drains, d)
	}
	for _, d := range b.byLabels {
		if d != last && d.Target.Matches(id, info.Labels) {
			drains = append(drains, d)
		}
	}
	return drains
}

// holdsSame reports whether both hold the same collectors.
func (b *DrainBook) holdsSame(other *DrainBook) bool {
	return slices.Equal(b.names, other.names)
}

// looksAtLabels reports whether some drain goes by labels.
func (b *DrainBook) looksAtLabels() bool { return b != nil && len(b.byLabels) > 0 }

// drainWatch keeps what its dispatcher knows of drains up to date, so that no fetch
// has to ask for them: that costs one short call of the store in [drainsAge]. What
// collectors tell of themselves is asked for only while some drain goes by labels.
type drainWatch struct {
	store dispatch.Store
	pump  *pump
	infos *spread[string, *dispatch.CollectorInfo]
	log   *zap.Logger

	changed chan struct{} // capacity 1: somebody changed the drains
	book    atomic.Pointer[DrainBook]
	begun   atomic.Uint64 // reads of the drains

	mu    sync.Mutex // guards what follows
	taken uint64     // the read that book is of
	told  fading[toldInfo]
}

// toldInfo is what a session of a collector was found to tell of itself; nil is
// nothing yet.
type toldInfo struct {
	session string
	info    *dispatch.CollectorInfo
	at      time.Time
}

// counts reports whether it need not be asked again.
func (t *toldInfo) counts() bool {
	if t.info == nil {
		return time.Since(t.at) < drainsAge
	}
	return time.Since(t.at) < toldAge
}

func newDrainWatch(cfg Config, p *pump, infos *spread[string, *dispatch.CollectorInfo]) *drainWatch {
	return &drainWatch{store: cfg.Store, pump: p, infos: infos, log: cfg.Logger, changed: make(chan struct{}, 1)}
}

// run reads the drains, at hints and each second, until ctx ends.
func (w *drainWatch) run(ctx context.Context) error {
	failing := false
	for {
		err := w.refresh(ctx)
		if err == nil {
			err = w.askParked(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			w.log.Warn("drains of collectors cannot be read; those known hold on", zap.Error(err))
		case err == nil && failing:
			w.log.Info("drains of collectors are read again")
		}
		failing = err != nil
		timer := time.NewTimer(drainsAge - time.Duration(w.pump.rand()*float64(drainsAge/4)))
		select {
		case <-w.changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// hint has the drains read now.
func (w *drainWatch) hint() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// refresh reads the drains, and answers the fetches that wait of collectors that are
// drained.
func (w *drainWatch) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	read := w.begun.Add(1)
	drains, err := w.store.Holds(ctx)
	if err != nil {
		return fmt.Errorf("read drains of collectors: %w", timedOut(ctx, err))
	}
	book := NewDrainBook(drains)
	w.mu.Lock()
	if read > w.taken { // else a later read was faster
		w.taken = read
		w.book.Store(book)
		w.pump.obey(book)
		if !book.looksAtLabels() {
			w.told = fading[toldInfo]{}
		}
	}
	w.mu.Unlock()
	return nil
}

// askParked finds out what collectors tell whose fetches wait, where that is to be
// known and is not: they parked before a drain by labels came, or before their first
// beat. A shard that hangs keeps back neither what others answer nor, for long, the
// next look.
func (w *drainWatch) askParked(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, drainsAge)
	defer cancel()
	ids := w.pump.silent()
	for len(ids) > 0 {
		page := ids[:min(len(ids), bounds.MaxRenewals)]
		ids = ids[len(page):]
		answers, parts := w.infos.ask(ctx, page)
		for range parts {
			answer := <-answers
			if answer.err != nil {
				err = answer.err
			}
			for _, info := range answer.out {
				w.pump.tell(info)
			}
		}
	}
	return err
}

// current is the book; only before the first was read, that is waited for.
func (w *drainWatch) current(ctx context.Context) (*DrainBook, error) {
	if book := w.book.Load(); book != nil {
		return book, nil
	}
	inTime, cancel := aheadOf(ctx)
	defer cancel()
	if err := w.refresh(inTime); err != nil {
		return nil, err
	}
	return w.book.Load(), nil
}

// Drains are the drains of collectors as the dispatcher knows them.
func (d *Dispatcher) Drains(ctx context.Context) (*DrainBook, error) { return d.drains.current(ctx) }

// RefreshDrains reads the drains of collectors now.
func (d *Dispatcher) RefreshDrains(ctx context.Context) error { return d.drains.refresh(ctx) }

// ask is what a session tells of itself, for a look at the book; nil: it has told
// nothing, or no drain goes by labels.
func (w *drainWatch) ask(ctx context.Context, collector, session string) (*dispatch.CollectorInfo, error) {
	book, err := w.current(ctx)
	if err != nil || !book.looksAtLabels() {
		return nil, err
	}
	w.mu.Lock()
	told, ok := w.told.get(collector)
	w.mu.Unlock()
	if ok && told.session == session && told.counts() {
		return told.info, nil
	}
	began := time.Now()
	info, err := w.infos.one(ctx, collector)
	if err != nil {
		return nil, err
	}
	if info != nil && info.Session != session {
		info = nil
	}
	w.note(collector, toldInfo{session, info, began})
	return info, nil
}

// beat takes in what a collector tells with a beat, and reports whether it is
// drained, as far as is known: no beat waits for that.
func (w *drainWatch) beat(info *dispatch.CollectorInfo) bool {
	book := w.book.Load()
	if book.looksAtLabels() {
		w.note(info.ID, toldInfo{info.Session, info, time.Now()})
		w.pump.tell(info)
	}
	return book.Of(info.ID, info) != nil
}

func (w *drainWatch) note(collector string, told toldInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told.note(collector, told, toldAge)
}
