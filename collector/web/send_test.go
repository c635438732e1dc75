package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector/web"
)

func openSend(t *testing.T, cfg web.SendConfig) *web.SendSink {
	t.Helper()
	sink, err := web.NewSendSink(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	return sink
}

// sent are the URLs and bodies of lines of JSON.
func sentPages(t *testing.T, lines []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	for line := range bytes.Lines(lines) {
		var one web.Sent
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		found[one.URL] = string(one.Body)
	}
	return found
}

// putMany puts pages at once, and returns when all were taken.
func putMany(t *testing.T, sink web.Sink, n int) {
	t.Helper()
	var puts sync.WaitGroup
	for i := range n {
		puts.Go(func() {
			body := fmt.Sprintf("body %d", i)
			page := web.Page{URL: fmt.Sprintf("http://a/%d", i), Digest: digest(body)}
			if err := sink.Put(t.Context(), page, web.Content{Body: []byte(body)}); err != nil {
				t.Error(err)
			}
		})
	}
	puts.Wait()
}

// A command that fails gets its batch again; no page is taken before it has ended well, and none is lost.
func TestSendSink_Put_command(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sink := openSend(t, web.SendConfig{
		Command: fmt.Sprintf("cd %s && if mkdir first 2>/dev/null; then cat >half; exit 1; fi; cat >>all", dir), MaxBatch: 7,
	})
	putMany(t, sink, 20)
	text, err := os.ReadFile(filepath.Join(dir, "all"))
	if err != nil {
		t.Fatal(err)
	}
	if got := sentPages(t, text); len(got) != 20 || got["http://a/7"] != "body 7" || bytes.Count(text, []byte("\n")) != 20 {
		t.Errorf("it got %v", got)
	}
	if half, err := os.ReadFile(filepath.Join(dir, "half")); err != nil || len(sentPages(t, half)) == 0 || len(sentPages(t, half)) > 7 {
		t.Errorf("the batch that failed: %q, %v", half, err)
	}
	if _, err := sink.Failing(); err != nil {
		t.Errorf("after all: %v", err)
	}
}

func TestSendSink_Put_url(t *testing.T) {
	t.Parallel()
	var posts atomic.Int64
	got := make(chan map[string]string, 10)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-ndjson" {
			t.Errorf("%s %v: %v", r.Method, r.Header, err)
		}
		if posts.Add(1) == 1 {
			http.Error(w, "come again", http.StatusServiceUnavailable)
			return
		}
		got <- sentPages(t, text)
	}))
	t.Cleanup(site.Close)
	at, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	sink := openSend(t, web.SendConfig{URL: at, Client: site.Client()})
	putMany(t, sink, 1)
	if pages := <-got; pages["http://a/0"] != "body 0" {
		t.Errorf("it got %v", pages)
	}
}

// A page that nobody takes is not stored, says why, and does not keep its collector from its end.
func TestSendSink_Put_refused(t *testing.T) {
	t.Parallel()
	began := time.Now()
	sink := openSend(t, web.SendConfig{Command: "exit 3"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := sink.Put(ctx, web.Page{Digest: digest("x")}, web.Content{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Put: %v", err)
	}
	if since, err := sink.Failing(); err == nil || !strings.Contains(err.Error(), "exit status 3") || since.Before(began) || time.Since(since) < time.Second/2 {
		t.Errorf("Failing since %v: %v", since, err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sink.Put(t.Context(), web.Page{}, web.Content{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Put after Close: %v", err)
	}
	for want, bad := range map[string]web.SendConfig{
		"want one of them": {}, "want http or https": {URL: &url.URL{Scheme: "ftp", Host: "a"}}, "want 0 or more": {Command: "x", MaxBatch: -1},
	} {
		if _, err := web.NewSendSink(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
