package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
	"github.com/waggle-crawl/waggle/store/machine"
)

// endedBindings is how many bindings that have ended are removed with each new one.
const endedBindings = 2

// accessBook keeps which identities collector ids belong to, and what operators changed.
type accessBook struct {
	part // its mutex guards what follows

	bindings btree.Map[string, *binding] // by collector id
	ends     sorted.Set[*binding]

	audit []*auditEntry // the oldest first; they are not changed
}

// binding is a collector id that belongs to an identity. It is replaced, not changed.
type binding struct {
	collector, identity string
	until               int64
}

// Before implements [sorted.Member].
func (b *binding) Before(other *binding) bool { return b.collector < other.collector }

// BindCollector implements [dispatch.Bindings].
func (s *Store) BindCollector(ctx context.Context, collectorID, identity string, ttl time.Duration) (string, error) {
	if collectorID == "" || identity == "" {
		return "", fmt.Errorf("%w: collector %q cannot belong to identity %q: both must be set", dispatch.ErrInvalid, collectorID, identity)
	}
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	owner, last, err := s.access.bind(collectorID, identity, ttl)
	if err != nil {
		return "", err
	}
	return owner, durable(ctx, last)
}

// ReleaseCollector implements [dispatch.Bindings].
func (s *Store) ReleaseCollector(ctx context.Context, collectorID string) (string, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	owner, last, err := s.access.release(collectorID)
	if err != nil {
		return "", err
	}
	return owner, durable(ctx, last)
}

// bound finds the binding of a collector id that has not ended.
func (b *accessBook) bound(collector string) *binding {
	if found, ok := b.bindings.Get(collector); ok && found.until > b.now {
		return found
	}
	return nil
}

func (b *accessBook) bind(collector, identity string, ttl time.Duration) (owner string, last Commit, err error) {
	b.begin()
	defer b.mu.Unlock()
	until, old := b.now+ms.Span(ttl), b.bound(collector)
	switch {
	case old != nil && old.identity != identity:
		return old.identity, b.last, nil
	case old != nil && until < old.until+ms.Span(min(dispatch.BindingStep, ttl/2)):
		return identity, b.last, nil
	}
	next := &binding{collector, identity, until}
	var ended []string
	for e := range b.ends.From(0) {
		if e.Score > b.now || len(ended) == endedBindings {
			break
		}
		ended = append(ended, e.Value.collector)
	}
	err = b.commit(machine.Drains{}, false, func() {
		for _, collector := range ended {
			b.remove(collector)
		}
		b.put(next)
	}, func(out []byte) []byte {
		for _, collector := range ended {
			out = codec.RemovedText(out, codec.Binding, 0, collector)
		}
		return codec.AppendItem(out, codec.Binding, 0, func(c *codec.Codec) { bindingFields(c, next) })
	})
	return identity, b.last, err
}

func (b *accessBook) release(collector string) (owner string, last Commit, err error) {
	b.begin()
	defer b.mu.Unlock()
	old := b.bound(collector)
	if old == nil {
		return "", b.last, nil
	}
	err = b.commit(machine.Drains{}, false, func() { b.remove(collector) }, func(out []byte) []byte {
		return codec.RemovedText(out, codec.Binding, 0, collector)
	})
	return old.identity, b.last, err
}

// put replaces the binding of a collector id.
func (b *accessBook) put(n *binding) {
	b.remove(n.collector)
	b.bindings.Set(n.collector, n)
	b.ends.Insert(n.until, n)
}

func (b *accessBook) remove(collector string) {
	if old, ok := b.bindings.Delete(collector); ok {
		b.ends.Remove(old.until, old)
	}
}
