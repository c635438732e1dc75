package warc_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/warc"
)

func openSink(t *testing.T, cfg warc.Config) *warc.Sink {
	t.Helper()
	sink, err := warc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, sink) })
	return sink
}

func shut(t *testing.T, sink *warc.Sink) {
	t.Helper()
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, sink *warc.Sink, page web.Page, content web.Content) {
	t.Helper()
	if err := sink.Put(t.Context(), page, content); err != nil {
		t.Fatal(err)
	}
}

func sha(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC)

// pageOf is a page that was fetched whole in one exchange.
func pageOf(url, body string) (web.Page, web.Content) {
	page := web.Page{
		URL: url, FinalURL: url, RedirectedFrom: "http://a.example/head", Status: 200, ContentType: "text/plain", FetchTime: noon, FetchMillis: 12,
		Digest: sha([]byte(body)), Bytes: int64(len(body)), Changed: true, Links: 1, Canonical: "http://a.example/canonical", NoIndex: true,
		SourceID: "news.a", TaskID: "17-abc", Cycle: 3, Run: 9, Attempt: 2, Fence: 1234567,
		Title: "A title", Author: "Ada", Published: noon, Depth: 2, Kind: "page",
	}
	return page, web.Content{Body: []byte(body), Exchanges: []web.Exchange{{
		URL: url, Time: noon, RemoteAddress: "192.0.2.7:80", Protocol: "HTTP/1.1",
		Request:  []byte("GET /p HTTP/1.1\r\nHost: a.example\r\n\r\n"),
		Response: fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", len(body)),
		Body:     []byte(body),
	}}}
}

// noisePage is a page whose body does not compress, by its fence; each is a task of its own.
func noisePage(fence int64) (web.Page, web.Content) {
	noise := rand.NewChaCha8([32]byte{byte(fence), byte(fence >> 8), byte(fence >> 16)})
	body := make([]byte, 100+fence*997%20_000)
	_, _ = noise.Read(body) // never fails
	page, content := pageOf(fmt.Sprintf("http://a.example/%d", fence), string(body))
	page.Fence, page.TaskID = fence, fmt.Sprintf("1-%d", fence)
	return page, content
}

func gunzip(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// TestSink_Revisit holds that a payload is stored once, and that revisits refer to it.
func TestSink_Revisit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sink := openSink(t, warc.Config{Dir: dir, CollectorID: "a"})
	page, content := pageOf("http://a.example/p", "the same")
	put(t, sink, page, content)
	other, again := pageOf("http://b.example/q", "the same")
	put(t, sink, other, again)

	unchanged, answer := pageOf("http://a.example/p", "the same")
	unchanged.Status, unchanged.Changed, answer.Body = 304, false, nil
	answer.Exchanges[0].Response, answer.Exchanges[0].Body = []byte("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n"), nil
	colleague := openSink(t, warc.Config{Dir: dir, CollectorID: "b"}) // shares what is known
	put(t, colleague, unchanged, answer)
	unknown := unchanged
	unknown.Digest = sha([]byte("kept elsewhere"))
	put(t, colleague, unknown, answer)
	shut(t, sink)
	shut(t, colleague)

	records := readAll(t, dir)
	responses, revisits := only(records, "response"), only(records, "revisit")
	if len(responses) != 1 || len(revisits) != 3 {
		t.Fatalf("%d responses and %d revisits, want 1 and 3", len(responses), len(revisits))
	}
	original := responses[0].header
	for i, want := range []struct{ profile, head, refers string }{
		{"identical-payload-digest", "HTTP/1.1 200 OK\r\n", original.Get("WARC-Record-ID")},
		{"server-not-modified", "HTTP/1.1 304 Not Modified\r\n", original.Get("WARC-Record-ID")},
		{"server-not-modified", "HTTP/1.1 304 Not Modified\r\n", ""},
	} {
		h := revisits[i].header
		if h.Get("WARC-Profile") != "http://netpreserve.org/warc/1.1/revisit/"+want.profile || h.Get("WARC-Refers-To") != want.refers {
			t.Errorf("revisit %d: %v", i, h)
		}
		if want.refers != "" && (h.Get("WARC-Refers-To-Target-URI") != original.Get("WARC-Target-URI") ||
			h.Get("WARC-Refers-To-Date") != original.Get("WARC-Date") || h.Get("WARC-Payload-Digest") != original.Get("WARC-Payload-Digest")) {
			t.Errorf("revisit %d refers to another record than %v: %v", i, original, h)
		}
		if want.refers == "" && h.Get("WARC-Payload-Digest") != "" {
			t.Errorf("revisit %d: the digest of a payload that nobody has: %v", i, h)
		}
		if block := revisits[i].block; !bytes.HasPrefix(block, []byte(want.head)) || len(revisits[i].payload()) != 0 {
			t.Errorf("revisit %d: block %q", i, block)
		}
	}
	body, err := colleague.Body(t.Context(), page.Digest)
	if err != nil || string(body) != "the same" {
		t.Errorf("Body: %q, %v", body, err)
	}
}

