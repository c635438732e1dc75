package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// TestHandler_RedirectRefused holds that each redirect is checked before it is passed on.
func TestHandler_RedirectRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for path, location := range map[string]string{
		"/loop": "/loop#again", "/back": "/head", "/1": "/2",
		"/ftp": "ftp://example.com/", "/file": "file:///etc/passwd", "/no-host": "http:///", "/not": "http://[::1",
		"/long": "/" + strings.Repeat("x", 3000), "/denied": "/private/x",
	} {
		s.page(path, map[string]string{"Location": location}, 302, "")
	}
	s.page("/nowhere", nil, 302, "")
	s.page("/robots.txt", nil, 200, "User-agent: *\nDisallow: /private/")
	h, none := newHandler(t, web.Config{MaxRedirects: 3}), newHandler(t, web.Config{MaxRedirects: -1})
	for _, test := range []struct {
		handler *web.Handler
		path    string
		before  int // redirects
		refused bool
	}{
		{h, "/loop", 0, true},
		{h, "/back", 1, true},
		{h, "/ftp", 0, true},
		{h, "/file", 0, true},
		{h, "/no-host", 0, true},
		{h, "/not", 0, true},
		{h, "/long", 0, true},
		{h, "/nowhere", 0, true},
		{h, "/1", 3, true},
		{none, "/1", 0, true},
		{h, "/1", 2, false},
		{h, "/denied", 0, false},
		{h, "/back", 0, false},
	} {
		task := &collector.Task{URL: s.URL + test.path, Redirects: test.before}
		if test.before > 0 {
			task.RedirectedFrom = s.URL + "/head"
		}
		done, err := handle(t, test.handler, task)
		if !test.refused {
			if err != nil || len(done.Discovered) != 1 {
				t.Errorf("%s after %d: %+v, %v; want it passed on", test.path, test.before, done, err)
			}
			continue
		}
		if got := failedOf(t, err); got.Reason != collector.ReasonRedirect {
			t.Errorf("%s after %d: %+v, want REDIRECT", test.path, test.before, got)
		}
	}
	for _, path := range []string{"/private/x", "/2", "/head"} {
		if len(s.requests(path)) != 0 {
			t.Errorf("%s was requested with the page that redirects there", path)
		}
	}
}

// TestHandler_RedirectPassedOn holds that a redirect is reported and not followed, on the same host too.
func TestHandler_RedirectPassedOn(t *testing.T) {
	t.Parallel()
	s, other := newSite(t), newSite(t)
	target := other.URL + "/c"
	s.mux.HandleFunc("/a", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", strings.Replace(target, "http://", "HTTP://user:secret@", 1)+"#frag")
		w.Header().Set("Cache-Control", "max-age=3600")
		w.WriteHeader(http.StatusFound)
	})
	sink := &memorySink{}
	h := newHandler(t, web.Config{Sink: sink})
	task := &collector.Task{URL: s.URL + "/a", Kind: extract.KindFeed, Recurring: true, Redirects: 1, RedirectedFrom: "http://head.example/"}
	for i, want := range []struct {
		target  string
		changed collector.Change
	}{
		{other.URL + "/c", collector.Changed},
		{other.URL + "/c", collector.ChangeUnknown},
		{other.URL + "/d", collector.Changed},
		{s.URL + "/a/", collector.Changed},
		{s.URL + "/a?PHPSESSID=0123456789abcdef", collector.Changed},
		{strings.Replace(s.URL, "http:", "https:", 1) + "/a", collector.Changed},
	} {
		target = want.target
		done, err := handle(t, h, task)
		if err != nil {
			t.Fatal(err)
		}
		if item := done.Discovered[0]; item.Relation != collector.RelationRedirect || item.Kind != task.Kind {
			t.Errorf("crawl %d: %+v is not where the page went", i, item)
		}
		if got := discovered(done); done.HTTPStatus != 302 || done.Changed != want.changed || done.NextCrawlDelay != 0 || !slices.Equal(got, []string{target}) {
			t.Errorf("crawl %d: %+v", i, done)
		}
		page := sink.pages[i]
		if page.Status != 302 || page.URL != task.URL || page.FinalURL != target || page.RedirectedFrom != task.RedirectedFrom ||
			page.Bytes != 0 || page.Digest != digest("") || page.Links != 1 {
			t.Errorf("crawl %d: page %+v", i, page)
		}
		task.Memo = done.Memo
	}
	if len(other.seen) != 0 || len(s.requests("/a/")) != 0 {
		t.Errorf("%d requests in the other queue", len(other.seen))
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
