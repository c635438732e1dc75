package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

func TestRobots_Rules(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cfg    web.Config
		robots string
		paths  map[string]bool
	}{
		"empty": {robots: "", paths: map[string]bool{"/": true}},
		"all":   {robots: "User-agent: *\nDisallow: /", paths: map[string]bool{"/": false, "/x?y": false, "/robots.txt": true}},
		"empty disallow": {
			robots: "User-agent: *\nDisallow:", paths: map[string]bool{"/": true},
		},
		"own group only": {
			robots: "User-agent: *\nDisallow: /\n\nUser-agent: other\nUser-Agent: Waggle/2.0\nDisallow: /a\n\nuser-agent: waggle\ndisallow: /b",
			paths:  map[string]bool{"/": true, "/a/1": false, "/b": false, "/c": true},
		},
		"no prefix of a name": {
			robots: "User-agent: wag\nDisallow: /\nUser-agent: waggler\nDisallow: /\n", paths: map[string]bool{"/": true},
		},
		"set name": {
			cfg:    web.Config{UserAgent: "Mozilla/5.0 (compatible; MyBot/1.0)", RobotsAgent: "mybot"},
			robots: "User-agent: MyBot\nDisallow: /a\nUser-agent: waggle\nDisallow: /", paths: map[string]bool{"/": true, "/a": false},
		},
		"ignored": {
			cfg: web.Config{IgnoreRobots: true}, robots: "User-agent: *\nDisallow: /", paths: map[string]bool{"/": true},
		},
		"longest wins, allow at a tie": {
			robots: "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /a/b/c\nDisallow: /tie\nAllow: /tie",
			paths:  map[string]bool{"/a": false, "/a/b": true, "/a/b/c/d": false, "/tie": true},
		},
		"wildcards": {
			robots: "User-agent: *\nDisallow: /*.php$\nDisallow: /x*y\nDisallow: *secret\nDisallow: /price$\nDisallow: /a$b",
			paths: map[string]bool{
				"/i.php": false, "/d/i.php": false, "/i.php?q=1": true, "/i.phpx": true,
				"/x1y": false, "/xy": false, "/d/x1y": true, "/d/secret/1": false, "/price": false, "/prices": true,
				"/a$b": false, "/a": true,
			},
		},
		"query": {
			robots: "User-agent: *\nDisallow: /s?q=\nDisallow: /*?*sort=", paths: map[string]bool{"/s": true, "/s?q=1": false, "/l?a=1&sort=up": false},
		},
		"escapes": {
			robots: "User-agent: *\nDisallow: /ä\nDisallow: /b%c3%b6\nDisallow: /%7Ejoe\nDisallow: /file-with-a-%2A.html\nDisallow: /s p",
			paths: map[string]bool{
				"/%C3%A4x": false, "/b%C3%B6": false, "/~joe/": false, "/file-with-a-*.html": false, "/file-with-a-b.html": true, "/s%20p": false,
			},
		},
		"lines that cannot be read": {
			robots: "\xef\xbb\xbfDisallow: /\nnonsense\nUser-agent : * # all\nCrawl-delay: soon\n<html>\nDisallow : /a # why\nSitemap: x\nDisallow: /b\r\nDisallow: /c\rDisallow: d",
			paths:  map[string]bool{"/": true, "/a": false, "/b": false, "/c": false, "/d": false},
		},
		"beyond the limit": {
			robots: "User-agent: *\nDisallow: /a\n#" + strings.Repeat("x", 512<<10) + "\nDisallow: /b",
			paths:  map[string]bool{"/a": false, "/b": true},
		},
		"rule longer than any URL": {
			robots: "User-agent: *\nDisallow: /" + strings.Repeat("*", 3000) + "\nDisallow: /" + strings.Repeat("*", 1000) + "b",
			paths:  map[string]bool{"/a": true, "/ab": false},
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
		"server error": {status: 500, want: &collector.Failed{Reason: collector.ReasonServerError, HTTPStatus: 500}},
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

// TestRobots_Cache holds that a host is asked once, however many tasks want to know, again after the TTL, and sooner
// when it had no answer.
func TestRobots_Cache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := map[string]int{}
		status := map[string]int{"good": 200, "bad": 500}
		h := newHandler(t, web.Config{
			Timeout: 10 * time.Second, RobotsTTL: 10 * time.Minute,
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path != "/robots.txt" {
					return answer(r, 200, ""), nil
				}
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				asked[r.URL.Host]++
				return answer(r, status[r.URL.Host], "User-agent: *\nDisallow: /no"), nil
			}),
		})
		fetch := func(host string, tasks int) {
			var all sync.WaitGroup
			for range tasks {
				all.Go(func() {
					if _, err := h.Handle(t.Context(), &collector.Task{URL: "http://" + host + "/"}); (err == nil) != (host == "good") {
						t.Errorf("%s: %v", host, err)
					}
				})
			}
			all.Wait()
		}
		expect := func(good, bad int) {
			t.Helper()
			if asked["good"] != good || asked["bad"] != bad {
				t.Errorf("asked %v, want %d and %d times", asked, good, bad)
			}
		}
		fetch("good", 50)
		fetch("bad", 50)
		expect(1, 1)
		time.Sleep(4 * time.Second)
		fetch("good", 1)
		fetch("bad", 1)
		expect(1, 1)
		time.Sleep(2 * time.Second)
		fetch("good", 1)
		fetch("bad", 1)
		expect(1, 2)
		time.Sleep(10 * time.Minute)
		fetch("good", 1)
		expect(2, 2)
	})
}

