package warc_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/warc"
)

// TestSink_Handler crawls a small site twice, and finds in the archive what the server sent.
func TestSink_Handler(t *testing.T) {
	t.Parallel()
	page := "<a href='/next'>next</a>" + strings.Repeat(" and more", 9000) // long enough to come in chunks
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/old":
			http.Redirect(w, r, "/page", http.StatusMovedPermanently)
		case r.URL.Path != "/page":
			http.NotFound(w, r)
		case r.Header.Get("If-None-Match") == `"1"`:
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, page)
		}
	}))
	t.Cleanup(site.Close)
	dir := t.TempDir()
	sink := openSink(t, warc.Config{Dir: dir, CollectorID: "a"})
	h, err := web.New(web.Config{Sink: sink, Exchanges: true, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	task := &collector.Task{ID: "1-a", SourceID: "news.a", URL: site.URL + "/old", Fence: 7}
	for _, want := range []int{301, 200, 304, 304} {
		done, err := h.Handle(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		if done.HTTPStatus != want || len(done.Discovered) != 1 {
			t.Errorf("status %d with %d links, want %d with 1", done.HTTPStatus, len(done.Discovered), want)
		}
		task.URL, task.Memo, task.Cycle, task.Fence = site.URL+"/page", done.Memo, task.Cycle+1, task.Fence+1
	}
	shut(t, sink)

	records := readAll(t, dir)
	responses, requests, revisits := only(records, "response"), only(records, "request"), only(records, "revisit")
	if len(responses) != 2 || len(requests) != 4 || len(revisits) != 2 {
		t.Fatalf("%d responses, %d requests, %d revisits; want 2, 4, 2", len(responses), len(requests), len(revisits))
	}
	if got := responses[1]; !bytes.Equal(got.payload(), []byte(page)) || got.header.Get("WARC-Target-URI") != site.URL+"/page" {
		t.Errorf("payload of %d bytes from %s, want %d", len(got.payload()), got.header.Get("WARC-Target-URI"), len(page))
	}
	if got := string(responses[1].block); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\nContent-Length: ") ||
		!strings.Contains(got, "\r\nX-Crawl-Transfer-Encoding: chunked\r\n") || !strings.Contains(got, "\r\nEtag: \"1\"\r\n") {
		t.Errorf("head %q", got[:200])
	}
	if got := responses[0]; !strings.Contains(string(got.block), "\r\nLocation: /page\r\n") || got.header.Get("WARC-Truncated") != "" ||
		!strings.Contains(string(got.payload()), "Moved Permanently") {
		t.Errorf("redirect %q", got.block)
	}
	for _, r := range revisits {
		if r.header.Get("WARC-Refers-To") != responses[1].header.Get("WARC-Record-ID") || !bytes.HasPrefix(r.block, []byte("HTTP/1.1 304 ")) {
			t.Errorf("revisit %v, %q", r.header, r.block)
		}
	}
	if got := string(requests[0].block); !strings.HasPrefix(got, "GET /old HTTP/1.1\r\nHost: 127.0.0.1:") || !strings.HasSuffix(got, "\r\n\r\n") {
		t.Errorf("request %q", got)
	}
	for i, r := range only(records, "metadata") {
		fields := r.fields()
		if fields["waggle-task-id"] != "1-a" || fields["waggle-cycle"] != string(rune('0'+i)) ||
			fields["waggle-fence"] != []string{"7", "8", "9", "10"}[i] || fields["waggle-source-id"] != "news.a" {
			t.Errorf("metadata %q", r.block)
		}
	}
}
