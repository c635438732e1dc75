package web_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// allowed asks a handler whether it fetches a path of a site with the given robots.txt.
func allowed(t *testing.T, cfg web.Config, robots string, paths map[string]bool) {
	t.Helper()
	s := newSite(t)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			_, _ = io.WriteString(w, robots)
		}
	})
	h := newHandler(t, cfg)
	for path, want := range paths {
		_, err := handle(t, h, &collector.Task{URL: s.URL + path})
		var failed *collector.Failed
		switch {
		case err == nil:
		case !errors.As(err, &failed) || failed.Reason != collector.ReasonRobotsDenied || !failed.Permanent:
			t.Errorf("%s: %v", path, err)
		}
		if (err == nil) != want {
			t.Errorf("%s: allowed %t, want %t", path, err == nil, want)
		}
	}
}

// TestRobots_Config holds which rules are obeyed, and that none are when that is wanted.
func TestRobots_Config(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cfg    web.Config
		robots string
		paths  map[string]bool
	}{
		"own group only": {
			robots: "User-agent: *\nDisallow: /\n\nuser-agent: waggle\ndisallow: /b", paths: map[string]bool{"/": true, "/b": false},
		},
		"set name": {
			cfg:    web.Config{UserAgent: "Mozilla/5.0 (compatible; MyBot/1.0)", RobotsAgent: "mybot"},
			robots: "User-agent: MyBot\nDisallow: /a\nUser-agent: waggle\nDisallow: /", paths: map[string]bool{"/": true, "/a": false},
		},
		"ignored": {
			cfg: web.Config{IgnoreRobots: true}, robots: "User-agent: *\nDisallow: /", paths: map[string]bool{"/": true},
		},
		"beyond the limit": {
			robots: "User-agent: *\nDisallow: /a\n#" + strings.Repeat("x", 512<<10) + "\nDisallow: /b",
			paths:  map[string]bool{"/a": false, "/b": true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allowed(t, test.cfg, test.robots, test.paths)
		})
	}
}

// TestRobots_Unavailable holds what RFC 9309 wants when there is no robots.txt to be had.
func TestRobots_Unavailable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		header map[string]string
		want   *collector.Failed // nil: allowed
	}{
		"not found":    {status: 404},
		"forbidden":    {status: 403},
		"unauthorized": {status: 401},
		"throttled": {
			status: 429, header: map[string]string{"Retry-After": "60"},
			want: &collector.Failed{Reason: collector.ReasonThrottled, HTTPStatus: 429, RetryAfter: time.Minute},
		},
		"server error": {status: 500, want: &collector.Failed{Reason: collector.ReasonRobotsUnavailable, HTTPStatus: 500}},
		"maintenance": {
			status: 503, header: map[string]string{"Retry-After": "60"},
			want: &collector.Failed{Reason: collector.ReasonThrottled, HTTPStatus: 503, RetryAfter: time.Minute},
		},
		"redirects without end": {status: 302, header: map[string]string{"Location": "/robots.txt"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.page("/robots.txt", test.header, test.status, "")
			s.page("/", nil, 200, "")
			h := newHandler(t, web.Config{})
			_, err := handle(t, h, &collector.Task{URL: s.URL + "/"})
			if test.want == nil {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			got := failedOf(t, err)
			if got.Reason != test.want.Reason || got.HTTPStatus != test.want.HTTPStatus || got.RetryAfter != test.want.RetryAfter || got.Permanent {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if len(s.requests("/")) != 0 {
				t.Error("the page was fetched")
			}
		})
	}
}

// transport answers without a network, so that time can be virtual.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip answers.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r,
	}
}

// TestRobots_Cut holds that what is cut off at the limit says nothing, rather than something else.
func TestRobots_Cut(t *testing.T) {
	t.Parallel()
	const limit = 512 << 10
	head := "User-agent: *\nDisallow: /secret\n#"
	filler := strings.Repeat("x", limit-len(head)-len("\nDisallow: /"))
	allowed(t, web.Config{}, head+filler+"\nDisallow: /private\n", map[string]bool{"/": true, "/secret": false, "/private": true})
	allowed(t, web.Config{}, head+filler[:len(filler)-8]+"\nDisallow: /private\n", map[string]bool{"/": true, "/private": false})
	allowed(t, web.Config{}, strings.Repeat("x", limit+1), map[string]bool{"/": true})
}

// TestRobots_Broken holds that half of a robots.txt is as good as none that can be reached.
func TestRobots_Broken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.mux.HandleFunc("/robots.txt", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "User-agent: *\n")
	})
	s.page("/", nil, 200, "x")
	_, err := handle(t, newHandler(t, web.Config{}), &collector.Task{URL: s.URL + "/"})
	if got := failedOf(t, err); got.Reason != collector.ReasonRobotsUnavailable || len(s.requests("/")) != 0 {
		t.Errorf("got %+v", got)
	}
}
