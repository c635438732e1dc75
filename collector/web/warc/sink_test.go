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
	"path/filepath"
	"regexp"
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
		URL: url, FinalURL: url, Status: 200, ContentType: "text/plain", FetchTime: noon, FetchMillis: 12,
		Digest: sha([]byte(body)), Bytes: int64(len(body)), Changed: true, Links: 1,
		SourceID: "news.a", TaskID: "17-abc", Cycle: 3, Run: 9, Attempt: 2, Fence: 1234567,
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

// golden is what a page becomes, with record ids numbered; the digests of blocks are checked by readFile.
const golden = `WARC/1.1
WARC-Type: warcinfo
WARC-Record-ID: <urn:uuid:1>
WARC-Date: DATE
WARC-Filename: waggle-c-1-STAMP-00000.warc.gz
WARC-Block-Digest: DIGEST
Content-Type: application/warc-fields
Content-Length: 199

software: waggle 1.0
operator: mail@example.com
format: WARC File Format 1.1
conformsTo: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/
waggle-collector-id: c-1


WARC/1.1
WARC-Type: response
WARC-Record-ID: <urn:uuid:2>
WARC-Date: 2026-03-01T12:00:00.250Z
WARC-Target-URI: http://a.example/p
WARC-IP-Address: 192.0.2.7
WARC-Protocol: http/1.1
WARC-Payload-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N
WARC-Block-Digest: DIGEST
Content-Type: application/http; msgtype=response
Content-Length: 69

HTTP/1.1 200 OK
Content-Type: text/plain
Content-Length: 5

hello

WARC/1.1
WARC-Type: request
WARC-Record-ID: <urn:uuid:3>
WARC-Date: 2026-03-01T12:00:00.250Z
WARC-Target-URI: http://a.example/p
WARC-IP-Address: 192.0.2.7
WARC-Protocol: http/1.1
WARC-Concurrent-To: <urn:uuid:2>
WARC-Block-Digest: DIGEST
Content-Type: application/http; msgtype=request
Content-Length: 36

GET /p HTTP/1.1
Host: a.example



WARC/1.1
WARC-Type: metadata
WARC-Record-ID: <urn:uuid:4>
WARC-Date: 2026-03-01T12:00:00.250Z
WARC-Target-URI: http://a.example/p
WARC-Concurrent-To: <urn:uuid:2>
WARC-Block-Digest: DIGEST
Content-Type: application/warc-fields
Content-Length: 445

fetchTimeMs: 12
waggle-task-id: 17-abc
waggle-cycle: 3
waggle-fence: 1234567
waggle-attempt: 2
waggle-run: 9
waggle-source-id: news.a
waggle-url: http://a.example/p
waggle-final-url: http://a.example/p
waggle-status: 200
waggle-content-type: text/plain
waggle-fetch-time: 2026-03-01T12:00:00.25Z
waggle-digest: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
waggle-bytes: 5
waggle-changed: true
waggle-links: 1


`

