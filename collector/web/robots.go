package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// robotsMaxBytes is how much of a robots.txt counts; RFC 9309 asks for at least 500 KiB and lets the rest be ignored.
	robotsMaxBytes = 512 << 10

	// robotsMaxRedirects is how far RFC 9309 asks to follow a robots.txt, to other hosts too.
	robotsMaxRedirects = 5

	// robotsMaxHosts and robotsCacheBytes bound the cache.
	robotsMaxHosts   = 10_000
	robotsCacheBytes = 64 << 20

	// robotsErrorTTL is how long a robots.txt that could not be had keeps its host closed before it is asked again: for
	// the tasks under way. The host rests after each failure as its queue's block says, longer each time.
	robotsErrorTTL = 5 * time.Second
)

// robotsDenied says that robots.txt forbids a URL.
type robotsDenied struct {
	url   string
	agent string
}

func (e *robotsDenied) Error() string {
	return fmt.Sprintf("robots.txt does not allow %s to fetch %s", e.agent, e.url)
}

// robotsUnavailable says that robots.txt could not be had, so that nothing may be fetched from its host for now.
// status is the answer's status, 0 when there was none; then cause says why.
type robotsUnavailable struct {
	url        string
	status     int
	retryAfter time.Duration
	cause      error
}

func (e *robotsUnavailable) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("fetch %s: %v", e.url, e.cause)
	}
	return fmt.Sprintf("fetch %s: status %d", e.url, e.status)
}

func (e *robotsUnavailable) Unwrap() error { return e.cause }

// robots answers whether a URL may be fetched, by RFC 9309, and keeps each host's robots.txt for a while.
type robots struct {
	fetcher *fetcher
	agent   string // product token
	ttl     time.Duration
	timeout time.Duration

	mu    sync.Mutex // guards hosts and bytes
	hosts map[string]*robotsEntry
	bytes int // what the rules in hosts cost
}

// robotsEntry is one host's robots.txt. rules, err and expires are set before done is closed, and not changed after.
type robotsEntry struct {
	done    chan struct{}
	rules   robotsRules
	err     error
	expires time.Time

	bytes int // what rules cost; guarded by the cache's mu
	told  int // how many reports were told that no delay is asked for; guarded by the cache's mu
}

func newRobots(f *fetcher, agent string, ttl, timeout time.Duration) *robots {
	return &robots{fetcher: f, agent: agent, ttl: ttl, timeout: timeout, hosts: make(map[string]*robotsEntry)}
}

// check returns nil when u may be fetched, a *robotsDenied when not, a *robotsUnavailable when nobody knows, and the
// context's cause when it has ended. One request is sent per host, however many tasks wait for the answer.
func (r *robots) check(ctx context.Context, u *url.URL) error {
	for {
		entry, mine := r.entry(u.Scheme+"://"+u.Host, time.Now())
		if mine {
			r.load(ctx, u, entry)
		}
		select {
		case <-entry.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if errors.Is(entry.err, errLoaderGone) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			continue // the task that asked has ended; ask for ourselves
		}
		if entry.err != nil {
			return entry.err
		}
		if !entry.rules.allows(u) {
			return &robotsDenied{url: u.String(), agent: r.agent}
		}
		return nil
	}
}

// rulesOf is what the robots.txt of u's host says, if it has been read.
func (r *robots) rulesOf(u *url.URL) (rules robotsRules, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.read(u)
	if entry == nil {
		return robotsRules{}, false
	}
	return entry.rules, true
}

// robotsTold is how many reports say that a host asks for no delay, in case it asked for one before: any of them may get
// lost with its lease.
const robotsTold = 3

// delay is what the robots.txt of u's host asks to leave between requests. ok is false when nobody needs to be told: it is
// not known, or none is asked for and this was said often enough since the file was read.
func (r *robots) delay(u *url.URL) (delay time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.read(u)
	if entry == nil || entry.rules.delay == 0 && entry.told == robotsTold {
		return 0, false
	}
	if entry.rules.delay == 0 {
		entry.told++
	}
	return entry.rules.delay, true
}

