package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web/robots"
)

// Handler fetches the URLs of tasks. It may be used by any number of goroutines.
type Handler struct {
	cfg     Config
	fetcher *fetcher
	robots  *robots.Cache // nil: robots.txt is not asked
	refused sync.Once     // logs the first address that is refused
	large   chan struct{} // of capacity 1: held while a packed body is read
	close   func()
}

var _ collector.Handler = (*Handler)(nil)

// New makes a Handler. Close it when its collector has stopped.
func New(cfg Config) (*Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("web config: %w", err)
	}
	cfg = cfg.withDefaults()
	h := &Handler{cfg: cfg, large: make(chan struct{}, 1), close: func() {}}
	if cfg.Transport == nil {
		transport := newTransport(cfg.Proxy, cfg.AllowPrivate)
		if cfg.Exchanges {
			for _, part := range transport.parts() {
				keepHeads(part)
			}
		}
		cfg.Transport, h.close = transport, transport.closeIdle
	}
	h.fetcher = &fetcher{
		transport: cfg.Transport, userAgent: cfg.UserAgent, codings: acceptEncoding, allowPrivate: cfg.AllowPrivate, maxRatio: int64(cfg.MaxRatio),
	}
	if cfg.Exchanges {
		h.fetcher.codings = archivedEncoding
	}
	if !cfg.IgnoreRobots {
		h.robots = robots.NewCache(cfg.RobotsAgent, cfg.RobotsTTL, h.fetchRobots)
	}
	return h, nil
}

// Close closes idle connections of the default transport.
func (h *Handler) Close() { h.close() }

// Handle fetches the task's URL, stores the page and reports its links.
func (h *Handler) Handle(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
	v := &visit{cfg: &h.cfg, fetcher: h.fetcher, robots: h.robots, large: h.large, task: t, before: readMemo(t.Memo)}
	done, err := v.run(ctx)
	if isRefusal(err) {
		if t.Depth == 0 {
			h.refused.Do(func() {
				h.cfg.Logger.Warn("address of a private network refused; if the site is yours, use --allow-private (AllowPrivate)",
					zap.String("url", v.url.String()), zap.String("source_id", t.SourceID), zap.Error(err))
			})
		}
		err = refusal(t, err, v.took)
	}
	if err == nil {
		done.QueueDelay = v.queueDelay()
	} else if failed, ok := errors.AsType[*collector.Failed](err); ok {
		failed.QueueDelay = v.queueDelay()
	}
	return done, err
}

// fetchRobots fetches a robots.txt.
func (h *Handler) fetchRobots(ctx context.Context, u *url.URL) (robots.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout/2)
	defer cancel()
	answer, err := h.fetcher.get(ctx, fetchRequest{
		url: u, accept: "text/plain,*/*;q=0.5", maxBytes: robots.MaxBytes, truncate: true, maxRedirects: robots.MaxRedirects,
	})
	switch {
	case errors.Is(err, errRedirects) || errors.Is(err, errBadRedirect):
		return robots.Answer{Status: http.StatusNotFound}, nil
	case err != nil:
		return robots.Answer{}, err
	}
	return robots.Answer{Status: answer.status, RetryAfter: retryAfter(answer.header, time.Now()), Body: answer.body}, nil
}
