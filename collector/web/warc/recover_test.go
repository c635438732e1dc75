package warc_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/warc"
)

// unfinished makes an archive of some pages as a dying process leaves it, and returns its path and where its groups end.
func unfinished(t *testing.T, dir string, pages int) (path string, ends []int64) {
	t.Helper()
	made := t.TempDir()
	sink := openSink(t, warc.Config{Dir: made, CollectorID: "dead"})
	for i := range pages {
		page, content := pageOf(fmt.Sprintf("http://a.example/%d", i), fmt.Sprint("body ", i/2)) // every other one a revisit
		page.TaskID = fmt.Sprint("1-", i)
		put(t, sink, page, content)
	}
	shut(t, sink)
	finished := ls(t, made, ".warc.gz")[0]
	for _, r := range only(readFile(t, finished), "metadata") {
		ends = append(ends, r.after)
	}
	text, err := os.ReadFile(finished)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, filepath.Base(finished)+".open")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, ends
}

// TestNew_CutAnywhere cuts an archive at many places, and around the ends of its groups: the next sink keeps what is whole, with its index, and no
// part of a group.
func TestNew_CutAnywhere(t *testing.T) {
	t.Parallel()
	origin, ends := unfinished(t, t.TempDir(), 3)
	text, err := os.ReadFile(origin)
	if err != nil {
		t.Fatal(err)
	}
	cuts := []int{len(text) - 1, len(text)}
	for _, end := range ends[:len(ends)-1] {
		cuts = append(cuts, int(end)-1, int(end), int(end)+1)
	}
	for cut := 0; cut < len(text); cut += 23 {
		cuts = append(cuts, cut)
	}
	for _, cut := range cuts {
		dir := t.TempDir()
		open := filepath.Join(dir, filepath.Base(origin))
		if err := os.WriteFile(open, text[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		whole, end := 0, int64(0)
		for whole < len(ends) && ends[whole] <= int64(cut) {
			end = ends[whole]
			whole++
		}
		// An index that is ahead of the archive, and cut.
		index := strings.TrimSuffix(open, ".warc.gz.open") + ".index.jsonl"
		if err := os.WriteFile(index, []byte(strings.Repeat("{}\n", 9)+`{"url`), 0o600); err != nil {
			t.Fatal(err)
		}
		sink, err := warc.New(warc.Config{Dir: dir, CollectorID: "dead"})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		shut(t, sink)
		files := ls(t, dir, ".warc.gz")
		if whole == 0 {
			if len(files)+len(ls(t, dir, ".open"))+len(ls(t, dir, ".jsonl")) != 0 {
				t.Fatalf("cut at %d: nothing is whole, and %v is there", cut, files)
			}
			continue
		}
		if len(files) != 1 || len(ls(t, dir, ".open")) != 0 {
			t.Fatalf("cut at %d: files %v", cut, files)
		}
		if got, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(got, text[:end]) {
			t.Fatalf("cut at %d: %d bytes, want %d (%v)", cut, len(got), end, err)
		}
		kept := ls(t, dir, ".cut")
		if int64(cut) == end && len(kept) != 0 || int64(cut) > end && len(kept) != 1 {
			t.Fatalf("cut at %d: kept %v", cut, kept)
		}
		checkIndex(t, dir, whole)
	}
}

// TestNew_Index holds that recovery makes the index that the dead process would have made, and finds its bodies again.
func TestNew_Index(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, _ := unfinished(t, dir, 4)
	sink := openSink(t, warc.Config{Dir: dir, CollectorID: "dead"})
	number := 0
	for entry, err := range warc.ReadIndex(dir) {
		if err != nil {
			t.Fatal(err)
		}
		want, _ := pageOf(fmt.Sprintf("http://a.example/%d", number), fmt.Sprint("body ", number/2))
		want.TaskID, want.File = fmt.Sprint("1-", number), strings.TrimSuffix(filepath.Base(path), ".open")
		if entry.Page != want {
			t.Errorf("entry %+v, want %+v", entry.Page, want)
		}
		for field, value := range reflect.ValueOf(want).Fields() {
			if value.IsZero() {
				t.Errorf("the page says nothing of %s, and so whether the archive keeps it", field.Name)
			}
		}
		if isRevisit := entry.Type == "revisit"; isRevisit != (number%2 == 1) {
			t.Errorf("entry %d is a %s", number, entry.Type)
		}
		body, err := sink.Body(t.Context(), entry.Digest)
		if err != nil || string(body) != fmt.Sprint("body ", number/2) {
			t.Errorf("body %q, %v", body, err)
		}
		number++
	}
	if number != 4 {
		t.Errorf("%d entries, want 4", number)
	}
	checkIndex(t, dir, 4)
}

// TestNew_Living holds that nobody takes a file from a living process, nor one of another collector.
func TestNew_Living(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	living := openSink(t, warc.Config{Dir: dir, CollectorID: "a"})
	page, content := pageOf("http://a.example/", "x")
	put(t, living, page, content)
	foreign, _ := unfinished(t, dir, 2)
	again := openSink(t, warc.Config{Dir: dir, CollectorID: "a"})
	put(t, again, page, content)
	if open := ls(t, dir, ".open"); len(open) != 3 {
		t.Errorf("open: %v", open)
	}
	put(t, living, page, content)
	shut(t, living)
	shut(t, again)
	if open := ls(t, dir, ".open"); len(open) != 1 || open[0] != foreign {
		t.Errorf("open: %v", open)
	}
	if metadata := only(readAll(t, dir), "metadata"); len(metadata) != 3 {
		t.Errorf("%d pages, want 3", len(metadata))
	}
}

// TestSink_Killed kills a writer in the middle, again and again: each page that it had stored is there, whole.
func TestSink_Killed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stored := 0
	for round := range 5 {
		for _, fence := range killed(t, dir, 40+round*7) {
			stored = max(stored, fence)
		}
		sink := openSink(t, warc.Config{Dir: dir, CollectorID: "killed"})
		shut(t, sink)
		if open := ls(t, dir, ".open"); len(open) != 0 {
			t.Fatalf("left open: %v", open)
		}
		there := map[string]bool{}
		groups := 0
		for _, path := range ls(t, dir, ".warc.gz") {
			records := readFile(t, path)
			if last := records[len(records)-1]; last.kind() != "metadata" {
				t.Errorf("%s ends in a %s record", path, last.kind())
			}
			for _, r := range only(records, "metadata") {
				there[r.fields()["waggle-fence"]] = true
				groups++
			}
		}
		for fence := 1; fence <= stored; fence++ {
			if !there[strconv.Itoa(fence)] {
				t.Errorf("round %d: page %d was stored, and is gone", round, fence)
			}
		}
		checkIndex(t, dir, groups)
	}
}

// killed lets a process write until it has stored some pages, kills it, and returns the fences that it said it stored.
func killed(t *testing.T, dir string, pages int) (stored []int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), writerVariable+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fence, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		if stored = append(stored, fence); len(stored) == pages {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || len(stored) < pages {
		t.Fatalf("the writer ended (%v) after %d pages", err, len(stored))
	}
	return stored
}

// TestSink_Full writes until files can grow no more, as on a full disk: the Put that fails leaves
// nothing, the file is finished as it was before, and the pages that were stored are there.
func TestSink_Full(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{4_500, 70_000, 200_000} {
		dir := t.TempDir()
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), writerVariable+"="+dir, fmt.Sprintf("%s=%d", fullVariable, limit))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("limit %d: %v", limit, err)
		}
		stored := bytes.Count(out, []byte("\n"))
		if metadata := only(readAll(t, dir), "metadata"); len(metadata) != stored || stored == 0 {
			t.Errorf("limit %d: %d pages, stored were %d", limit, len(metadata), stored)
		}
		if open := ls(t, dir, ".open"); len(open) != 0 {
			t.Errorf("limit %d: left open: %v", limit, open)
		}
		checkIndex(t, dir, stored)
	}
}
