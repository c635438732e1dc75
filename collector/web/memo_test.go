package web_test

import (
	"context"
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
			if string(first.Memo) != string(second.Memo) {
				t.Errorf("memo %s, then %s", first.Memo, second.Memo)
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
	s.page("/old", map[string]string{"Location": "/new", "ETag": `"redirect"`}, 301, "")
	versioned(s, "/new", `"v"`, "text/plain", &body)
	h := newHandler(t, web.Config{})
	task := &collector.Task{URL: s.URL + "/old"}
	for i, want := range []int{200, 304} {
		done, err := handle(t, h, task)
		if err != nil || done.HTTPStatus != want {
			t.Errorf("crawl %d: %+v, %v; want status %d", i, done, err, want)
		}
		task.Memo = done.Memo
	}
	for _, r := range s.requests("/old") {
		if r.Header.Get("If-None-Match") != "" {
			t.Error("the redirect was asked with the page's validators")
		}
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