// TestSink_Golden holds the records of a page to the byte.
func TestSink_Golden(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sink := openSink(t, warc.Config{Dir: dir, CollectorID: "c-1", Software: "waggle 1.0", Operator: "mail@example.com"})
	page, content := pageOf("http://a.example/p", "hello")
	put(t, sink, page, content)
	if open := ls(t, dir, ".warc.gz.open"); len(open) != 1 {
		t.Errorf("while it is written: %v", open)
	}
	shut(t, sink)
	files := ls(t, dir, ".warc.gz")
	if len(files) != 1 || len(ls(t, dir, ".open")) != 0 {
		t.Fatalf("files %v", files)
	}
	readFile(t, files[0]) // checks lengths and digests
	compressed, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	got := string(gunzip(t, compressed))
	if strings.Count(got, "\n") != strings.Count(got, "\r\n") {
		t.Error("a line does not end in CR LF")
	}
	ids := map[string]string{}
	got = regexp.MustCompile(`urn:uuid:[0-9a-f-]{36}`).ReplaceAllStringFunc(got, func(id string) string {
		if ids[id] == "" {
			ids[id] = fmt.Sprintf("urn:uuid:%d", len(ids)+1)
		}
		return ids[id]
	})
	got = regexp.MustCompile(`Block-Digest: sha1:[A-Z2-7]{32}`).ReplaceAllString(got, "Block-Digest: DIGEST")
	got = regexp.MustCompile(`c-1-\d{17}-`).ReplaceAllString(got, "c-1-STAMP-")
	got = regexp.MustCompile(`WARC-Date: 20\S+`).ReplaceAllStringFunc(got, func(date string) string {
		if strings.HasSuffix(date, "2026-03-01T12:00:00.250Z") {
			return date
		}
		return "WARC-Date: DATE"
	})
	if want := strings.ReplaceAll(golden, "\n", "\r\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
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

// TestSink_Rotation holds that files end at their size, are named in order, and lose nothing between them.
func TestSink_Rotation(t *testing.T) {
	t.Parallel()
	const limit, pages = 64 << 10, 60
	dir := t.TempDir()
	sink := openSink(t, warc.Config{Dir: dir, CollectorID: "rot.1", MaxFileBytes: limit})
	for fence := range int64(pages) {
		page, content := noisePage(fence)
		put(t, sink, page, content)
	}
	big, content := pageOf("http://a.example/big", strings.Repeat("x", limit))
	put(t, sink, big, content)
	shut(t, sink)
	name := regexp.MustCompile(`^waggle-rot\.1-\d{17}-\d{5}\.warc\.gz$`)
	files := ls(t, dir, ".warc.gz")
	if len(files) < 5 {
		t.Fatalf("%d files", len(files))
	}
	seen := 0
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		metadata := only(readFile(t, path), "metadata")
		if seen += len(metadata); info.Size() > limit || len(metadata) == 0 || !name.MatchString(filepath.Base(path)) {
			t.Errorf("%s: %d bytes, %d pages", path, info.Size(), len(metadata))
		}
	}
	if seen != pages+1 {
		t.Errorf("%d pages, want %d", seen, pages+1)
	}
	checkIndex(t, dir, pages+1)
}

// checkIndex holds that each entry of the index shows the record that it speaks of.
func checkIndex(t *testing.T, dir string, want int) {
	t.Helper()
	at := map[string]*readRecord{}
	for _, path := range ls(t, dir, ".warc.gz") {
		for _, r := range readFile(t, path) {
			at[fmt.Sprint(filepath.Base(path), r.offset, r.after-r.offset)] = r
		}
	}
	entries := 0
	for entry, err := range warc.ReadIndex(dir) {
		if err != nil {
			t.Fatal(err)
		}
		entries++
		r := at[fmt.Sprint(entry.File, entry.Offset, entry.Length)]
		if r == nil || r.header.Get("WARC-Record-ID") != entry.RecordID || r.kind() != entry.Type ||
			r.header.Get("WARC-Payload-Digest") != entry.PayloadDigest || r.header.Get("WARC-Date") != entry.Date {
			t.Fatalf("entry %+v, record %+v", entry, r)
		}
	}
	if entries != want {
		t.Errorf("%d entries, want %d", entries, want)
	}
}

// TestWinners holds that one group per task and cycle counts, the one with the highest fence, whichever file it is in.
func TestWinners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, step := range []struct {
		task         string
		cycle, fence int64
		collector    string
	}{
		{"1-a", 0, 5, "x"}, {"1-a", 0, 9, "y"}, {"1-a", 0, 7, "x"}, // a late one of an older lease
		{"1-a", 1, 11, "x"}, {"1-b", 0, 6, "x"}, {"1-b", 0, 6, "x"}, // a repeated Put
	} {
		sink := openSink(t, warc.Config{Dir: dir, CollectorID: step.collector})
		page, content := pageOf("http://a.example/", fmt.Sprint("body ", i))
		page.TaskID, page.Cycle, page.Fence, page.Links = step.task, step.cycle, step.fence, i
		put(t, sink, page, content)
		shut(t, sink)
	}
	winners, err := warc.Winners(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]int64{}
	for _, entry := range winners {
		got[entry.Links] = entry.Fence
	}
	if len(got) != 3 || got[1] != 9 || got[3] != 11 || got[5] != 6 {
		t.Errorf("winners by step: %v", got)
	}
	if _, err := warc.Winners(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "z.index.jsonl"), []byte("{}\nbroken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := warc.Winners(dir); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("broken index: %v", err)
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
	if err := os.WriteFile(file, append(text[:len(text)-900:len(text)-900], make([]byte, 900)...), 0o600); err != nil {
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
