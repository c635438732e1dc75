package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// The collector that ships: sixteen slots, pages kept under out/.
func Example() {
	sink, err := web.NewDirSink("out", "paris-1", web.Rotation{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { fmt.Println(sink.Close()) }()

	handler, err := web.New(web.Config{Contact: "https://example.com/crawler", Sink: sink})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()

	c, err := collector.New(collector.Config{Targets: []string{"127.0.0.1:7070"}, ID: "paris-1", Slots: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Run(context.Background(), handler))
}

// startSite serves a site on loopback, by path; the handlers of these examples may fetch from there, as AllowPrivate is set.
func startSite(pages map[string]string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, page) // Go sets the Content-Type by what it begins with
	}))
}

// A Task made by hand is enough to try a handler.
func ExampleHandler_Handle() {
	site := startSite(map[string]string{
		"/robots.txt": "User-agent: *\nDisallow: /private/\nCrawl-delay: 2",
		"/news":       `<a href="/news/1#top">one</a> <a href="mailto:me@example.com">write</a>`,
	})
	defer site.Close()
	handler, err := web.New(web.Config{AllowPrivate: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()

	done, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: site.URL + "/news"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(done.HTTPStatus, done.Bytes, "delay between requests:", *done.QueueDelay)
	for _, found := range done.Discovered {
		fmt.Println("link:", strings.TrimPrefix(found.URL, site.URL))
	}
	_, err = handler.Handle(context.Background(), &collector.Task{ID: "12-b", URL: site.URL + "/private/x"})
	var failed *collector.Failed
	if errors.As(err, &failed) {
		fmt.Println(failed.Reason, failed.Permanent)
	}
	// Output:
	// 200 71 delay between requests: 2s
	// link: /news/1
	// FAILURE_REASON_ROBOTS_DENIED true
}

// The memo of one crawl goes into the next one: an unchanged page is answered with 304 and has no body.
func ExampleHandler_Handle_memo() {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, "news")
	}))
	defer site.Close()
	handler, err := web.New(web.Config{AllowPrivate: true, IgnoreRobots: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()

	task := &collector.Task{ID: "12-a", URL: site.URL}
	for range 2 {
		done, err := handler.Handle(context.Background(), task)
		fmt.Println(done.HTTPStatus, "unchanged:", done.Changed == collector.Unchanged, err)
		task.Memo, task.Cycle = done.Memo, task.Cycle+1 // the dispatcher does this
	}
	// Output:
	// 200 unchanged: false <nil>
	// 304 unchanged: true <nil>
}

// A DirSink keeps bodies by digest and a line of JSON for each page.
func ExampleNewDirSink() {
	site := startSite(map[string]string{"/": "<p>news"})
	defer site.Close()
	dir, err := os.MkdirTemp("", "pages")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sink, err := web.NewDirSink(dir, "paris-1", web.Rotation{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sink.Close() }()
	handler, err := web.New(web.Config{AllowPrivate: true, Sink: sink})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()
	if _, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: site.URL, Fence: 7}); err != nil {
		fmt.Println(err)
		return
	}

	line, err := os.ReadFile(filepath.Join(dir, "pages-paris-1.jsonl"))
	var page web.Page
	err = errors.Join(err, json.Unmarshal(line, &page))
	fmt.Println(page.TaskID, page.Fence, page.Status, page.ContentType, err)
	body, err := os.ReadFile(filepath.Join(dir, page.File))
	fmt.Println(string(body), err)
	// Output:
	// 12-a 7 200 text/html; charset=utf-8 <nil>
	// <p>news <nil>
}

// tableSink keeps one page for each task and cycle, as a table with that key does: the highest fence wins.
type tableSink struct {
	mu     sync.Mutex // guards all below
	pages  map[string]web.Page
	bodies map[string][]byte
}

// Put stores a page. It may be called again with the same one.
func (s *tableSink) Put(_ context.Context, page web.Page, content web.Content) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if content.Body != nil { // nil: it is stored already
		s.bodies[page.Digest] = content.Body
	}
	key := fmt.Sprint(page.TaskID, "/", page.Cycle)
	if old, ok := s.pages[key]; !ok || page.Fence >= old.Fence {
		s.pages[key] = page
	}
	return nil
}

// Body reads a body, for its links, when a page has not changed.
func (s *tableSink) Body(_ context.Context, digest string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if body, ok := s.bodies[digest]; ok {
		return body, nil
	}
	return nil, fs.ErrNotExist
}

