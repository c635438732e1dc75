//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	brokenGood  = 50 // pages that work
	brokenBad   = 3  // pages that always answer 500
	brokenDelay = 100 * time.Millisecond
	brokenEvery = 2 * time.Second // of the healthy source
	brokenWatch = 30 * time.Second

	// The work takes 5.5 s. One block of 10 s may come on top: three pages that fail may follow each other.
	brokenDone = 20 * time.Second
	brokenLate = 15 * time.Second
)

// TestBrokenPages crawls a host with 50 pages that work and 3 that always answer 500. A second source reads a page of
// the same host every 2 s. The pages that fail must hold up neither. The test prints how long the good pages take, and
// the longest wait of the second source.
func TestBrokenPages(t *testing.T) {
	t.Parallel()
	site := newBrokenSite(t)
	d := serve(t, "dispatcher", "memory", "")
	command(t, d.addr, "queue", "rule", "set", site.host(), "--min-delay", brokenDelay.String())
	collect := launch(t, "collector", programs.path("waggle"), "collect", "--server", d.addr, "--id", "broken-1", "--allow-private", "--log-format", "json")
	command(t, d.addr, "source", "create", "news", "--seed", site.url+"/news", "--every", brokenEvery.String())
	until(t, startLimit, "the healthy source is crawled", func() bool { return len(site.served("/news")) > 0 })
	began := time.Now()
	command(t, d.addr, "source", "create", "site", "--seed", site.url+"/", "--follow")
	until(t, 5*time.Minute, "the good pages are fetched", func() bool { return site.pages() == brokenGood })
	took := time.Since(began)
	until(t, 2*brokenWatch, "the retries have been watched", func() bool { return time.Since(began) >= brokenWatch })
	failing := len(site.served("/broken/0"))
	collect.stop(20 * time.Second)
	late := site.longestWait()
	t.Logf("%d good pages of a host, %v apart, beside %d that answer 500: done in %v; longest wait of the healthy source %v in %v; %d requests for the first page that fails",
		brokenGood, brokenDelay, brokenBad, took.Round(10*time.Millisecond), late.Round(10*time.Millisecond), time.Since(began).Round(time.Second), failing)
	if took > brokenDone {
		t.Errorf("the good pages took %v, want at most %v", took, brokenDone)
	}
	if late > brokenLate {
		t.Errorf("the healthy source waited %v, want at most %v", late, brokenLate)
	}
	if failing < 2 {
		t.Errorf("%d requests for a page that fails, want retries", failing)
	}
}

// brokenSite is the host, and the log of its requests.
type brokenSite struct {
	url string

	mu  sync.Mutex // guards log
	log map[string][]time.Time
}

func newBrokenSite(t *testing.T) *brokenSite {
	t.Helper()
	s := &brokenSite{log: map[string][]time.Time{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *brokenSite) host() string { return strings.TrimPrefix(s.url, "http://") }

// ServeHTTP implements [http.Handler].
func (s *brokenSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.log[r.URL.Path] = append(s.log[r.URL.Path], time.Now())
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/robots.txt":
		http.NotFound(w, r)
	case strings.HasPrefix(r.URL.Path, "/broken/"):
		http.Error(w, "The database is away.", http.StatusInternalServerError)
	case r.URL.Path == "/":
		w.Header().Set("Content-Type", "text/html")
		for i := range brokenBad {
			fmt.Fprintf(w, "<a href='/broken/%d'>broken</a>\n", i)
		}
		for i := range brokenGood {
			fmt.Fprintf(w, "<a href='/page/%d'>page</a>\n", i)
		}
	default:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>%s</title>", r.URL.Path)
	}
}

// served are the times of the requests for a path.
func (s *brokenSite) served(path string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log[path])
}

// pages is how many good pages were asked for.
func (s *brokenSite) pages() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.log {
		if strings.HasPrefix(path, "/page/") {
			n++
		}
	}
	return n
}

// longestWait is the longest time that the healthy source waited beyond its interval.
func (s *brokenSite) longestWait() (longest time.Duration) {
	at := append(s.served("/news"), time.Now())
	for i := range at[1:] {
		longest = max(longest, at[i+1].Sub(at[i])-brokenEvery)
	}
	return longest
}
