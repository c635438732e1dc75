package web_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// robotsSite answers with a robots.txt, pages, and a redirect from /old to /new.
func robotsSite(robots string) roundTripper {
	return func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		switch r.URL.Path {
		case "/robots.txt":
			_, _ = io.WriteString(w, robots)
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/old":
			time.Sleep(2 * time.Second)
			w.Header().Set("Location", "/new")
			w.WriteHeader(http.StatusFound)
		case "/slow":
			time.Sleep(7 * time.Second)
		}
		return w.Result()
	}
}

// TestHandler_CrawlDelay holds how long a task is kept, in virtual time.
func TestHandler_CrawlDelay(t *testing.T) {
	t.Parallel()
	const five = "User-agent: *\nCrawl-delay: 5\nDisallow: /denied\n"
	for name, test := range map[string]struct {
		robots, path string
		cfg          web.Config
		want         time.Duration
	}{
		"page":          {robots: five, path: "/", want: 5 * time.Second},
		"failure":       {robots: five, path: "/missing", want: 5 * time.Second},
		"slow page":     {robots: five, path: "/slow", want: 7 * time.Second},
		"redirect":      {robots: five, path: "/old", want: 7 * time.Second},
		"denied":        {robots: five, path: "/denied"},
		"parts":         {robots: "User-agent: *\ncrawl-delay: 0.5 # s\n", path: "/", want: 500 * time.Millisecond},
		"own group":     {robots: "User-agent: *\nCrawl-delay: 5\nUser-agent: waggle\nCrawl-delay: 2\nCrawl-delay: 1\n", path: "/", want: 2 * time.Second},
		"other's":       {robots: "User-agent: other\nCrawl-delay: 5\n", path: "/"},
		"after a delay": {robots: "User-agent: other\nCrawl-delay: 5\nUser-agent: *\nDisallow: /x\n", path: "/"},
		"too long":      {robots: "User-agent: *\nCrawl-delay: 3600\n", path: "/", want: 10 * time.Second},
		"limit":         {robots: five, path: "/", cfg: web.Config{MaxCrawlDelay: time.Second}, want: time.Second},
		"not honored":   {robots: five, path: "/", cfg: web.Config{MaxCrawlDelay: -1}},
		"no robots.txt": {robots: five, path: "/", cfg: web.Config{IgnoreRobots: true}},
		"negative":      {robots: "User-agent: *\nCrawl-delay: -1\n", path: "/"},
		"no number":     {robots: "User-agent: *\nCrawl-delay: NaN\nCrawl-delay: 1e999\nCrawl-delay: soon\n", path: "/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.cfg.Transport = robotsSite(test.robots)
				h := strictHandler(t, test.cfg)
				for range 2 { // the second time robots.txt is known
					start := time.Now()
					done, err := handle(t, h, &collector.Task{URL: "http://example.com" + test.path})
					if got := time.Since(start); got != test.want {
						t.Errorf("took %s, want %s (%v)", got, test.want, err)
					}
					if err == nil && test.path != "/slow" && done.FetchDuration > 2*time.Second {
						t.Errorf("the fetch is said to have taken %s", done.FetchDuration)
					}
				}
			})
		})
	}
}

// TestHandler_CrawlDelayEnds holds that a task that has to end does, with what it has.
func TestHandler_CrawlDelayEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := strictHandler(t, web.Config{Transport: robotsSite("User-agent: *\nCrawl-delay: 5\n")})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("drained"))
		defer cancel()
		start := time.Now()
		done, err := h.Handle(ctx, &collector.Task{URL: "http://example.com/"})
		if err != nil || done.HTTPStatus != 200 || time.Since(start) != time.Second {
			t.Errorf("%+v, %v after %s", done, err, time.Since(start))
		}
	})
}
