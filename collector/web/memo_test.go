package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// versioned answers conditional requests as a server with validators does.
func versioned(s *site, path, etag string, contentType string, body *string) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		tag := etag + digest(*body)[:8]
		w.Header().Set("ETag", tag)
		w.Header().Set("Content-Type", contentType)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, *body)
	})
}

func TestHandler_Memo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	feed := "first"
	versioned(s, "/feed", `W/"v1"`, "application/xml", &feed)
	sink := &memorySink{}
	h := newHandler(t, web.Config{Sink: sink})
	task := &collector.Task{ID: "1-a", URL: s.URL + "/feed"}
	for i, step := range []struct {
		body    string
		status  int
		changed collector.Change
	}{
		{"first", 200, collector.Changed},
		{"first", 304, collector.Unchanged},
		{"first", 304, collector.Unchanged},
		{"second", 200, collector.Changed},
		{"second", 304, collector.Unchanged},
	} {
		feed = step.body
		done, err := handle(t, h, task)
		if err != nil {
			t.Fatal(err)
		}
		if done.HTTPStatus != step.status || done.Changed != step.changed {
			t.Errorf("step %d: status %d, changed %d; want %d, %d", i, done.HTTPStatus, done.Changed, step.status, step.changed)
		}
		if page := sink.pages[i]; page.Digest != digest(step.body) || page.Bytes != int64(len(step.body)) || page.Status != step.status {
			t.Errorf("step %d: page %+v", i, page)
		}
		if len(done.Memo) == 0 || len(done.Memo) > 4096 {
			t.Errorf("step %d: memo of %d bytes", i, len(done.Memo))
		}
		task.Memo = done.Memo
	}
}

// TestHandler_MemoDigest holds that a server without validators is no reason to call a page changed.
func TestHandler_MemoDigest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/", nil, 200, "same")
	h := newHandler(t, web.Config{})
	first, err := handle(t, h, &collector.Task{URL: s.URL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := handle(t, h, &collector.Task{URL: s.URL + "/", Memo: first.Memo})
	if err != nil || second.HTTPStatus != 200 || second.Changed != collector.Unchanged {
		t.Errorf("second crawl %+v, %v", second, err)
	}
	for _, memo := range []string{"{", "null", "[]", `"x"`, `{"digest":"zz"}`} {
		got, err := handle(t, h, &collector.Task{URL: s.URL + "/", Memo: []byte(memo)})
		if err != nil || got.Changed != collector.Changed {
			t.Errorf("memo %q: %+v, %v", memo, got, err)
		}
	}
}

// TestHandler_MemoLinks holds that a page's links are reported on each crawl, also when the server says that nothing has
// changed: from the sink's copy, or by asking for the page whole.
func TestHandler_MemoLinks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sink   web.Sink
		status int
	}{
		"sink has the body":  {&memorySink{}, 304},
		"sink keeps nothing": {nil, 200},
		"sink has lost it":   {&forgetful{}, 200},
		"sink reads it once": {&forgetful{reads: 1}, 304},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			body := `<a href="x">x</a>`
			versioned(s, "/", `"v"`, "text/html", &body)
			h := newHandler(t, web.Config{Sink: test.sink, IgnoreRobots: true})
			first, err := handle(t, h, &collector.Task{URL: s.URL + "/"})
			if err != nil {
				t.Fatal(err)
			}
			second, err := handle(t, h, &collector.Task{URL: s.URL + "/", Memo: first.Memo})
			if err != nil {
				t.Fatal(err)
			}
			if second.HTTPStatus != test.status || second.Changed != collector.Unchanged {
				t.Errorf("second crawl: status %d, changed %d", second.HTTPStatus, second.Changed)
			}
			if got := len(s.requests("/")); got != 2 {
				t.Errorf("%d requests in two crawls", got)
			}
			if !slices.Equal(discovered(first), discovered(second)) || len(first.Discovered) != 1 {
				t.Errorf("discovered %q, then %q", discovered(first), discovered(second))
			}
			if third, err := handle(t, h, &collector.Task{URL: s.URL + "/", Memo: second.Memo}); err != nil || !slices.Equal(discovered(first), discovered(third)) {
				t.Errorf("discovered %q, then %q, %v", discovered(first), discovered(third), err)
			}
		})
	}
}

// forgetful is a sink that can read back only a few times.
type forgetful struct {
	memorySink
	reads int
}

