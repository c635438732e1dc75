package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"github.com/waggle-crawl/waggle/collector"
)

// Handler fetches the URLs of tasks. It may be used by any number of goroutines.
type Handler struct {
	cfg     Config
	fetcher *fetcher
	robots  *robots   // nil: robots.txt is not asked
	refused sync.Once // tells of the first address that is refused
	close   func()
}

var _ collector.Handler = (*Handler)(nil)

// New makes a Handler. Close it when its collector has stopped.
func New(cfg Config) (*Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("web config: %w", err)
	}
	cfg = cfg.withDefaults()
	h := &Handler{cfg: cfg, close: func() {}}
	if cfg.Transport == nil {
		transport := newTransport(cfg.Proxy, cfg.AllowPrivate)
		if cfg.Exchanges {
			keepHeads(transport.direct)
			keepHeads(transport.proxied)
		}
		cfg.Transport, h.close = transport, transport.closeIdle
	}
	h.fetcher = &fetcher{
		transport: cfg.Transport, userAgent: cfg.UserAgent, allowPrivate: cfg.AllowPrivate, maxRatio: int64(cfg.MaxRatio),
	}
	if !cfg.IgnoreRobots {
		h.robots = newRobots(h.fetcher, cfg.RobotsAgent, cfg.RobotsTTL, cfg.Timeout/2)
	}
	return h, nil
}

// Close closes idle connections of the default transport.
func (h *Handler) Close() { h.close() }

// Handle fetches the task's URL, stores the page and reports its links.
func (h *Handler) Handle(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
	target, err := taskURL(t)
	if err == nil {
		err = h.fetcher.checkAddress(target)
	}
	if err != nil {
		if isRefusal(err) {
			return collector.Succeeded{}, h.refusal(t, target, err, 0)
		}
		return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonBadRequest, Message: err.Error(), Permanent: true}
	}
	v := &visit{handler: h, task: t, url: target, before: readMemo(t.Memo)}
	done, err := v.run(ctx)
	var failed *collector.Failed
	switch {
	case err == nil:
		done.QueueDelay = v.queueDelay()
	case errors.As(err, &failed):
		failed.QueueDelay = v.queueDelay()
	}
	return done, err
}

// taskURL is what to fetch: the URL, or the key of a task that has none.
func taskURL(t *collector.Task) (*url.URL, error) {
	return parseReference(cmp.Or(t.URL, t.Key), "")
}
