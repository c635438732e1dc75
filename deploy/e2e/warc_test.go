//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector/web/warc"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// warcTool is the reader of WARC files, written by others, that checks ours, at the version that was tried.
	warcTool = "warcio==1.8.1"

	warcPages = 120
	warcLimit = time.Minute

	// warcReader lists the records of files as warcio sees them, with what it finds as the pages' bodies.
	warcReader = `
import hashlib, json, sys
from warcio.archiveiterator import ArchiveIterator
for path in sys.argv[1:]:
    with open(path, "rb") as stream:
        for record in ArchiveIterator(stream):
            h = record.rec_headers
            print(json.dumps({
                "type": record.rec_type,
                "id": h.get_header("WARC-Record-ID"),
                "url": h.get_header("WARC-Target-URI"),
                "refers_to": h.get_header("WARC-Refers-To") or "",
                "status": record.http_headers.get_statuscode() if record.http_headers else "",
                "sha256": hashlib.sha256(record.content_stream().read()).hexdigest(),
            }))
`
)

// warcRecord is a record as warcReader tells it.
type warcRecord struct {
	Type     string `json:"type"`
	ID       string `json:"id"`
	URL      string `json:"url"`
	RefersTo string `json:"refers_to"`
	Status   string `json:"status"`
	SHA256   string `json:"sha256"`
}

// TestWARC crawls a site twice with two collectors, of which one is killed and comes back, into WARC files; and has
// warcio, which others wrote, check and read them. The pages that it finds are those that were served.
func TestWARC(t *testing.T) {
	t.Parallel()
	python := warcPython(t)
	site := httptest.NewServer(warcSite())
	t.Cleanup(site.Close)
	d := serve(t, "dispatcher", "memory", "warc")
	c := dial(t, d.addr)
	c.setRule(t, "*", time.Millisecond, 8)
	dir := t.TempDir()
	collect := func(id string) *process {
		return launch(t, id, programs.path("waggle"), "collect", "--server", d.addr, "--id", id, "--allow-private", "--slots", "4",
			"--warc", dir, "--file-size", "70000", "--contact", "https://crawler.example")
	}
	depth := int32(50)
	c.createSource(t, &pb.SourceSpec{
		Id: "e2e.warc", Seeds: []*pb.Seed{{Url: site.URL + "/0"}}, LeaseDuration: durationpb.New(2 * time.Second),
		Follow: &pb.Follow{MaxDepth: &depth},
	})
	steady, doomed := collect("warc-steady"), collect("warc-doomed")
	until(t, warcLimit, "the doomed collector has stored pages", func() bool { return len(warcEntries(t, dir, "warc-doomed")) >= 10 })
	doomed.kill()
	back := collect("warc-doomed")
	warcSettled(t, c, 1)
	if _, err := c.sources.TriggerSources(t.Context(), &pb.TriggerSourcesRequest{Ids: []string{"e2e.warc"}, Revisit: true}); err != nil {
		t.Fatal(err)
	}
	warcSettled(t, c, 2)
	steady.stop(10 * time.Second)
	back.stop(10 * time.Second)
	checkWARC(t, python, dir, site.URL)
}

// warcSite has pages that link to the next ones, long and short, plain and compressed, with and without a length.
func warcSite() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var number int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &number); err != nil || number >= warcPages {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, number))
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		body := warcPage(number)
		switch {
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotModified)
			return
		case strings.Contains(r.Header.Get("Accept-Encoding"), "zstd"): // warcio cannot undo it
			http.Error(w, "zstd is asked for", http.StatusInternalServerError)
			return
		case number%3 == 0 && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"):
			w.Header().Set("Content-Encoding", "gzip")
			var zipped bytes.Buffer
			zip := gzip.NewWriter(&zipped)
			if _, err := zip.Write(body); err != nil {
				panic(err) // a buffer takes all writes
			}
			if err := zip.Close(); err != nil {
				panic(err)
			}
			body = zipped.Bytes()
		}
		// Who has gone has gone.
		_, _ = w.Write(body)
	})
}

