package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore/internal/codec"
)

// endedBindings is how many bindings that have ended are removed with each new one.
const endedBindings = 2

// accessBook keeps which identities collector ids belong to, and what operators changed.
type accessBook struct {
	part // its mutex guards what follows

	bindings btree.Map[string, *binding] // by collector id
	ends     sortedSet[*binding]

	audit []*auditEntry // the oldest first; they are not changed
}

// binding is a collector id that belongs to an identity. It is replaced, not changed.
type binding struct {
	collector, identity string
	until               int64
}

func (b *binding) member() string { return b.collector }

func bindingFields(c *codec.Codec, b *binding) {
	codec.Text(c, &b.collector)
	codec.Text(c, &b.identity)
	codec.Int(c, &b.until)
}

// accessCommand changes bindings or the audit log.
type accessCommand interface {
	command
	run(b *accessBook)
}

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
	until, old := b.now+span(ttl), b.bound(collector)
	switch {
	case old != nil && old.identity != identity:
		return old.identity, b.last, nil
	case old != nil && until < old.until+span(min(dispatch.BindingStep, ttl/2)):
		return identity, b.last, nil
	}
	c := bindCommand{binding: &binding{collector, identity, until}}
	for e := range b.ends.from(0) {
		if e.score > b.now || len(c.ended) == endedBindings {
			break
		}
		c.ended = append(c.ended, e.value.collector)
	}
	err = b.commit(&c, b.number, func() { c.run(b) })
	return identity, b.last, err
}

func (b *accessBook) release(collector string) (owner string, last Commit, err error) {
	b.begin()
	defer b.mu.Unlock()
	old := b.bound(collector)
	if old == nil {
		return "", b.last, nil
	}
	c := releaseCommand{collector: collector}
	err = b.commit(&c, b.number, func() { c.run(b) })
	return old.identity, b.last, err
}

// put replaces the binding of a collector id.
func (b *accessBook) put(n *binding) {
	b.remove(n.collector)
	b.bindings.Set(n.collector, n)
	b.ends.insert(n.until, n)
}

func (b *accessBook) remove(collector string) {
	if old, ok := b.bindings.Delete(collector); ok {
		b.ends.remove(old.until, old)
	}
}

// bindCommand sets a binding, and removes some that have ended.
type bindCommand struct {
	noResults
	binding *binding
	ended   []string
}

func (*bindCommand) op() op { return opBind }

func (c *bindCommand) inputs(code *codec.Codec) {
	if code.Reading() {
		c.binding = new(binding)
	}
	bindingFields(code, c.binding)
	codec.List(code, &c.ended, codec.Text)
}

func (c *bindCommand) run(b *accessBook) {
	b.changed = true
	for _, collector := range c.ended {
		b.remove(collector)
	}
	b.put(c.binding)
}

// releaseCommand ends a binding.
type releaseCommand struct {
	noResults
	collector string
}

func (*releaseCommand) op() op { return opRelease }

func (c *releaseCommand) inputs(code *codec.Codec) { codec.Text(code, &c.collector) }

func (c *releaseCommand) run(b *accessBook) {
	b.changed = true
	b.remove(c.collector)
}
