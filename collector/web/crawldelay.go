package web

import (
	"context"
	"strconv"
	"time"
)

// parseCrawlDelay reads the seconds of a Crawl-delay line, also parts of them.
func parseCrawlDelay(value string) (time.Duration, bool) {
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || !(seconds >= 0 && seconds <= maxRetryAfter.Seconds()) {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// holdCrawlDelay keeps the task, and with it the turn of its queue, until the delay that robots.txt asks for has passed
// since the last request. It ends early when the task has to.
func (v *visit) holdCrawlDelay(ctx context.Context) {
	h := v.handler
	if h.robots == nil || h.cfg.MaxCrawlDelay <= 0 || v.last.IsZero() {
		return
	}
	wait := time.Until(v.last.Add(min(h.robots.delay(v.url), h.cfg.MaxCrawlDelay)))
	if wait <= 0 {
		return
	}
	v.body, v.answer = nil, nil // nothing big is kept meanwhile
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
