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

// BindCollector implements [dispatch.Collectors].
func (s *Store) BindCollector(ctx context.Context, collectorID, identity string, ttl time.Duration) (string, error) {
	if collectorID == "" || identity == "" {
		return "", fmt.Errorf("%w: collector %q cannot belong to identity %q: both must be set", dispatch.ErrInvalid, collectorID, identity)
	}
	owner := identity
	err := s.access.call(ctx, func() error {
		if old := s.access.bound(collectorID); old != nil && old.identity != identity {
			owner = old.identity
			return nil
		}
		return s.access.bind(collectorID, identity, ttl)
	})
	return owner, err
}

// ReleaseCollector implements [dispatch.Collectors].
func (s *Store) ReleaseCollector(ctx context.Context, collectorID string) (string, error) {
	b, owner := &s.access, ""
	err := b.call(ctx, func() error {
		old := b.bound(collectorID)
		if old == nil {
			return nil
		}
		owner = old.identity
		return b.commit(bookShard, machine.SmallGroup, false, func() { b.remove(collectorID) }, func(out []byte) []byte {
			return codec.RemovedText(out, codec.Binding, 0, collectorID)
		})
	})
	return owner, err
}

// bound finds the binding of a collector id that has not ended.
func (b *accessBook) bound(collector string) *binding {
	if found, ok := b.bindings.Get(collector); ok && found.until > b.now {
		return found
	}
	return nil
}

// bind binds a collector id that belongs to nobody else, unless its binding lasts about as long.
func (b *accessBook) bind(collector, identity string, ttl time.Duration) error {
	until := b.now + ms.Span(ttl)
	if old := b.bound(collector); old != nil && until < old.until+ms.Span(min(dispatch.BindingStep, ttl/2)) {
		return nil
	}
	next := &binding{collector, identity, until}
	var ended []string
	for e := range b.ends.From(0) {
		if e.Score > b.now || len(ended) == endedBindings {
			break
		}
		ended = append(ended, e.Value.collector)
	}
	return b.commit(bookShard, machine.SmallGroup, false, func() {
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
