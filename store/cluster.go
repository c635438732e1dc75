package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// hintBuffer is how many hints a subscriber may be behind; beyond it hints are lost, and it gets HintResync.
const hintBuffer = 1024

// cluster is what the dispatchers of this process share other than data: leaders and hints.
type cluster struct {
	*clock

	mu          sync.Mutex // guards what follows
	leaders     map[string]leader
	subscribers []*subscriber
}

type leader struct {
	holder string
	until  int64
}

// subscriber has hints that wait for it.
type subscriber struct {
	hints chan dispatch.Hint
	// lost has a value when hints were lost.
	lost chan struct{}
}

// Campaign implements [dispatch.Cluster].
func (c *cluster) Campaign(ctx context.Context, duty, holder string, ttl time.Duration) (string, error) {
	if err := c.usable(ctx); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now, l := c.millis(), c.leaders[duty]
	switch led := l.until > now; {
	case led && l.holder != holder:
		if ttl > 0 { // further ahead, the clock was stepped back
			l.until = min(l.until, now+ms.Span(ttl))
			c.leaders[duty] = l
		}
		return l.holder, nil
	case ttl <= 0:
		delete(c.leaders, duty)
		return "", nil
	}
	c.leaders[duty] = leader{holder: holder, until: now + ms.Span(ttl)}
	return holder, nil
}

// publish gives a hint to all subscribers, and never waits for one.
func (c *cluster) publish(hint dispatch.Hint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sub := range c.subscribers {
		select {
		case sub.hints <- hint:
			continue
		default:
		}
		select {
		case sub.lost <- struct{}{}:
		default: // it is noted already
		}
	}
}

// Publish implements [dispatch.Cluster].
func (c *cluster) Publish(ctx context.Context, hint dispatch.Hint) error {
	if err := c.usable(ctx); err != nil {
		return err
	}
	c.publish(hint)
	return nil
}

// Subscribe implements [dispatch.Cluster]. It begins with HintResync: hints
// before it may have been missed.
func (c *cluster) Subscribe(ctx context.Context, deliver func(dispatch.Hint)) error {
	if err := c.usable(ctx); err != nil {
		return err
	}
	sub := &subscriber{hints: make(chan dispatch.Hint, hintBuffer), lost: make(chan struct{}, 1)}
	c.setSubscribers(func(all []*subscriber) []*subscriber { return append(all, sub) })
	defer c.setSubscribers(func(all []*subscriber) []*subscriber {
		return slices.DeleteFunc(all, func(other *subscriber) bool { return other == sub })
	})
	deliver(dispatch.Hint{Kind: dispatch.HintResync})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.closed:
			return errClosed
		case hint := <-sub.hints:
			deliver(hint)
		case <-sub.lost:
			deliver(dispatch.Hint{Kind: dispatch.HintResync})
		}
	}
}

func (c *cluster) setSubscribers(change func([]*subscriber) []*subscriber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribers = change(c.subscribers)
}
