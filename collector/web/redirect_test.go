package web_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/extract"
)

func TestHandler_Redirects(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/a", map[string]string{"Location": "b"}, 301, "moved")
	s.page("/b", map[string]string{"Location": s.URL + "/dir/c#frag"}, 308, "")
	s.page("/dir/c", map[string]string{"Content-Type": "text/html"}, 200, `<a href="d">d</a>`)
	sink := &memorySink{}
	h := newHandler(t, web.Config{Sink: sink})
	done, err := handle(t, h, &collector.Task{URL: s.URL + "/a"})
	if err != nil {
		t.Fatal(err)
	}
	if got := sink.pages[0]; got.URL != s.URL+"/a" || got.FinalURL != s.URL+"/dir/c" || got.Status != 200 {
		t.Errorf("page %+v", got)
	}
	if want := []string{s.URL + "/dir/d"}; !slices.Equal(discovered(done), want) {
		t.Errorf("discovered %q, want %q", discovered(done), want)
	}
}

// TestHandler_RedirectRefused holds that each hop is checked before it is taken.
func TestHandler_RedirectRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for path, location := range map[string]string{
		"/loop": "/loop#again", "/ping": "/pong", "/pong": "/ping", "/1": "/2", "/2": "/3", "/3": "/4", "/4": "/5",
		"/ftp": "ftp://example.com/", "/file": "file:///etc/passwd", "/no-host": "http:///", "/not": "http://[::1",
		"/long": "/" + strings.Repeat("x", 3000), "/denied": "/private/x",
	} {
		s.page(path, map[string]string{"Location": location}, 302, "")
	}
	s.page("/nowhere", nil, 302, "")
	s.page("/robots.txt", nil, 200, "User-agent: *\nDisallow: /private/")
	h, none := newHandler(t, web.Config{MaxRedirects: 3}), newHandler(t, web.Config{MaxRedirects: -1})
	for _, test := range []struct {
		handler  *web.Handler
		path     string
		want     collector.Reason
		requests int // of the path
	}{
		{h, "/loop", collector.ReasonRedirect, 1},
		{h, "/ping", collector.ReasonRedirect, 1},
		{h, "/1", collector.ReasonRedirect, 1},
		{h, "/ftp", collector.ReasonRedirect, 1},
		{h, "/file", collector.ReasonRedirect, 1},
		{h, "/no-host", collector.ReasonRedirect, 1},
		{h, "/not", collector.ReasonRedirect, 1},
		{h, "/long", collector.ReasonRedirect, 1},
		{h, "/nowhere", collector.ReasonRedirect, 1},
		{h, "/denied", collector.ReasonRobotsDenied, 1},
		{none, "/3", collector.ReasonRedirect, 2}, // once by the chain from /1
	} {
		_, err := handle(t, test.handler, &collector.Task{URL: s.URL + test.path})
		if got := failedOf(t, err); got.Reason != test.want {
			t.Errorf("%s: %+v, want %s", test.path, got, test.want)
		}
		if got := len(s.requests(test.path)); got != test.requests {
			t.Errorf("%s: %d requests, want %d", test.path, got, test.requests)
		}
	}
	if len(s.requests("/private/x")) != 0 {
		t.Error("what robots.txt denies was fetched by a redirect")
	}
	if got := len(s.requests("/5")); got != 0 {
		t.Errorf("the redirect beyond the limit was followed %d times", got)
	}
}

// TestHandler_RedirectElsewhere holds that a redirect into another queue is reported and not followed.
func TestHandler_RedirectElsewhere(t *testing.T) {
	t.Parallel()
	s, other := newSite(t), newSite(t)
	target := other.URL + "/c"
	s.page("/a", map[string]string{"Location": "b"}, 301, "")
	s.mux.HandleFunc("/b", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", strings.Replace(target, "http://", "HTTP://user:secret@", 1)+"#frag")
		w.WriteHeader(http.StatusFound)
	})
	sink := &memorySink{}
	h := newHandler(t, web.Config{Sink: sink})
	task := &collector.Task{URL: s.URL + "/a", Kind: extract.KindFeed}
	for i, want := range []struct {
		target  string
		changed collector.Change
	}{
		{other.URL + "/c", collector.Changed}, {other.URL + "/c", collector.Unchanged}, {other.URL + "/d", collector.Changed},
	} {
		target = want.target
		done, err := handle(t, h, task)
		if err != nil {
			t.Fatal(err)
		}
		if item := done.Discovered[0]; item.Relation != collector.RelationRedirect || item.Kind != task.Kind {
			t.Errorf("crawl %d: %+v is not where the page went", i, item)
		}
		if got := discovered(done); done.HTTPStatus != 302 || done.Changed != want.changed || !slices.Equal(got, []string{target}) {
			t.Errorf("crawl %d: %+v", i, done)
		}
		page := sink.pages[i]
		if page.Status != 302 || page.URL != task.URL || page.FinalURL != target || page.Bytes != 0 || page.Digest != digest("") || page.Links != 1 {
			t.Errorf("crawl %d: page %+v", i, page)
		}
		task.Memo = done.Memo
	}
	if len(other.seen) != 0 {
		t.Errorf("%d requests in the other queue", len(other.seen))
	}
}

// TestHandler_RedirectSameQueue holds that http and https of a host share its queue, in any spelling of its name.
func TestHandler_RedirectSameQueue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to string
		followed bool
	}{
		{"http://example.com/", "https://example.com/x", true},
		{"http://example.com/", "http://EXAMPLE.com.:80/x", true},
		{"https://example.com/", "https://example.com:443/x", true},
		{"http://bücher.example/", "http://xn--bcher-kva.example/x", true},
		{"http://example.com:8080/", "https://example.com:8080/x", true},
		{"http://example.com/", "http://www.example.com/x", false},
		{"http://example.com/", "http://example.com:443/x", false},
		{"http://example.com/", "http://example.com:8080/x", false},
		{"http://[2606:4700::1]/", "https://[2606:4700::1]/x", true},
	} {
		h := strictHandler(t, web.Config{IgnoreRobots: true, Transport: roundTripper(func(r *http.Request) *http.Response {
			w := httptest.NewRecorder()
			if r.URL.Path != "/x" {
				w.Header().Set("Location", test.to)
				w.WriteHeader(http.StatusMovedPermanently)
			}
			return w.Result()
		})})
		done, err := handle(t, h, &collector.Task{URL: test.from})
		if err != nil || (done.HTTPStatus == 200) != test.followed {
			t.Errorf("%s to %s: %+v, %v; want it followed: %t", test.from, test.to, done, err, test.followed)
		}
	}
}

// roundTripper answers requests without a network.
type roundTripper func(*http.Request) *http.Response

// RoundTrip calls f.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := f(r)
	answer.Request = r
	return answer, nil
}
