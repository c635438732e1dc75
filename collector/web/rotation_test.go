package web_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// files are those of records in a directory, with the number of records in each.
func files(t *testing.T, dir string) (names []string, lines int) {
	t.Helper()
	below, err := fs.Glob(os.DirFS(dir), "pages-*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range below {
		names = append(names, filepath.Join(dir, name))
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(text, []byte("\n"))
	}
	return names, lines
}

// A file of records that is large enough is ended, and no record is lost or torn.
func TestDirSink_MaxBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sink, err := web.NewDirSink(dir, "c-1", web.Rotation{MaxBytes: 2000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		page := web.Page{URL: fmt.Sprintf("http://a/%d", i), Digest: digest("body")}
		if err := sink.Put(t.Context(), page, web.Content{Body: []byte("body")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	names, lines := files(t, dir)
	if len(names) < 5 || lines != 40 {
		t.Errorf("%d records in %d files: %q", lines, len(names), names)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Size() > 2000 || info.Size() == 0 && !strings.HasSuffix(name, "c-1.jsonl") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// old makes a file look as if it was written so long ago.
func old(t *testing.T, path string, age time.Duration) {
	t.Helper()
	if err := os.Chtimes(path, time.Now().Add(-age), time.Now().Add(-age)); err != nil {
		t.Fatal(err)
	}
}

// Files end by their age, and what no page had for long is removed, by virtual time.
func TestDirSink_Keep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testKeep(t, dir)
	testKeep(t, filepath.Join(dir, "[pages"))
}

func testKeep(t *testing.T, dir string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sink, err := web.NewDirSink(dir, "c-1", web.Rotation{MaxAge: time.Hour, Keep: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		put := func(body string, content web.Content) {
			t.Helper()
			if err := sink.Put(t.Context(), web.Page{URL: "http://a/" + body, Digest: digest(body)}, content); err != nil {
				t.Fatal(err)
			}
		}
		put("once", web.Content{Body: []byte("once")})
		put("again", web.Content{Body: []byte("again")})
		time.Sleep(2 * time.Hour)
		put("later", web.Content{Body: []byte("later")})
		if names, lines := files(t, dir); len(names) != 2 || lines != 3 {
			t.Errorf("after two hours: %d records in %q", lines, names)
		}
		for _, name := range []string{"once", "again", "later"} { // files have the time of the machine: set that of here
			old(t, filepath.Join(dir, "bodies", digest(name)[:2], digest(name)), time.Hour)
		}
		names, _ := files(t, dir)
		for _, name := range names {
			old(t, name, 23*time.Hour)
		}
		put("again", web.Content{}) // the server said that nothing changed
		time.Sleep(23*time.Hour + 10*time.Minute)
		for body, want := range map[string]bool{"once": false, "again": true, "later": false} {
			if has := sink.Has(digest(body)); has != want {
				t.Errorf("body %q is there: %v, want %v", body, has, want)
			}
		}
		if names, lines := files(t, dir); len(names) != 2 || lines > 2 { // the newer ones
			t.Errorf("a day later: %d records in %q", lines, names)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A page without links whose body has expired is fetched whole again; while the body is there, the server is asked for changes only.
func TestHandler_Handle_expired(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<head><title>
			Bees &amp; more</title><meta name=author content="Ada  L."><meta property="article:published_time" content="2026-03-01T12:00:00Z"></head>`)
	}))
	t.Cleanup(site.Close)
	dir := t.TempDir()
	sink, err := web.NewDirSink(dir, "c-1", web.Rotation{Keep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	h, err := web.New(web.Config{Sink: sink, AllowPrivate: true, IgnoreRobots: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	task := &collector.Task{ID: "1-a", SourceID: "news", URL: site.URL + "/", Depth: 2, Kind: "page"}
	for i, want := range []int{200, 304, 200, 304} {
		done, err := h.Handle(t.Context(), task)
		if err != nil || done.HTTPStatus != want {
			t.Fatalf("fetch %d: %d, %v, want %d", i, done.HTTPStatus, err, want)
		}
		task.Memo, task.Cycle = done.Memo, task.Cycle+1
		pages := records(t, dir, "c-1")
		page := pages[len(pages)-1]
		if _, err := os.Stat(filepath.Join(dir, page.File)); err != nil {
			t.Errorf("fetch %d: its record names a body that is not there: %v", i, err)
		}
		if page.Depth != 2 || page.Kind != "page" || page.SourceID != "news" {
			t.Errorf("fetch %d: %+v", i, page)
		}
		if want == 200 && (page.Title != "Bees & more" || page.Author != "Ada L." || !page.Published.Equal(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))) {
			t.Errorf("fetch %d: %q by %q of %v", i, page.Title, page.Author, page.Published)
		}
		if i == 1 {
			if err := os.RemoveAll(filepath.Join(dir, "bodies")); err != nil { // as Keep does
				t.Fatal(err)
			}
		}
	}
}

func TestRotation_Validate(t *testing.T) {
	t.Parallel()
	for want, bad := range map[string]web.Rotation{
		"field MaxBytes: -1": {MaxBytes: -1}, "field MaxAge: -1s": {MaxAge: -time.Second}, "field Keep: 1s: want 1m0s or more": {Keep: time.Second},
	} {
		if _, err := web.NewDirSink(t.TempDir(), "a", bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
