// Package robots obeys robots.txt by RFC 9309: it decides which URLs a crawler may fetch, knows the delay that a host asks
// for and the sitemaps that it names, and caches the file of each host. How a file is fetched is left to its caller.
package robots

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/jellydator/ttlcache/v3"
)

const (
	// MaxBytes is how much of a robots.txt counts; RFC 9309 asks for at least 500 KiB and lets the rest be ignored.
	MaxBytes = 512 << 10

	// MaxRedirects is how far RFC 9309 asks to follow a robots.txt, to other hosts too.
	MaxRedirects = 5

	// maxFiles and maxCached, in bytes, bound the cache.
	maxFiles  = 10_000
	maxCached = 64 << 20

	// errorTTL is how long a failed fetch of a robots.txt counts, for the tasks in flight. After it the queue's block, which
	// grows with each failure, decides when the host is asked again.
	errorTTL = 5 * time.Second

	// delayReports is how often it is reported that a host asks for no delay: a report may get lost with its lease.
	delayReports = 3
)

// DeniedError is the error of a URL that robots.txt forbids.
type DeniedError struct {
	URL   string
	Agent string
}

// Error names the URL and the crawler.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("robots.txt does not allow %s to fetch %s", e.Agent, e.URL)
}

// UnavailableError is the error of a URL whose host has a robots.txt that could not be fetched, so that nothing may be
// fetched from there for now.
type UnavailableError struct {
	URL        string // of the robots.txt
	Status     int    // of the answer; 0: there was none, for Cause
	RetryAfter time.Duration
	Cause      error
}

// Error says why there is no robots.txt.
func (e *UnavailableError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("fetch %s: %v", e.URL, e.Cause)
	}
	return fmt.Sprintf("fetch %s: status %d", e.URL, e.Status)
}

// Unwrap is the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// Answer is what a host answered when it was asked for its robots.txt, after redirects.
type Answer struct {
	Status     int
	RetryAfter time.Duration
	Body       []byte // cut at MaxBytes if it is longer
}

// Fetch fetches a robots.txt. Redirects that lead nowhere are a 404, as RFC 9309 wants; an error is one of the network.
type Fetch func(ctx context.Context, u *url.URL) (Answer, error)

// Cache answers whether URLs may be fetched, and keeps each host's robots.txt for a while. It may be used by any number of
// goroutines.
type Cache struct {
	agent string
	ttl   time.Duration
	fetch Fetch
	hosts *ttlcache.Cache[string, *host] // by origin; the least recently used go first
}

// host is one origin. Whoever holds its turn may fetch its robots.txt.
type host struct {
	turn chan struct{}        // of capacity 1
	file atomic.Pointer[file] // nil: not fetched yet
}

// fresh is the robots.txt that was fetched; nil if it has to be fetched.
func (h *host) fresh() *file {
	if found := h.file.Load(); found != nil && time.Now().Before(found.expires) {
		return found
	}
	return nil
}

func (h *host) bytes() int {
	if found := h.file.Load(); found != nil {
		return found.rules.bytes()
	}
	return 0
}

// file is the robots.txt of one origin, or why there is none. Reports of earlier fetches may use one that has expired.
type file struct {
	rules   rules
	err     error
	expires time.Time
	told    atomic.Int32 // how many reports had no delay
}

// NewCache makes a Cache for the crawler with the given product token. ttl is how long a robots.txt is kept.
func NewCache(agent string, ttl time.Duration, fetch Fetch) *Cache {
	return &Cache{
		agent: agent, ttl: ttl, fetch: fetch,
		hosts: ttlcache.New(
			ttlcache.WithCapacity[string, *host](maxFiles),
			ttlcache.WithMaxCost(maxCached, func(item ttlcache.CostItem[string, *host]) uint64 { return uint64(item.Value.bytes()) }),
		),
	}
}

// Check returns nil when u may be fetched, a *DeniedError when not, an *UnavailableError when nobody knows, and the
// context's cause when it has ended. One request is sent per host, however many tasks wait for the answer.
func (c *Cache) Check(ctx context.Context, u *url.URL) error {
	found, err := c.get(ctx, u)
	switch {
	case err != nil:
		return err
	case found.err != nil:
		return found.err
	case !found.rules.allows(u):
		return &DeniedError{URL: u.String(), Agent: c.agent}
	}
	return nil
}

// Sitemaps are the URLs of those that the robots.txt of u's host names, if it has been read.
func (c *Cache) Sitemaps(u *url.URL) []string {
	if found := c.read(u); found != nil {
		return found.rules.sitemaps
	}
	return nil
}

// Delay is what the robots.txt of u's host asks to leave between requests. ok is false when nothing has to be reported: it
// is not known, or none is asked for and this was reported often enough since the file was read.
func (c *Cache) Delay(u *url.URL) (delay time.Duration, ok bool) {
	found := c.read(u)
	if found == nil || found.rules.delay == 0 && found.told.Add(1) > delayReports {
		return 0, false
	}
	return found.rules.delay, true
}

// read is the robots.txt of u's host; nil unless it has been read.
func (c *Cache) read(u *url.URL) *file {
	if item := c.hosts.Get(originOf(u)); item != nil {
		if found := item.Value().file.Load(); found != nil && found.err == nil {
			return found
		}
	}
	return nil
}

func originOf(u *url.URL) string { return u.Scheme + "://" + u.Host }

// get returns the robots.txt of u's host. One task fetches it; if that task ends before there is an answer, the next one does.
func (c *Cache) get(ctx context.Context, u *url.URL) (*file, error) {
	item, _ := c.hosts.GetOrSet(originOf(u), &host{turn: make(chan struct{}, 1)})
	h := item.Value()
	if found := h.fresh(); found != nil {
		return found, nil
	}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }() // also if the fetch panics
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if found := h.fresh(); found != nil {
		return found, nil
	}
	target := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
	answer, err := c.fetch(ctx, target)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	found, ttl := &file{}, c.ttl
	if found.rules, found.err = c.judge(target, answer, err); found.err != nil {
		ttl = min(ttl, errorTTL)
	}
	found.expires = time.Now().Add(ttl)
	h.file.Store(found)
	c.hosts.Set(originOf(u), h, ttlcache.NoTTL) // it costs something now
	return found, nil
}

// judge turns an answer into rules. 4xx means that there is no robots.txt, except for 429, which means what it says. 101
// is no answer to the question, and counts as a failure of the server.
func (c *Cache) judge(target *url.URL, answer Answer, err error) (rules, error) {
	switch {
	case err != nil:
		return rules{}, &UnavailableError{URL: target.String(), Cause: err}
	case answer.Status == http.StatusTooManyRequests || answer.Status >= 500 || answer.Status < 200:
		return rules{}, &UnavailableError{URL: target.String(), Status: answer.Status, RetryAfter: answer.RetryAfter}
	case answer.Status >= 400:
		return rules{}, nil
	}
	body := answer.Body
	if len(body) >= MaxBytes { // the last line may be cut, and mean more than it should
		body = body[:bytes.LastIndexAny(body, "\r\n")+1]
	}
	return parse(body, c.agent, target), nil
}
