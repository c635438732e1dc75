package warc_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/warc"
)

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