func warcPage(number int) []byte {
	page := fmt.Appendf(nil, "<title>%d</title><a href='/%d'>next</a> <a href='/%d'>and</a>\n", number, (number*2+1)%warcPages, (number*2+2)%warcPages)
	for i := range number * 5 { // hardly compressible, so that files fill up
		sum := sha256.Sum256(fmt.Append(nil, number, i))
		page = fmt.Appendln(page, hex.EncodeToString(sum[:]))
	}
	return page
}

// warcSettled waits until the seed has settled so often and no page is outstanding. (The seed has no schedule of its own.)
func warcSettled(t *testing.T, c *client, passes int) {
	t.Helper()
	until(t, warcLimit, fmt.Sprintf("pass %d is over", passes), func() bool {
		reply, err := c.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "e2e.warc"})
		if err != nil {
			t.Fatal(err)
		}
		counts := reply.GetSource().GetStatus().GetTasks()
		if counts.GetDead() > 0 {
			t.Fatalf("tasks are DEAD: %v", counts)
		}
		return counts.GetReady()+counts.GetLeased()+counts.GetScheduled() == 0 && counts.GetDone() == warcPages
	})
}

// warcEntries lists the index of one collector.
func warcEntries(t *testing.T, dir, collector string) []warc.Entry {
	t.Helper()
	var entries []warc.Entry
	for entry, err := range warc.ReadIndex(dir) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(entry.File, "waggle-"+collector+"-") {
			entries = append(entries, entry)
		}
	}
	return entries
}

// checkWARC has the files checked and read by warcio, and compares with what was served and with our own index.
func checkWARC(t *testing.T, python, dir, base string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.warc.gz"))
	if err != nil || len(files) < 5 {
		t.Fatalf("files %v, %v", files, err)
	}
	if open, err := filepath.Glob(filepath.Join(dir, "*.open")); err != nil || len(open) != 0 {
		t.Errorf("left open: %v, %v", open, err)
	}
	if out, err := exec.CommandContext(t.Context(), python, append([]string{"-m", "warcio.cli", "check"}, files...)...).CombinedOutput(); err != nil {
		t.Errorf("warcio check: %v\n%s", err, out)
	}
	records := warcRecords(t, python, files)
	winners, err := warc.Winners(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages, revisits := map[string]bool{}, 0
	for _, entry := range winners {
		record, ok := records[entry.RecordID]
		if !ok || record.Type != entry.Type || record.URL != entry.FinalURL || record.Status != fmt.Sprint(entry.Status) {
			t.Fatalf("entry %+v, record %+v", entry, record)
		}
		if record.Type == "revisit" {
			revisits++
			record = records[record.RefersTo]
		}
		var number int
		if _, err := fmt.Sscanf(strings.TrimPrefix(entry.FinalURL, base), "/%d", &number); err != nil {
			t.Fatal(err)
		}
		if want := sha256Hex(warcPage(number)); record.SHA256 != want {
			t.Errorf("%s: the page in the archive is not the one that was served: %+v", entry.FinalURL, record)
		}
		pages[entry.FinalURL] = true
	}
	t.Logf("%d files, %d records, %d pages and %d revisits of %d URLs", len(files), len(records), len(winners)-revisits, revisits, len(pages))
	if len(pages) != warcPages || revisits == 0 {
		t.Errorf("%d pages, %d revisits; want %d, and some", len(pages), revisits, warcPages)
	}
}

// warcRecords reads the files with warcio.
func warcRecords(t *testing.T, python string, files []string) map[string]warcRecord {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, append([]string{"-c", warcReader}, files...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("read with warcio: %v\n%s", err, stderr.String())
	}
	records := map[string]warcRecord{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var record warcRecord
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			t.Fatal(err)
		}
		records[record.ID] = record
	}
	return records
}