// TestRobots_AskerGone holds that the tasks that wait for an answer ask themselves when the one that asked has ended.
func TestRobots_AskerGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{}, 10)
		h := newHandler(t, web.Config{Transport: transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != "/robots.txt" {
				return answer(r, 200, ""), nil
			}
			asked <- struct{}{}
			if len(asked) > 1 {
				return answer(r, 404, ""), nil
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		ctx, cancel := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := h.Handle(ctx, &collector.Task{URL: "http://a/"}); !errors.Is(err, collector.ErrLeaseLost) {
				t.Errorf("the one that asked: %v", err)
			}
		})
		synctest.Wait()
		for range 3 {
			all.Go(func() {
				if _, err := h.Handle(t.Context(), &collector.Task{URL: "http://a/"}); err != nil {
					t.Errorf("one that waited: %v", err)
				}
			})
		}
		synctest.Wait()
		cancel(collector.ErrLeaseLost)
		all.Wait()
		if len(asked) != 2 {
			t.Errorf("asked %d times, want 2", len(asked))
		}
	})
}

// TestRobots_AskerPanics holds that the tasks that wait for an answer do not take a panic, as of a transport, for one that
// allows everything.
func TestRobots_AskerPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, goOn := make(chan struct{}, 10), make(chan struct{})
		h := newHandler(t, web.Config{Transport: transport(func(r *http.Request) (*http.Response, error) {
			if asked <- struct{}{}; len(asked) > 1 {
				return answer(r, 200, "User-agent: *\nDisallow: /"), nil
			}
			<-goOn
			panic("a transport of one's own")
		})})
		var all sync.WaitGroup
		all.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the one that asked did not panic")
				}
			}()
			_, _ = h.Handle(t.Context(), &collector.Task{URL: "http://a/"}) // it panics
		})
		synctest.Wait()
		all.Go(func() {
			_, err := h.Handle(t.Context(), &collector.Task{URL: "http://a/"})
			if failed := new(collector.Failed); !errors.As(err, &failed) || failed.Reason != collector.ReasonRobotsDenied {
				t.Errorf("the one that waited: %v, want what robots.txt says", err)
			}
		})
		synctest.Wait()
		close(goOn)
		all.Wait()
	})
}

// TestRobots_Hosts holds that the cache is bounded and goes on working beyond its bound.
func TestRobots_Hosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, web.Config{Transport: transport(func(r *http.Request) (*http.Response, error) {
			return answer(r, 404, ""), nil
		})})
		for i := range 10_500 {
			host := "h" + strings.Repeat("x", i%50) + "-" + time.Duration(i).String()
			status, err := h.Handle(t.Context(), &collector.Task{URL: "http://" + host + "/"})
			if err == nil {
				t.Fatalf("host %d: %+v, want a 404", i, status)
			}
		}
	})
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
	if got := failedOf(t, err); got.Reason != collector.ReasonConnectionLost || len(s.requests("/")) != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestRobots_Wildcards holds the rules that are easily taken for others.
func TestRobots_Wildcards(t *testing.T) {
	t.Parallel()
	for rule, paths := range map[string]map[string]bool{
		"/a*b":        {"/ab": false, "/axxb": false, "/axxbyy": false, "/ba": true, "/a": true},
		"/a*b$":       {"/ab": false, "/abxb": false, "/abx": true, "/a/b/": true},
		"*.php$":      {"/x.php": false, "/x.php?y": true, "/.phpx.php": false, "/php": true},
		"/*?":         {"/x": true, "/x?y": false},
		"/a*":         {"/a": false, "/b": true},
		"/a*$":        {"/a": false, "/abc": false, "/b": true},
		"/a*bc*bc$":   {"/abc": true, "/abcbc": false, "/abcxbc": false, "/abcbcx": true},
		"/$":          {"/": false, "/x": true},
		"/a$b":        {"/a$b": false, "/a": true},
		"/%2a*x":      {"/*yx": false, "/%2Ax": false, "/ayx": true},
		"/aa*aaa":     {"/aaaa": true, "/aaaaa": false},
		"/a*b*c*d*e$": {"/abcde": false, "/aXbXcXdXe": false, "/abcdeX": true, "/abced": true},
	} {
		allowed(t, web.Config{}, "User-agent: *\nDisallow: "+rule+"\n", paths)
	}
}

// TestRobots_CacheBytes holds that the cache is bounded in bytes: of many hosts with large files the later ones push
// earlier ones out, and those are asked again.
func TestRobots_CacheBytes(t *testing.T) {
	t.Parallel()
	const hosts = 200 // of half a MiB; 64 MiB are kept
	var large strings.Builder
	large.WriteString("User-agent: *\n")
	for i := range 256 {
		fmt.Fprintf(&large, "Disallow: /%d%s\n", i, strings.Repeat("x", 2000))
	}
	var asked atomic.Int32
	h := strictHandler(t, web.Config{Transport: roundTripper(func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		if r.URL.Path == "/robots.txt" {
			asked.Add(1)
			_, _ = io.WriteString(w, large.String())
		}
		return w.Result()
	})})
	for _, want := range []struct{ least, most int32 }{{hosts, hosts}, {hosts - 140, hosts}} {
		asked.Store(0)
		for i := range hosts {
			if _, err := handle(t, h, &collector.Task{URL: fmt.Sprintf("http://%d.example.com/", i)}); err != nil {
				t.Fatal(err)
			}
		}
		if got := asked.Load(); got < want.least || got > want.most {
			t.Errorf("robots.txt was asked for %d times, want %d to %d", got, want.least, want.most)
		}
	}
	asked.Store(0)
	if _, err := handle(t, h, &collector.Task{URL: fmt.Sprintf("http://%d.example.com/", hosts-1)}); err != nil || asked.Load() != 0 {
		t.Errorf("the last host was asked %d times again, %v", asked.Load(), err)
	}
}