// read is the entry of u's host, nil unless its robots.txt has been read. Called with mu held.
func (r *robots) read(u *url.URL) *robotsEntry {
	entry := r.hosts[u.Scheme+"://"+u.Host]
	if entry == nil {
		return nil
	}
	select {
	case <-entry.done:
		if entry.err == nil {
			return entry
		}
	default:
	}
	return nil
}

// errLoaderGone marks an entry whose fetch ended because the context of its asker did, or because it panicked.
var errLoaderGone = errors.New("robots.txt: asker has gone")

// entry finds the entry of an origin, or makes one; then mine is true and the caller loads it.
func (r *robots) entry(origin string, now time.Time) (entry *robotsEntry, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if entry = r.hosts[origin]; entry != nil && !entry.expired(now) {
		return entry, false
	}
	if len(r.hosts) >= robotsMaxHosts {
		r.evict(now)
	}
	r.drop(origin)
	entry = &robotsEntry{done: make(chan struct{})}
	r.hosts[origin] = entry
	return entry, true
}

// drop forgets a host. Called with mu held.
func (r *robots) drop(origin string) {
	if entry := r.hosts[origin]; entry != nil {
		r.bytes -= entry.bytes
		delete(r.hosts, origin)
	}
}

// account notes what an entry's rules cost, and makes room when that is too much for the cache.
func (r *robots) account(origin string, entry *robotsEntry, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosts[origin] != entry {
		return // made room for meanwhile
	}
	entry.bytes = bytes
	r.bytes += bytes
	for other := range r.hosts {
		if r.bytes <= robotsCacheBytes {
			return
		}
		if other != origin {
			r.drop(other)
		}
	}
}

func (e *robotsEntry) expired(now time.Time) bool {
	select {
	case <-e.done:
		return !now.Before(e.expires)
	default:
		return false
	}
}

// evict drops what has expired, and if that is nothing, a tenth of the rest. Called with mu held.
func (r *robots) evict(now time.Time) {
	before := len(r.hosts)
	for origin, entry := range r.hosts {
		if entry.expired(now) {
			r.drop(origin)
		}
	}
	if len(r.hosts) < before {
		return
	}
	surplus := robotsMaxHosts / 10
	for origin := range r.hosts {
		if surplus--; surplus < 0 {
			return
		}
		r.drop(origin)
	}
}

// load fetches the robots.txt of u's host and closes the entry.
func (r *robots) load(ctx context.Context, u *url.URL, entry *robotsEntry) {
	defer close(entry.done)
	// Also of one that panics: those who wait must not take what it left for a robots.txt that allows everything.
	entry.err, entry.expires = errLoaderGone, time.Now()
	fetchCtx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	target := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
	answer, err := r.fetcher.get(fetchCtx, fetchRequest{
		url: target, accept: "text/plain,*/*;q=0.5", maxBytes: robotsMaxBytes, truncate: true,
		maxRedirects: robotsMaxRedirects,
	})
	now := time.Now()
	if ctx.Err() != nil && err != nil {
		return
	}
	entry.rules, entry.err = r.judge(target, answer, err, now)
	entry.expires = now.Add(r.ttl)
	if entry.err != nil {
		entry.expires = now.Add(min(r.ttl, robotsErrorTTL))
	}
	r.account(u.Scheme+"://"+u.Host, entry, entry.rules.bytes())
}

// judge turns an answer into rules. 4xx means that there is no robots.txt, except for 429, which means what it says. 101
// is no answer to the question, and counts as a failure of the server.
func (r *robots) judge(target *url.URL, answer *fetched, err error, now time.Time) (robotsRules, error) {
	switch {
	case errors.Is(err, errRedirects) || errors.Is(err, errBadRedirect):
		return robotsRules{}, nil // RFC 9309: as if there were none
	case err != nil:
		return robotsRules{}, &robotsUnavailable{url: target.String(), cause: err}
	case answer.status == http.StatusTooManyRequests || answer.status >= 500 || answer.status < 200:
		return robotsRules{}, &robotsUnavailable{
			url: target.String(), status: answer.status, retryAfter: retryAfter(answer.header, now),
		}
	case answer.status >= 400:
		return robotsRules{}, nil
	}
	body := answer.body
	if len(body) >= robotsMaxBytes { // the last line may be cut, and say more than it should
		body = body[:bytes.LastIndexByte(body, '\n')+1]
	}
	return parseRobots(body, r.agent), nil
}