// TestSink_Exchanges holds that redirects are kept, that content codings stay, and that chunks are undone.
func TestSink_Exchanges(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	if _, err := zip.Write([]byte("page")); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sink := openSink(t, warc.Config{Dir: dir, CollectorID: "a"})
	page, content := pageOf("http://a.example/q", "page")
	page.URL = "http://a.example/p"
	hop := content.Exchanges[0]
	hop.URL, hop.Response, hop.Body = page.URL, []byte("HTTP/1.1 302 Found\r\nLocation: /q\r\nContent-Length: 99\r\n\r\n"), []byte("go ")
	hop.Truncated = "length"
	last := &content.Exchanges[0]
	last.Response = []byte("HTTP/1.1 200 OK\r\nTRANSFER-encoding:\r\n chunked\r\nContent-Length: 1\r\nContent-Encoding: gzip\r\n\r\n")
	last.Body, last.Protocol = zipped.Bytes(), "HTTP/2.0"
	content.Exchanges = []web.Exchange{hop, *last}
	put(t, sink, page, content)
	shut(t, sink)

	records := readAll(t, dir)
	var kinds []string
	for _, r := range records {
		kinds = append(kinds, r.kind())
	}
	if got := strings.Join(kinds, " "); got != "warcinfo response request response request metadata" {
		t.Fatalf("records %s", got)
	}
	first, second := records[1], records[3]
	if first.header.Get("WARC-Truncated") != "length" || second.header.Get("WARC-Truncated") != "" || string(first.payload()) != "go " {
		t.Errorf("redirect %v, %q", first.header, first.block)
	}
	if second.header.Get("WARC-Protocol") != "h2" || records[5].header.Get("WARC-Concurrent-To") != second.header.Get("WARC-Record-ID") {
		t.Errorf("answer %v", second.header)
	}
	want := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Crawl-TRANSFER-encoding:\r\n chunked\r\n"+
		"X-Crawl-Content-Length: 1\r\nContent-Encoding: gzip\r\n\r\n%s", zipped.Len(), zipped.String())
	if string(second.block) != want {
		t.Errorf("block %q, want %q", second.block, want)
	}
	if body, err := sink.Body(t.Context(), page.Digest); err != nil || string(body) != "page" {
		t.Errorf("Body: %q, %v", body, err)
	}
	// The same body under another coding is another payload.
	plain, whole := pageOf("http://a.example/q", "page")
	colleague := openSink(t, warc.Config{Dir: dir, CollectorID: "b"})
	put(t, colleague, plain, whole)
	shut(t, colleague)
	if responses := only(readAll(t, dir), "response"); len(responses) != 3 {
		t.Errorf("%d responses, want 3", len(responses))
	}
}

// TestSink_Concurrent fills one sink from many goroutines, while others read what is there.
func TestSink_Concurrent(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 25
	dir := t.TempDir()
	sinks := []*warc.Sink{
		openSink(t, warc.Config{Dir: dir, CollectorID: "a", MaxFileBytes: 128 << 10}),
		openSink(t, warc.Config{Dir: dir, CollectorID: "b"}),
	}
	var all sync.WaitGroup
	for w := range int64(writers) {
		all.Go(func() {
			sink := sinks[w%2]
			for i := range int64(each) {
				page, content := noisePage(w*each + i)
				if err := sink.Put(t.Context(), page, content); err != nil {
					t.Error(err)
					return
				}
				body, err := sinks[(w+1)%2].Body(t.Context(), page.Digest)
				if err != nil || !bytes.Equal(body, content.Body) {
					t.Errorf("Body of page %d: %d bytes, %v", w*each+i, len(body), err)
				}
			}
		})
	}
	all.Wait()
	for _, sink := range sinks {
		shut(t, sink)
	}
	checkIndex(t, dir, writers*each)
	if winners, err := warc.Winners(dir); err != nil || len(winners) != writers*each {
		t.Errorf("%d winners, %v", len(winners), err)
	}
}

func TestSink_Bad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for field, cfg := range map[string]warc.Config{
		"Dir":          {CollectorID: "a"},
		"CollectorID":  {Dir: dir, CollectorID: "../a"},
		"MaxFileBytes": {Dir: dir, CollectorID: "a", MaxFileBytes: 1},
		"Software":     {Dir: dir, CollectorID: "a", Software: "a\nb"},
		"Operator":     {Dir: dir, CollectorID: "a", Operator: "\r"},
	} {
		if _, err := warc.New(cfg); err == nil || !strings.Contains(err.Error(), "field "+field+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
	sink := openSink(t, warc.Config{Dir: dir, CollectorID: "a"})
	page, content := pageOf("http://a.example/", "x")
	if err := sink.Put(t.Context(), page, web.Content{Body: []byte("x")}); err == nil || !strings.Contains(err.Error(), "Exchanges") {
		t.Errorf("without exchanges: %v", err)
	}
	for _, digest := range []string{"", "../../x", page.Digest + "00"} {
		wrong := page
		wrong.Digest = digest
		if err := sink.Put(t.Context(), wrong, content); err == nil {
			t.Errorf("digest %q was taken", digest)
		}
		if _, err := sink.Body(t.Context(), digest); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("body %q: %v", digest, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(collector.ErrLeaseLost)
	if err := sink.Put(ctx, page, content); !errors.Is(err, collector.ErrLeaseLost) {
		t.Errorf("Put after the lease: %v", err)
	}
	if _, err := sink.Body(ctx, page.Digest); !errors.Is(err, collector.ErrLeaseLost) {
		t.Errorf("Body after the lease: %v", err)
	}
	shut(t, sink)
	if err := sink.Put(t.Context(), page, content); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Put after Close: %v", err)
	}
	if left := append(ls(t, dir, ".open"), ls(t, dir, ".gz")...); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSink_BodyGone holds that archives may be moved away: their bodies cannot be read back then, and that is all.
func TestSink_BodyGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sink := openSink(t, warc.Config{Dir: dir, CollectorID: "a"})
	page, content := pageOf("http://a.example/", "moved away")
	put(t, sink, page, content)
	shut(t, sink)
	file := ls(t, dir, ".warc.gz")[0]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text[:len(text)-1100:len(text)-1100], make([]byte, 1100)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Body(t.Context(), page.Digest); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged archive: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Body(t.Context(), page.Digest); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Body: %v", err)
	}
}
