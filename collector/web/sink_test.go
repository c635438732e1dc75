package web_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

// memorySink keeps pages in memory.
type memorySink struct {
	err error // of each Put

	mu        sync.Mutex
	pages     []web.Page
	exchanges [][]web.Exchange
	bodies    map[string][]byte
}

// Put keeps a page.
func (s *memorySink) Put(_ context.Context, page web.Page, content web.Content) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.pages = append(s.pages, page)
	s.exchanges = append(s.exchanges, content.Exchanges)
	if s.bodies == nil {
		s.bodies = make(map[string][]byte)
	}
	if content.Body != nil {
		s.bodies[page.Digest] = content.Body
	}
	return nil
}

// Body reads one back.
func (s *memorySink) Body(_ context.Context, digest string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if body, ok := s.bodies[digest]; ok {
		return body, nil
	}
	return nil, fs.ErrNotExist
}

func openSink(t *testing.T, dir, id string) *web.DirSink {
	t.Helper()
	sink, err := web.NewDirSink(dir, id, web.Rotation{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return sink
}

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// records reads a collector's file.
func records(t *testing.T, dir, id string) []web.Page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pages-"+id+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var pages []web.Page
	for line := range bytes.Lines(text) {
		var page web.Page
		if err := json.Unmarshal(line, &page); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		pages = append(pages, page)
	}
	return pages
}

func TestDirSink_Put(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "out")
	sink := openSink(t, dir, "c-1")
	page := web.Page{
		URL: "http://a/", FinalURL: "http://a/b", Status: 200, Digest: digest("body"), TaskID: "1-a", Cycle: 2, Fence: 3, Changed: true,
	}
	for range 2 { // also when repeated
		if err := sink.Put(t.Context(), page, web.Content{Body: []byte("body")}); err != nil {
			t.Fatal(err)
		}
	}
	empty := page
	empty.Digest = digest("")
	if err := sink.Put(t.Context(), empty, web.Content{Body: []byte{}}); err != nil {
		t.Fatal(err)
	}
	unchanged := page
	unchanged.Status = 304
	if err := sink.Put(t.Context(), unchanged, web.Content{}); err != nil {
		t.Fatal(err)
	}
	got := records(t, dir, "c-1")
	if len(got) != 4 {
		t.Fatalf("%d records, want 4", len(got))
	}
	for i, record := range got {
		body, err := os.ReadFile(filepath.Join(dir, record.File))
		if err != nil || digest(string(body)) != record.Digest {
			t.Errorf("record %d: body of %q: %v", i, record.File, err)
		}
	}
	if want := page; got[0].TaskID != want.TaskID || got[0].Fence != 3 || got[0].Cycle != 2 || got[0].FinalURL != want.FinalURL {
		t.Errorf("record %+v", got[0])
	}
	body, err := sink.Body(t.Context(), digest("body"))
	if err != nil || string(body) != "body" {
		t.Errorf("Body: %q, %v", body, err)
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, ".body-") {
			t.Errorf("left over: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDirSink_Bad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, id := range []string{"", "../x", "A", "a b"} {
		if _, err := web.NewDirSink(dir, id, web.Rotation{}); err == nil {
			t.Errorf("collector id %q was taken", id)
		}
	}
	sink := openSink(t, dir, "a")
	for _, bad := range []string{"", "../../etc/passwd", "zz", digest("x") + "0"} {
		if _, err := sink.Body(t.Context(), bad); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("body %q: %v", bad, err)
		}
		if err := sink.Put(t.Context(), web.Page{Digest: bad}, web.Content{Body: []byte("x")}); err == nil {
			t.Errorf("digest %q was taken", bad)
		}
	}
	if _, err := sink.Body(t.Context(), digest("unknown")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown body: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(collector.ErrLeaseLost)
	if err := sink.Put(ctx, web.Page{Digest: digest("x")}, web.Content{Body: []byte("x")}); !errors.Is(err, collector.ErrLeaseLost) {
		t.Errorf("Put after the lease: %v", err)
	}
	if got := records(t, dir, "a"); len(got) != 0 {
		t.Errorf("records %v", got)
	}
	if _, err := web.NewDirSink(filepath.Join(dir, "pages-a.jsonl"), "a", web.Rotation{}); err == nil {
		t.Error("a file was taken for a directory")
	}
}

// TestDirSink_Shared holds that several collectors fill one directory, and that a line cut by a crash spoils no other.
func TestDirSink_Shared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pages-c-0.jsonl"), []byte(`{"url":"cut`), 0o600); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for c := range 3 {
		sink := openSink(t, dir, fmt.Sprintf("c-%d", c))
		for w := range 4 {
			writers.Go(func() {
				for i := range 20 {
					body := fmt.Sprintf("body %d", i) // the same for all
					page := web.Page{URL: fmt.Sprintf("http://a/%d/%d", w, i), Digest: digest(body)}
					if err := sink.Put(t.Context(), page, web.Content{Body: []byte(body)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	writers.Wait()
	first, err := os.ReadFile(filepath.Join(dir, "pages-c-0.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	cut, rest, _ := strings.Cut(string(first), "\n")
	if cut != `{"url":"cut` || strings.Count(rest, "\n") != 80 {
		t.Errorf("first line %q, then %d", cut, strings.Count(rest, "\n"))
	}
	for c := 1; c < 3; c++ {
		got := records(t, dir, fmt.Sprintf("c-%d", c))
		if len(got) != 80 {
			t.Errorf("collector %d: %d records, want 80", c, len(got))
		}
		for _, record := range got {
			body, err := os.ReadFile(filepath.Join(dir, record.File))
			if err != nil || digest(string(body)) != record.Digest {
				t.Errorf("%s: %v", record.File, err)
			}
		}
	}
}
