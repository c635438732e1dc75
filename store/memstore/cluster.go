package memstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// hintBuffer is how many hints a subscriber may be behind; beyond it, they are
// lost and it is told to look at everything again.
const hintBuffer = 1024

// dutyBook keeps who leads what.
type dutyBook struct {
	mu      sync.Mutex // guards leaders
	leaders map[string]leader
}

type leader struct {
	holder string
	until  int64
}

// Campaign implements [dispatch.Cluster].
func (s *Store) Campaign(ctx context.Context, duty, holder string, ttl time.Duration) (string, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	s.duties.mu.Lock()
	defer s.duties.mu.Unlock()
	now, leaders := s.millis(), s.duties.leaders
	l := leaders[duty]
	led := l.until > now
	switch {
	case led && l.holder != holder:
		if ttl > 0 { // further ahead, the clock was stepped back
			l.until = min(l.until, now+span(ttl))
			leaders[duty] = l
		}
		return l.holder, nil
	case ttl <= 0:
		delete(leaders, duty)
		return "", nil
	}
	leaders[duty] = leader{holder: holder, until: now + span(ttl)}
	return holder, nil
}

// hub hands hints to the subscribers of this process.
type hub struct {
	closed chan struct{} // closed with the store

	mu          sync.Mutex // guards subscribers
	subscribers []*subscriber
}

// subscriber has hints that wait for it.
type subscriber struct {
	hints chan dispatch.Hint
	// lost has a value when hints were lost.
	lost chan struct{}
}

// publish gives a hint to all subscribers, and never waits for one.
func (h *hub) publish(hint dispatch.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, sub := range h.subscribers {
		select {
		case sub.hints <- hint:
		default:
			sub.lose()
		}
	}
}

// lose notes that hints were lost.
func (sub *subscriber) lose() {
	select {
	case sub.lost <- struct{}{}:
	default:
		// It is noted already.
	}
}

// Publish implements [dispatch.Cluster].
func (s *Store) Publish(ctx context.Context, hint dispatch.Hint) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	s.hub.publish(hint)
	return nil
}

// Subscribe implements [dispatch.Cluster]. It begins with HintResync: hints
// before it may have been missed.
func (s *Store) Subscribe(ctx context.Context, deliver func(dispatch.Hint)) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	sub := &subscriber{hints: make(chan dispatch.Hint, hintBuffer), lost: make(chan struct{}, 1)}
	s.hub.add(sub)
	defer s.hub.remove(sub)
	deliver(dispatch.Hint{Kind: dispatch.HintResync})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.hub.closed:
			return fmt.Errorf("%w: the memory store is closed", dispatch.ErrStoreUnavailable)
		case hint := <-sub.hints:
			deliver(hint)
		case <-sub.lost:
			deliver(dispatch.Hint{Kind: dispatch.HintResync})
		}
	}
}

func (h *hub) add(sub *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers = append(h.subscribers, sub)
}

func (h *hub) remove(sub *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers = slices.DeleteFunc(h.subscribers, func(other *subscriber) bool { return other == sub })
}
