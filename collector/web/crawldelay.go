package web

import (
	"strconv"
	"time"
)

// maxCrawlDelay is the longest delay that a queue takes from a host.
const maxCrawlDelay = time.Hour

// parseCrawlDelay reads the seconds of a Crawl-delay line, also parts of them.
func parseCrawlDelay(value string) (time.Duration, bool) {
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil || !(seconds >= 0 && seconds <= maxRetryAfter.Seconds()) {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// queueDelay is what the host asks for between requests, for its queue to keep. Nil: it is not known, or nothing has to be
// said: that a host asks for none is said a few times each time its robots.txt is read, in case it asked for some before.
func (v *visit) queueDelay() *time.Duration {
	h := v.handler
	if h.robots == nil || h.cfg.MaxCrawlDelay < 0 {
		return nil
	}
	delay, ok := h.robots.delay(v.url)
	if !ok {
		return nil
	}
	delay = min(delay, h.cfg.MaxCrawlDelay)
	return &delay
}
