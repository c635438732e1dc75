package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// site is a web server whose pages are set by the test; it has no robots.txt unless one is set.
type site struct {
	*httptest.Server
	mux *http.ServeMux

	mu   sync.Mutex
	seen []*http.Request
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{mux: http.NewServeMux()}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r)
		s.mu.Unlock()
		s.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// page sets what a path answers.
func (s *site) page(path string, header map[string]string, status int, body string) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// requests are the requests for a path so far.
func (s *site) requests(path string) []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*http.Request
	for _, r := range s.seen {
		if r.URL.Path == path {
			found = append(found, r)
		}
	}
	return found
}

// newHandler makes a handler that may fetch from the test's own servers.
func newHandler(t *testing.T, cfg web.Config) *web.Handler {
	t.Helper()
	cfg.AllowPrivate = true
	return strictHandler(t, cfg)
}

// strictHandler makes a handler of exactly this configuration.
func strictHandler(t *testing.T, cfg web.Config) *web.Handler {
	t.Helper()
	h, err := web.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func handle(t *testing.T, h *web.Handler, task *collector.Task) (collector.Succeeded, error) {
	t.Helper()
	return h.Handle(t.Context(), task)
}

func failedOf(t *testing.T, err error) *collector.Failed {
	t.Helper()
	var failed *collector.Failed
	if !errors.As(err, &failed) {
		t.Fatalf("error %v, want a *collector.Failed", err)
	}
	return failed
}

func discovered(done collector.Succeeded) []string {
	var urls []string
	for _, d := range done.Discovered {
		urls = append(urls, d.URL)
	}
	return urls
}

func TestHandler_Page(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const body = `<html><a href="a.html">a</a><a href="/b#x">b</a><img src="i.png"></html>`
	s.page("/dir/", map[string]string{"Content-Type": "text/html; charset=utf-8"}, 200, body)
	h := newHandler(t, web.Config{Contact: "mailto:crawl@example.com"})
	done, err := handle(t, h, &collector.Task{ID: "1-a", URL: s.URL + "/dir/#top"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{s.URL + "/dir/a.html", s.URL + "/b"}; !slices.Equal(discovered(done), want) {
		t.Errorf("discovered %q, want %q", discovered(done), want)
	}
	if done.HTTPStatus != 200 || done.Bytes != int64(len(body)) || done.Changed != collector.Changed || done.FetchDuration <= 0 {
		t.Errorf("got %+v", done)
	}
	got := s.requests("/dir/")
	if len(got) != 1 || got[0].UserAgent() != "waggle (+mailto:crawl@example.com)" || got[0].Header.Get("Accept-Encoding") != "gzip, br, zstd" {
		t.Errorf("requests %v", got)
	}
	if robots := s.requests("/robots.txt"); len(robots) != 1 {
		t.Errorf("%d requests of robots.txt, want 1", len(robots))
	}
}

func TestHandler_Resources(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/", map[string]string{"Content-Type": "text/html"}, 200, `<link rel=stylesheet href=s.css><img src="i.png">`)
	s.page("/s.css", map[string]string{"Content-Type": "text/css"}, 200, `a { background: url(bg.png) }`)
	s.page("/text", map[string]string{"Content-Type": "text/plain"}, 200, `<a href="x">`)
	h := newHandler(t, web.Config{Resources: true})
	for path, want := range map[string][]string{
		"/": {s.URL + "/s.css", s.URL + "/i.png"}, "/s.css": {s.URL + "/bg.png"}, "/text": nil,
	} {
		done, err := handle(t, h, &collector.Task{URL: s.URL + path})
		if err != nil || !slices.Equal(discovered(done), want) {
			t.Errorf("%s: discovered %q (%v), want %q", path, discovered(done), err, want)
		}
	}
}

func TestHandler_Status(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := newHandler(t, web.Config{})
	for i, test := range []struct {
		status int
		header map[string]string
		seed   bool
		want   collector.Failed
	}{
		{status: 404, want: collector.Failed{Reason: collector.ReasonNotFound}},
		{status: 404, seed: true, want: collector.Failed{Reason: collector.ReasonNotFound}},
		{status: 410, seed: true, want: collector.Failed{Reason: collector.ReasonGone, Permanent: true}},
		{status: 401, want: collector.Failed{Reason: collector.ReasonForbidden}},
		{status: 403, want: collector.Failed{Reason: collector.ReasonForbidden}},
		{status: 451, want: collector.Failed{Reason: collector.ReasonForbidden}},
		{status: 418, want: collector.Failed{Reason: collector.ReasonClientError}},
		{status: 429, want: collector.Failed{Reason: collector.ReasonThrottled}},
		{
			status: 429, header: map[string]string{"Retry-After": "120"},
			want: collector.Failed{Reason: collector.ReasonThrottled, RetryAfter: 2 * time.Minute},
		},
		{status: 503, want: collector.Failed{Reason: collector.ReasonServerError}},
		{
			status: 503, header: map[string]string{"Retry-After": "7"},
			want: collector.Failed{Reason: collector.ReasonThrottled, RetryAfter: 7 * time.Second},
		},
		{status: 503, header: map[string]string{"Retry-After": "soon"}, want: collector.Failed{Reason: collector.ReasonServerError}},
		{
			status: 503, header: map[string]string{"Retry-After": "99999999"},
			want: collector.Failed{Reason: collector.ReasonThrottled, RetryAfter: 24 * time.Hour},
		},
		{
			status: 500, header: map[string]string{"Retry-After": "7", "Content-Encoding": "gzip"},
			want: collector.Failed{Reason: collector.ReasonServerError, RetryAfter: 7 * time.Second},
		},
		{status: 502, want: collector.Failed{Reason: collector.ReasonServerError}},
		{status: 300, want: collector.Failed{Reason: collector.ReasonRedirect}},
		{status: 304, want: collector.Failed{Reason: collector.ReasonRedirect}},
		{status: 302, want: collector.Failed{Reason: collector.ReasonRedirect}},
	} {
		path := fmt.Sprintf("/%d", i)
		s.page(path, test.header, test.status, "")
		_, err := handle(t, h, &collector.Task{URL: s.URL + path, Recurring: test.seed})
		got := failedOf(t, err)
		if got.Reason != test.want.Reason || got.Permanent != test.want.Permanent || got.RetryAfter != test.want.RetryAfter {
			t.Errorf("status %d %v: %+v, want %+v", test.status, test.header, got, test.want)
		}
		if test.status != 302 && got.HTTPStatus != test.status {
			t.Errorf("status %d: reported %d", test.status, got.HTTPStatus)
		}
	}
}

func TestHandler_BadURL(t *testing.T) {
	t.Parallel()
	h := newHandler(t, web.Config{})
	for _, text := range []string{"", "not a url", "/path", "ftp://example.com/", "http://", "http://[::1", "mailto:a@b"} {
		_, err := handle(t, h, &collector.Task{URL: text})
		if got := failedOf(t, err); got.Reason != collector.ReasonBadRequest || !got.Permanent {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestHandler_Network(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	hang := make(chan struct{})
	s.mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	s.mux.HandleFunc("/slow-body", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	s.mux.HandleFunc("/reset", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { close(hang) })
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = zap.NewStdLog(zap.NewNop()) // it logs the handshake that this test wants to fail
	secure.StartTLS()
	t.Cleanup(secure.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}

	hasty := newHandler(t, web.Config{Timeout: 500 * time.Millisecond, IgnoreRobots: true})
	patient := newHandler(t, web.Config{IgnoreRobots: true})
	withRobots := newHandler(t, web.Config{})
	for target, want := range map[string]collector.Reason{
		s.URL + "/slow":      collector.ReasonTimeout,
		s.URL + "/slow-body": collector.ReasonTimeout,
		s.URL + "/reset":     collector.ReasonConnectionLost,
		secure.URL:           collector.ReasonTLS,
		strings.Replace(s.URL, "http:", "https:", 1): collector.ReasonTLS,
		refused:                          collector.ReasonConnect,
		"http://does-not-exist.invalid/": collector.ReasonDNS,
	} {
		h := patient
		if want == collector.ReasonTimeout {
			h = hasty
		}
		_, err := handle(t, h, &collector.Task{URL: target})
		if got := failedOf(t, err); got.Reason != want || got.Permanent {
			t.Errorf("%s: %+v, want %s", target, got, want)
		}
		if strings.HasPrefix(target, s.URL) {
			continue
		}
		_, err = handle(t, withRobots, &collector.Task{URL: target})
		if got := failedOf(t, err); got.Reason != want || !strings.Contains(got.Message, "/robots.txt") {
			t.Errorf("robots.txt of %s: %+v, want %s", target, got, want)
		}
	}
}

func TestHandler_Proxy(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := parse(t, "http://"+closed.Addr().String())
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
	t.Cleanup(transport.CloseIdleConnections)
	h := newHandler(t, web.Config{Transport: transport, IgnoreRobots: true})
	_, err = handle(t, h, &collector.Task{URL: "http://example.com/"})
	if got := failedOf(t, err); got.Reason != collector.ReasonProxy {
		t.Errorf("got %+v", got)
	}
}

// TestHandler_ContextEnded holds that a lease that ends is not taken for the site's fault, and stores nothing.
func TestHandler_ContextEnded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		cancel(collector.ErrLeaseLost)
		<-r.Context().Done()
	})
	sink := &memorySink{}
	h := newHandler(t, web.Config{Sink: sink})
	if _, err := h.Handle(ctx, &collector.Task{URL: s.URL}); !errors.Is(err, collector.ErrLeaseLost) {
		t.Errorf("error %v, want %v", err, collector.ErrLeaseLost)
	}
	if len(sink.pages) != 0 {
		t.Errorf("stored %+v", sink.pages)
	}
}

func TestHandler_SinkFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/", nil, 200, "x")
	h := newHandler(t, web.Config{Sink: &memorySink{err: errors.New("disk full")}})
	_, err := handle(t, h, &collector.Task{URL: s.URL + "/"})
	if got := failedOf(t, err); got.Reason != collector.ReasonDisk || !strings.Contains(got.Message, "disk full") {
		t.Errorf("got %+v", got)
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]web.Config{
		"UserAgent":     {UserAgent: "a\nb"},
		"Contact":       {Contact: "é"},
		"RobotsAgent":   {RobotsAgent: "a/b"},
		"RobotsTTL":     {RobotsTTL: 25 * time.Hour},
		"Timeout":       {Timeout: -1},
		"MaxBytes":      {MaxBytes: -1},
		"MaxRatio":      {MaxRatio: -1},
		"MaxLinks":      {MaxLinks: -1},
		"MaxListed":     {MaxListed: -1},
		"MaxDepth":      {MaxDepth: -1},
		"MaxURLBytes":   {MaxURLBytes: 2049},
		"MaxCrawlDelay": {MaxCrawlDelay: 2 * time.Hour},
		"Sitemaps":      {Sitemaps: true, IgnoreRobots: true},
		"Proxy":         {Proxy: &url.URL{Scheme: "ftp", Host: "proxy"}},
		"Proxy: \"":     {Proxy: &url.URL{Scheme: "http"}},
		"Proxy: want":   {Proxy: &url.URL{Scheme: "http", Host: "proxy"}, Transport: http.DefaultTransport},
	} {
		if _, err := web.New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := web.New(web.Config{UserAgent: "(nameless)"}); err == nil {
		t.Error("a user agent without a name was taken")
	}
}