// Body reads back, while it can.
func (f *forgetful) Body(ctx context.Context, digest string) ([]byte, error) {
	if f.reads--; f.reads < 0 {
		return f.memorySink.Body(ctx, "")
	}
	return f.memorySink.Body(ctx, digest)
}

// TestHandler_MemoRedirect holds that validators go to the URL they came from and to no other.
func TestHandler_MemoRedirect(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	body := "x"
	s.page("/old", map[string]string{"Location": "/old;jsessionid=01234567", "ETag": `"redirect"`}, 301, "")
	versioned(s, "/old;jsessionid=01234567", `"v"`, "text/plain", &body)
	h := newHandler(t, web.Config{})
	var memo []byte // of the page: the dispatcher keeps it over a redirect to another spelling of the URL
	for i, want := range []int{301, 200, 301, 304} {
		task := &collector.Task{URL: s.URL + "/old", Memo: memo}
		if i%2 == 1 {
			task.URL += ";jsessionid=01234567"
		}
		done, err := handle(t, h, task)
		if err != nil || done.HTTPStatus != want {
			t.Errorf("crawl %d: %+v, %v; want status %d", i, done, err, want)
		}
		if want != 301 {
			memo = done.Memo
		}
	}
	for _, r := range s.requests("/old") {
		if r.Header.Get("If-None-Match") != "" {
			t.Error("the redirect was asked with the page's validators")
		}
	}
}

// TestHandler_MemoOctets holds that validators go back as they came, in whatever encoding.
func TestHandler_MemoOctets(t *testing.T) {
	t.Parallel()
	for _, etag := range []string{"\"caf\xe9-\x80\xff\"", "W/\"n\u00fcr\"", "\"<&>\"", "bare\xa0", `"a","b"`} {
		s := newSite(t)
		s.page("/", map[string]string{"ETag": etag, "Last-Modified": "today\xe9"}, 200, "x")
		h := newHandler(t, web.Config{})
		task := &collector.Task{URL: s.URL + "/"}
		for range 2 {
			done, err := handle(t, h, task)
			if err != nil {
				t.Fatal(err)
			}
			task.Memo = done.Memo
		}
		asked := s.requests("/")[1].Header
		if got := asked.Get("If-None-Match"); got != etag || asked.Get("If-Modified-Since") != "today\xe9" {
			t.Errorf("sent %q back as %q, beside %q", etag, got, asked.Get("If-Modified-Since"))
		}
	}
}

// TestHandler_MemoNotModified holds that a server that says for ever that nothing has changed is asked for the page now and then.
func TestHandler_MemoNotModified(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	body := "first"
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"always"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, body)
	})
	h := newHandler(t, web.Config{IgnoreRobots: true})
	task := &collector.Task{URL: s.URL + "/"}
	var changed []int
	for i := range 50 {
		done, err := handle(t, h, task)
		if err != nil {
			t.Fatal(err)
		}
		if done.Changed == collector.Changed {
			changed = append(changed, i)
		}
		task.Memo, body = done.Memo, fmt.Sprint("page ", i)
	}
	if !slices.Equal(changed, []int{0, 21, 42}) {
		t.Errorf("crawls that saw a change: %d", changed)
	}
}

// TestHandler_NotModifiedUnasked holds that nobody is told that a page is as it was when it was not asked for so.
func TestHandler_NotModifiedUnasked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	status := 200
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	h := newHandler(t, web.Config{IgnoreRobots: true})
	first, err := handle(t, h, &collector.Task{URL: s.URL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	status = 304
	_, err = handle(t, h, &collector.Task{URL: s.URL + "/", Memo: first.Memo})
	if got := failedOf(t, err); got.HTTPStatus != 304 {
		t.Errorf("%+v", got)
	}
}

// TestHandler_MemoLimit holds that a memo fits whatever the server sends.
func TestHandler_MemoLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/", map[string]string{"ETag": `"` + strings.Repeat("<", 3000) + `"`}, 200, "x")
	h := newHandler(t, web.Config{})
	done, err := handle(t, h, &collector.Task{URL: s.URL + "/"})
	if err != nil || len(done.Memo) > 4096 || !strings.Contains(string(done.Memo), digest("x")) {
		t.Errorf("memo of %d bytes, %v", len(done.Memo), err)
	}
}
