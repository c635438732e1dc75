//go:build e2e

package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector/web"
)

// TestRedirects crawls sites of redirects three times, by two dispatchers and two collectors: each chain ends at its page, once
// a crawl, and no two requests to a host begin sooner after one another than its delay.
func TestRedirects(t *testing.T) {
	t.Parallel()
	const delay = 100 * time.Millisecond
	sites := newRedirectSites(t)
	server, prefix := shared.Server(t)
	one, two := serve(t, "one", server.URL(), prefix), serve(t, "two", server.URL(), prefix)
	command(t, one.addr, "queue", "rule", "set", "*", "--min-delay", delay.String())
	for id, args := range map[string][]string{
		"moved":    {"--seed", sites.a.URL + "/moved"},                                    // as http to https: another origin
		"slash":    {"--seed", sites.a.URL + "/dir"},                                      // on its host
		"long":     {"--seed", sites.a.URL + "/5"},                                        // five redirects
		"sorted":   {"--seed", sites.a.URL + "/sorted?b=1&a=2", "--canonical-rules", "2"}, // to its own key
		"other":    {"--seed", sites.a.URL + "/other?b=1&a=2"},                            // not to its own, by the rules 1
		"excluded": {"--seed", sites.a.URL + "/in", "--exclude", "out"},                   // at the second hop
		"manual":   nil,
	} {
		command(t, one.addr, append([]string{"source", "create", id}, args...)...)
	}
	seeds := []string{"moved", "slash", "long", "sorted", "other", "excluded"}
	out := t.TempDir()
	for _, id := range []string{"c1", "c2"} {
		launch(t, id, programs.path("waggle"), "collect", "--server", one.addr+","+two.addr, "--id", id, "--slots", "4", "--allow-private", "--out", out)
	}
	ends := []string{"/there", "/dir/", "/0", "/sorted?a=2&b=1", "/other?a=2&b=1", "/posted/"}
	for crawl := 1; crawl <= 3; crawl++ {
		if crawl > 1 {
			command(t, two.addr, append([]string{"source", "trigger"}, seeds...)...)
		}
		command(t, two.addr, "task", "submit", "--source", "manual", "--if-exists", "again", sites.a.URL+"/posted")
		command(t, one.addr, append([]string{"source", "wait", "--for", "1m", "manual"}, seeds...)...)
		for _, end := range ends {
			if got := sites.count(end); got != crawl {
				t.Errorf("crawl %d: %s was requested %d times", crawl, end, got)
			}
		}
	}
	if got := sites.count("/out"); got != 0 {
		t.Errorf("what exclude matches was requested %d times", got)
	}
	from, sent := make(map[string]string), make(map[string][]time.Time)
	for _, page := range keptPages(t, out) {
		from[page.URL] = page.RedirectedFrom
		host := strings.Split(page.URL, "/")[2]
		sent[host] = append(sent[host], page.FetchTime)
	}
	for end, head := range map[string]string{
		sites.b.URL + "/there": sites.a.URL + "/moved", sites.a.URL + "/0": sites.a.URL + "/5", sites.b.URL + "/posted/": sites.a.URL + "/posted",
	} {
		if from[end] != head {
			t.Errorf("%s has redirected_from %q, want %q", end, from[end], head)
		}
	}
	for host, times := range sent { // as the collectors sent them: a busy machine notices requests late
		slices.SortFunc(times, time.Time.Compare)
		for i := range times[1:] {
			if gap := times[i+1].Sub(times[i]); gap < delay {
				t.Errorf("%s: a request was sent %v after the last one", host, gap)
			}
		}
	}
}

// redirectSites are two hosts.
type redirectSites struct {
	a, b *httptest.Server

	mu    sync.Mutex // guards asked
	asked map[string]int
}

func newRedirectSites(t *testing.T) *redirectSites {
	t.Helper()
	s := &redirectSites{asked: map[string]int{}}
	s.a, s.b = httptest.NewServer(s), httptest.NewServer(s)
	t.Cleanup(s.a.Close)
	t.Cleanup(s.b.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *redirectSites) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/robots.txt" {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	s.asked[r.RequestURI]++
	s.mu.Unlock()
	to := map[string]string{
		"/moved": s.b.URL + "/there", "/dir": "/dir/", "/5": "/4", "/4": "/3", "/3": "/2", "/2": "/1", "/1": "/0",
		"/sorted?b=1&a=2": "/sorted?a=2&b=1", "/other?b=1&a=2": "/other?a=2&b=1", "/in": "/on", "/on": "/out", "/posted": s.b.URL + "/posted",
	}[r.RequestURI]
	if r.RequestURI == "/posted" && "http://"+r.Host == s.b.URL {
		to = "/posted/"
	}
	if to != "" {
		http.Redirect(w, r, to, http.StatusMovedPermanently)
		return
	}
	_, _ = w.Write([]byte("a page"))
}

func (s *redirectSites) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// keptPages are the page lines in a directory.
func keptPages(t *testing.T, dir string) (pages []web.Page) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "pages-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var page web.Page
			if err := json.Unmarshal([]byte(line), &page); err != nil {
				t.Fatal(err)
			}
			pages = append(pages, page)
		}
	}
	return pages
}
