package memstore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/waggle-crawl/waggle/dispatch"
)

// drainBook keeps drains of collectors.
type drainBook struct {
	mu     sync.Mutex // guards byName
	byName map[string]dispatch.Drain
}

// expire drops the drains that are over.
func (b *drainBook) expire(now int64) {
	maps.DeleteFunc(b.byName, func(_ string, d dispatch.Drain) bool { return gateUntil(&d.Gate) <= now })
}

// SetDrain implements [dispatch.Drains].
func (s *Store) SetDrain(ctx context.Context, drain dispatch.Drain) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	b := &s.drains
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(s.millis())
	name := drain.Name()
	if _, ok := b.byName[name]; !ok && len(b.byName) >= dispatch.MaxDrains {
		return dispatch.TooManyDrains(&drain)
	}
	drain.Kind, drain.Labels = dispatch.GateDrained, maps.Clone(drain.Labels)
	b.byName[name] = drain
	return nil
}

// DeleteDrain implements [dispatch.Drains].
func (s *Store) DeleteDrain(ctx context.Context, name string) (bool, error) {
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	b := &s.drains
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(s.millis())
	_, held := b.byName[name]
	delete(b.byName, name)
	return held, nil
}

// Drains implements [dispatch.Drains].
func (s *Store) Drains(ctx context.Context) ([]dispatch.Drain, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	b := &s.drains
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(s.millis())
	drains := slices.SortedFunc(maps.Values(b.byName), func(a, b dispatch.Drain) int { return strings.Compare(a.Name(), b.Name()) })
	for i := range drains {
		drains[i].Labels = maps.Clone(drains[i].Labels)
	}
	return drains, nil
}