// A sink of your own, here in memory: a database or a message broker takes its place.
func ExampleSink() {
	site := startSite(map[string]string{"/": "<p>news"})
	defer site.Close()
	sink := &tableSink{pages: make(map[string]web.Page), bodies: make(map[string][]byte)}
	handler, err := web.New(web.Config{AllowPrivate: true, Sink: sink})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()
	for _, fence := range []int64{8, 7} { // 7 is late: its lease had expired
		if _, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: site.URL, Fence: fence}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for key, page := range sink.pages {
		fmt.Println(key, page.Fence, string(sink.bodies[page.Digest]))
	}
	// Output: 12-a/0 8 <p>news
}

// A handler of your own around the crawler, here one that follows the links below /news/ only.
func ExampleNew_middleware() {
	site := startSite(map[string]string{"/": `<a href="/news/1">one</a> <a href="/login">log in</a>`})
	defer site.Close()
	crawler, err := web.New(web.Config{AllowPrivate: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer crawler.Close()
	handler := collector.Wrap(crawler, func(next collector.Handler) collector.Handler {
		return collector.HandlerFunc(func(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
			done, err := next.Handle(ctx, t)
			done.Discovered = slices.DeleteFunc(done.Discovered, func(d collector.Discovered) bool {
				return !strings.Contains(d.URL, "/news/")
			})
			return done, err
		})
	})
	done, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: site.URL})
	for _, found := range done.Discovered {
		fmt.Println(strings.TrimPrefix(found.URL, site.URL))
	}
	fmt.Println(err)
	// Output:
	// /news/1
	// <nil>
}

// A crawler names itself and how to reach its operator.
func ExampleConfig_userAgent() {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			_, _ = io.WriteString(w, "User-agent: newsbot\nDisallow: /drafts/")
			return
		}
		fmt.Println(r.UserAgent())
	}))
	defer site.Close()
	handler, err := web.New(web.Config{
		AllowPrivate: true,
		UserAgent:    "NewsBot/1.2 (+https://news.example/bot)",
		RobotsAgent:  "NewsBot", // the default: the begin of UserAgent
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()
	for _, path := range []string{"/", "/drafts/1"} {
		_, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: site.URL + path})
		fmt.Println("failed:", err != nil)
	}
	// Output:
	// NewsBot/1.2 (+https://news.example/bot)
	// failed: false
	// failed: true
}

// Requests go through a proxy. It resolves names, so that this one can stand for a site that does not exist.
func ExampleConfig_proxy() {
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL, "with password:", r.Header.Get("Proxy-Authorization") != "")
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	address.User = url.UserPassword("ada", "secret")
	handler, err := web.New(web.Config{Proxy: address, IgnoreRobots: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()
	done, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: "http://shop.example/shoes"})
	fmt.Println(done.HTTPStatus, err)
	// Output:
	// GET http://shop.example/shoes with password: true
	// 200 <nil>
}

// Limits keep a server from filling a collector's memory or holding its slots.
func ExampleConfig_limits() {
	site := startSite(map[string]string{"/": strings.Repeat("x", 5000)})
	defer site.Close()
	handler, err := web.New(web.Config{
		AllowPrivate: true,
		Timeout:      10 * time.Second, // of a fetch, redirects and body included
		MaxBytes:     4 << 10,          // of a body
		MaxRedirects: 5,
		MaxLinks:     1000, // of a page
		MaxDepth:     3,    // deeper pages report no links
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()
	_, err = handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: site.URL})
	var failed *collector.Failed
	if errors.As(err, &failed) {
		fmt.Println(failed.Reason, failed.Permanent)
	}
	// Output: FAILURE_REASON_TOO_LARGE true
}

// With Sitemaps a seed also discovers the sitemaps that robots.txt names.
func ExampleConfig_sitemaps() {
	site := startSite(map[string]string{
		"/robots.txt": "Sitemap: https://shop.example/sitemap.xml",
		"/":           "<p>welcome",
	})
	defer site.Close()
	handler, err := web.New(web.Config{AllowPrivate: true, Sitemaps: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()
	done, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: site.URL})
	for _, found := range done.Discovered {
		fmt.Println(found.Kind, found.URL)
	}
	fmt.Println(err)
	// Output:
	// sitemap https://shop.example/sitemap.xml
	// <nil>
}

// A transport of your own, for client certificates or a resolver, does not connect to private networks either.
func ExampleRefusePrivate() {
	site := startSite(map[string]string{"/": "secret"})
	defer site.Close()
	dialer := &net.Dialer{Control: web.RefusePrivate}
	transport := &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	handler, err := web.New(web.Config{Transport: transport})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()
	address := strings.Replace(site.URL, "127.0.0.1", "localhost", 1) // a name that leads to a private address
	_, err = handler.Handle(context.Background(), &collector.Task{ID: "12-a", URL: address})
	var failed *collector.Failed
	if errors.As(err, &failed) {
		fmt.Println(failed.Reason, strings.Contains(failed.Message, "private network"))
	}
	// Output: FAILURE_REASON_BAD_REQUEST true
}
