package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	"github.com/waggle-crawl/waggle/collector/web"
)

func TestCollect_Crawl(t *testing.T) {
	t.Parallel()
	agents := make(chan string, 100)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/robots.txt", "/gone":
			http.NotFound(w, r)
		default:
			agents <- r.UserAgent()
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<a href="/a">a</a> <a href="/b">b</a> <a href="/gone">gone</a> <a href="https://elsewhere.example/">out</a>`)
		}
	}))
	t.Cleanup(site.Close)
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "4")
	command(t, env, "source", "create", "site", "--seed", site.URL+"/", "--follow")
	dir := t.TempDir()
	k := start(t, env, "collect", "--id", "paris-1", "--out", dir, "--contact", "me@example.com", "--allow-private", "--status", "10ms")
	k.err.line(t, `"msg":"collector takes tasks","id":"paris-1","servers":\["127\.0\.0\.1:\d+"\],"pools":\["default"\],"slots":8`)
	k.err.line(t, `"msg":"progress","pages":3,.*"failed":1,"lost":0,"answers":{"200":3,"404":1},"reasons":{"NOT_FOUND":1},"running":0,"stuck":0,"slots":8,"lag_seconds":`)
	if got := command(t, env, "collector", "list"); !strings.Contains(got.out, "paris-1    ACTIVE") {
		t.Errorf("printed\n%s", got.out)
	}
	if code := k.end(); code != waggle.ExitOK {
		t.Errorf("exit code %d after a stop:\n%s", code, k.err.text())
	}
	k.err.line(t, `"msg":"collector stops","running":0`)
	k.err.line(t, `"msg":"collector has ended","pages":3,.*"after":`)
	for line := range strings.Lines(k.err.text()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("among lines of JSON: %q", line)
		}
	}
	if k.out.text() != "" {
		t.Errorf("on standard output: %q", k.out.text())
	}
	if agent := <-agents; agent != "waggle (+me@example.com)" {
		t.Errorf("user agent %q", agent)
	}
	if got := pages(t, filepath.Join(dir, "pages-paris-1.jsonl")); len(got) != 3 || !got[site.URL+"/a"] || !got[site.URL+"/b"] {
		t.Errorf("kept %v", got)
	}
}

// TestCollect_MovedSeed crawls a feed that has moved to another host in each cycle of its seed, with its memo.
func TestCollect_MovedSeed(t *testing.T) {
	t.Parallel()
	conditions := make(chan string, 100)
	moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		conditions <- r.Header.Get("If-None-Match")
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, "<rss><channel/></rss>")
	}))
	t.Cleanup(moved.Close)
	mux := http.NewServeMux()
	mux.Handle("/feed", http.RedirectHandler(moved.URL+"/feed", http.StatusMovedPermanently))
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	env, _ := served(t)
	command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s")
	command(t, env, "source", "create", "feed", "--seed", site.URL+"/feed", "--every", "1s")
	k := start(t, env, "collect", "--allow-private")
	k.err.line(t, `"level":"info".*"msg":"no page is kept: neither --out nor --warc is given"`)
	for i, want := range []string{"", `"1"`, `"1"`} {
		select {
		case got := <-conditions:
			if got != want {
				t.Errorf("crawl %d: asked for with If-None-Match %q, want %q", i, got, want)
			}
		case <-time.After(waitLimit):
			t.Fatalf("crawl %d never comes", i)
		}
	}
	if code := k.end(); code != waggle.ExitOK { // before the dispatcher stops, which takes its last report
		t.Errorf("exit code %d:\n%s", code, k.err.text())
	}
}

// pages are the URLs of the records that a collector kept.
func pages(t *testing.T, name string) map[string]bool {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	found := map[string]bool{}
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		var page web.Page
		if err := json.Unmarshal(scanner.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		found[page.URL] = true
	}
	return found
}

func TestCollect_NoDispatcher(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	plain, _ := served(t)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"refused":      {[]string{"--server", "127.0.0.1:1"}, "nobody listens at 127.0.0.1:1; is `waggle serve` running there\\?"},
		"not gRPC":     {[]string{"--server", web.Listener.Addr().String()}, "does not speak gRPC in plain text; if it serves TLS, add --tls"},
		"no TLS there": {[]string{"--server", plain["WAGGLE_SERVER"], "--tls"}, "no TLS with 127.0.0.1:.*; does it serve TLS, under this name"},
		"silent":       {[]string{"--server", silent(t)}, "no dispatcher has answered yet at 127.0.0.1:.*; is `waggle serve` running there, and its store\\?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := start(t, nil, append([]string{"collect", "--status", "10ms"}, test.args...)...)
			k.err.line(t, test.want)
			if code := k.end(); code != waggle.ExitOK {
				t.Errorf("exit code %d:\n%s", code, k.err.text())
			}
		})
	}
}

// TestCollect_Replaced stops the collector whose id another process has taken.
func TestCollect_Replaced(t *testing.T) {
	t.Parallel()
	env, _ := served(t)
	first := start(t, env, "collect", "--id", "twin", "--status", "0", "--wait", "1s", "--log-level", "error")
	limit := time.Now().Add(waitLimit)
	for !strings.Contains(command(t, env, "collector", "list").out, "ACTIVE") {
		if time.Now().After(limit) {
			t.Fatal("the first one is never heard of")
		}
	}
	second := start(t, env, "collect", "--id", "twin", "--status", "0", "--log-level", "error")
	if code := first.wait(); code != waggle.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	first.err.line(t, "give each its own with --id")
	if code := second.end(); code != waggle.ExitOK {
		t.Errorf("the newer one: exit code %d:\n%s", code, second.err.text())
	}
}

func TestCollect_Out(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, command(t, nil, "collect", "--out", file), waggle.ExitFailed, "--out", "not a directory")
}

// TestCollect_Help wants every flag under one title, once.
func TestCollect_Help(t *testing.T) {
	t.Parallel()
	got := command(t, nil, "collect", "--help")
	for _, part := range []string{"\nTasks:\n", "\nFetching pages:\n", "\nFinding links (", "\nKeeping pages:\n", "\nSeeing it run:\n", "\nOther flags:\n"} {
		if !strings.Contains(got.out, part) {
			t.Errorf("lacks %q:\n%s", part, got.out)
		}
	}
	_, flags, _ := strings.Cut(got.out, "\nTasks:\n")
	for _, flag := range []string{
		"--proxy", "--max-depth", "--max-redirects", "--max-ratio", "--max-listed", "--max-crawl-delay", "--follow-nofollow",
		"--max-path-repeats", "--max-path-segments", "--max-url-bytes", "--user-agent", "--robots-agent", "--contact", "--status", "--help",
	} {
		if n := strings.Count(flags, " "+flag+" "); n != 1 {
			t.Errorf("tells of %s %d times", flag, n)
		}
	}
	if strings.Contains(got.out, "--until-eof") {
		t.Error("tells of a hidden flag")
	}
}
