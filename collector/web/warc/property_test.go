package warc_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/warc"
)

// TestSink_RoundTrip puts pages with any heads, bodies and texts, and reads them with a reader of its own: what went in
// comes out, and the recovery of the same bytes makes the same index.
func TestSink_RoundTrip(t *testing.T) {
	t.Parallel()
	root, round := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		dir := filepath.Join(root, strconv.Itoa(round))
		round++
		sink := openSink(t, warc.Config{Dir: dir, CollectorID: "a"})
		var contents []web.Content
		for i := range rapid.IntRange(1, 3).Draw(rt, "pages") {
			page, content := pageOf("http://a.example/", "")
			// The number keeps bodies apart: equal ones would become revisits.
			content.Body = append(fmt.Appendf(nil, "%d", i), rapid.SliceOf(rapid.Byte()).Draw(rt, "body")...)
			page.Digest, page.Bytes = sha(content.Body), int64(len(content.Body))
			page.ContentType = rapid.String().Draw(rt, "content type")
			page.Cycle, page.Fence = rapid.Int64().Draw(rt, "cycle"), rapid.Int64().Draw(rt, "fence")
			x := &content.Exchanges[0]
			x.Body = content.Body
			x.Response = fmt.Appendf(nil, "HTTP/1.1 200 %s\r\nX: %s\r\n\r\n", line(rt), line(rt))
			contents = append(contents, content)
			put(t, sink, page, content)
		}
		shut(t, sink)
		records := readAll(t, dir)
		for i, r := range only(records, "response") {
			x := contents[i].Exchanges[0]
			if !bytes.Equal(r.block, append(bytes.Clone(x.Response), x.Body...)) {
				rt.Errorf("block %q, want %q and %q", r.block, x.Response, x.Body)
			}
			if got, err := sink.Body(t.Context(), sha(x.Body)); err != nil || !bytes.Equal(got, x.Body) {
				rt.Errorf("Body %q, %v; want %q", got, err, x.Body)
			}
		}
		index := ls(t, dir, ".jsonl")[0]
		before, err := os.ReadFile(index)
		if err != nil {
			rt.Fatal(err)
		}
		archive := ls(t, dir, ".warc.gz")[0]
		if err := os.Rename(archive, archive+".open"); err != nil {
			rt.Fatal(err)
		}
		shut(t, openSink(t, warc.Config{Dir: dir, CollectorID: "a"}))
		after, err := os.ReadFile(index)
		if err != nil || !bytes.Equal(before, after) {
			rt.Errorf("index %s, after recovery %s (%v)", before, after, err)
		}
	})
}

// line is text without line ends.
func line(rt *rapid.T) string {
	return strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return -1
		}
		return r
	}, rapid.String().Draw(rt, "line"))
}

// FuzzNew lets recovery loose on what is no archive: it never fails on it, and leaves whole records only.
func FuzzNew(f *testing.F) {
	f.Add([]byte("no archive"), uint16(0))
	f.Add([]byte{0x1f, 0x8b, 8, 0}, uint16(700))
	f.Add([]byte{}, uint16(65535))
	f.Fuzz(func(t *testing.T, noise []byte, at uint16) {
		dir := t.TempDir()
		open, _ := unfinished(t, dir, 2)
		text, err := os.ReadFile(open)
		if err != nil {
			t.Fatal(err)
		}
		place := min(int(at), len(text))
		if err := os.WriteFile(open, append(text[:place:place], noise...), 0o600); err != nil {
			t.Fatal(err)
		}
		sink, err := warc.New(warc.Config{Dir: dir, CollectorID: "dead"})
		if err != nil {
			t.Fatal(err)
		}
		shut(t, sink)
		groups := 0
		for _, path := range ls(t, dir, ".warc.gz") {
			groups += len(only(readFile(t, path), "metadata"))
		}
		checkIndex(t, dir, groups)
		if left, err := filepath.Glob(filepath.Join(dir, "*.open")); err != nil || len(left) != 0 {
			t.Errorf("left open: %v, %v", left, err)
		}
	})
}
