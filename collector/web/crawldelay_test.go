package web_test

import (
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

// robotsSite answers with a robots.txt, unless it is empty, and pages.
func robotsSite(robots string) roundTripper {
	return func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		switch r.URL.Path {
		case "/robots.txt":
			if robots == "" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, robots)
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		}
		return w.Result()
	}
}

// askedDelay is what a visit reports of what its host asks for; -1: nothing.
func askedDelay(done collector.Succeeded, err error) time.Duration {
	delay := done.QueueDelay
	var failed *collector.Failed
	if errors.As(err, &failed) {
		delay = failed.QueueDelay
	}
	if delay == nil {
		return -1
	}
	return *delay
}

// TestHandler_CrawlDelay holds what is reported of it, by the first task of a host and by later ones. No task is kept for it:
// that is for the queue to do, which knows of all collectors.
func TestHandler_CrawlDelay(t *testing.T) {
	t.Parallel()
	const five = "User-agent: *\nCrawl-delay: 5\nDisallow: /denied\n"
	for name, test := range map[string]struct {
		robots, path string
		cfg          web.Config
		first, later time.Duration
	}{
		"page":          {robots: five, path: "/", first: 5 * time.Second, later: 5 * time.Second},
		"failure":       {robots: five, path: "/missing", first: 5 * time.Second, later: 5 * time.Second},
		"denied":        {robots: five, path: "/denied", first: 5 * time.Second, later: 5 * time.Second},
		"parts":         {robots: "User-agent: *\ncrawl-delay: 0.5 # s\n", path: "/", first: 500 * time.Millisecond, later: 500 * time.Millisecond},
		"own group":     {robots: "User-agent: *\nCrawl-delay: 5\nDisallow:\nUser-agent: waggle\nCrawl-delay: 2\nCrawl-delay: 1\n", path: "/", first: 2 * time.Second, later: 2 * time.Second},
		"none":          {robots: "User-agent: *\nDisallow: /x\n", path: "/", later: -1},
		"other's":       {robots: "User-agent: other\nCrawl-delay: 5\n", path: "/", later: -1},
		"one group":     {robots: "User-agent: other\nCrawl-delay: 5\nUser-agent: *\nDisallow: /x\n", path: "/", first: 5 * time.Second, later: 5 * time.Second},
		"too long":      {robots: "User-agent: *\nCrawl-delay: 7200\n", path: "/", first: time.Hour, later: time.Hour},
		"limit":         {robots: five, path: "/", cfg: web.Config{MaxCrawlDelay: time.Second}, first: time.Second, later: time.Second},
		"not honored":   {robots: five, path: "/", cfg: web.Config{MaxCrawlDelay: -1}, first: -1, later: -1},
		"not asked for": {robots: five, path: "/", cfg: web.Config{IgnoreRobots: true}, first: -1, later: -1},
		"not to be had": {path: "/", first: -1, later: -1},
		"negative":      {robots: "User-agent: *\nCrawl-delay: -1\n", path: "/", later: -1},
		"no number":     {robots: "User-agent: *\nCrawl-delay: NaN\nCrawl-delay: 1e999\nCrawl-delay: soon\n", path: "/", later: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.cfg.Transport = robotsSite(test.robots)
				h := strictHandler(t, test.cfg)
				start := time.Now()
				wants := []time.Duration{test.first, test.later, test.later}
				if test.first == 0 && test.later < 0 { // that there is none is said three times
					wants = []time.Duration{0, 0, 0, -1, -1}
				}
				for i, want := range wants {
					done, err := handle(t, h, &collector.Task{URL: "http://example.com" + test.path})
					if got := askedDelay(done, err); got != want {
						t.Errorf("task %d: reported %s, want %s (%v)", i, got, want, err)
					}
				}
				if took := time.Since(start); took > 0 {
					t.Errorf("tasks were kept for %s", took)
				}
			})
		})
	}
}

// TestHandler_CrawlDelayGoes holds that a host which no longer asks for a delay is reported to, once its robots.txt is read
// again.
func TestHandler_CrawlDelayGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		robots := "User-agent: *\nCrawl-delay: 5\n"
		h := strictHandler(t, web.Config{RobotsTTL: time.Minute, Transport: roundTripper(func(r *http.Request) *http.Response {
			return robotsSite(robots)(r)
		})})
		for i, want := range []time.Duration{5 * time.Second, 5 * time.Second, 0, 0, 0, -1, 0} {
			switch i {
			case 1:
				robots = "User-agent: *\n"
			case 2, 6:
				time.Sleep(time.Minute)
			}
			if got := askedDelay(handle(t, h, &collector.Task{URL: "http://example.com/"})); got != want {
				t.Errorf("task %d: reported %s, want %s", i, got, want)
			}
		}
	})
}
