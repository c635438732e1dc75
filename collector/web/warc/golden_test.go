package warc_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/warc"
)

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
Content-Length: 683

fetchTimeMs: 12
waggle-task-id: 17-abc
waggle-cycle: 3
waggle-fence: 1234567
waggle-attempt: 2
waggle-run: 9
waggle-source-id: news.a
waggle-url: http://a.example/p
waggle-final-url: http://a.example/p
waggle-redirected-from: http://a.example/head
waggle-status: 200
waggle-content-type: text/plain
waggle-fetch-time: 2026-03-01T12:00:00.25Z
waggle-digest: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
waggle-bytes: 5
waggle-changed: true
waggle-links: 1
waggle-canonical: http://a.example/canonical
waggle-no-index: true
waggle-title: A title
waggle-author: Ada
waggle-published: 2026-03-01T12:00:00.25Z
waggle-depth: 2
waggle-kind: page


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
