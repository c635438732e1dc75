package collect_test

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

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"
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
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s", "--max-in-flight", "4")
	clitest.Command(t, env, "source", "create", "site", "--seed", site.URL+"/", "--follow")
	dir := t.TempDir()
	k := clitest.Start(t, env, "collect", "--id", "paris-1", "--out", dir, "--contact", "me@example.com", "--allow-private", "--status", "10ms")
	k.Err.Line(t, `"msg":"collector takes tasks","id":"paris-1","servers":\["127\.0\.0\.1:\d+"\],"pools":\["default"\],"slots":8`)
	k.Err.Line(t, `"msg":"progress","pages":3,.*"failed":1,"lost":0,"answers":{"200":3,"404":1},"reasons":{"NOT_FOUND":1},"running":0,"stuck":0,"slots":8,"lag_seconds":`)
	if got := clitest.Command(t, env, "collector", "list"); !strings.Contains(got.Out, "paris-1    ACTIVE") {
		t.Errorf("printed\n%s", got.Out)
	}
	if code := k.End(); code != cli.ExitOK {
		t.Errorf("exit code %d after a stop:\n%s", code, k.Err.Text())
	}
	k.Err.Line(t, `"msg":"collector stops","running":0`)
	k.Err.Line(t, `"msg":"collector has ended","pages":3,.*"after":`)
	for line := range strings.Lines(k.Err.Text()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("among lines of JSON: %q", line)
		}
	}
	if k.Out.Text() != "" {
		t.Errorf("on standard output: %q", k.Out.Text())
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
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "queue", "rule", "set", "*", "--min-delay", "0s")
	clitest.Command(t, env, "source", "create", "feed", "--seed", site.URL+"/feed", "--every", "1s")
	k := clitest.Start(t, env, "collect", "--allow-private")
	k.Err.Line(t, `"level":"info".*"msg":"no page is kept: neither --out, --warc, --send-command nor --send-url is given"`)
	for i, want := range []string{"", `"1"`, `"1"`} {
		select {
		case got := <-conditions:
			if got != want {
				t.Errorf("crawl %d: asked for with If-None-Match %q, want %q", i, got, want)
			}
		case <-time.After(clitest.WaitLimit):
			t.Fatalf("crawl %d never comes", i)
		}
	}
	if code := k.End(); code != cli.ExitOK { // before the dispatcher stops, which takes its last report
		t.Errorf("exit code %d:\n%s", code, k.Err.Text())
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
	plain, _ := clitest.Served(t)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"refused":      {[]string{"--server", "127.0.0.1:1"}, "nobody listens at 127.0.0.1:1; is `waggle serve` running there\\?"},
		"not gRPC":     {[]string{"--server", web.Listener.Addr().String()}, "does not speak gRPC in plain text; if it serves TLS, add --tls"},
		"no TLS there": {[]string{"--server", plain["WAGGLE_SERVER"], "--tls"}, "no TLS with 127.0.0.1:.*; does it serve TLS, under this name"},
		"silent":       {[]string{"--server", clitest.Silent(t)}, "no dispatcher has answered yet at 127.0.0.1:.*; is `waggle serve` running there, and its store\\?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := clitest.Start(t, nil, append([]string{"collect", "--status", "10ms"}, test.args...)...)
			k.Err.Line(t, test.want)
			if code := k.End(); code != cli.ExitOK {
				t.Errorf("exit code %d:\n%s", code, k.Err.Text())
			}
		})
	}
}

// TestCollect_Replaced stops the collector whose id another process has taken.
func TestCollect_Replaced(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	first := clitest.Start(t, env, "collect", "--id", "twin", "--status", "0", "--wait", "1s", "--log-level", "error")
	limit := time.Now().Add(clitest.WaitLimit)
	for !strings.Contains(clitest.Command(t, env, "collector", "list").Out, "ACTIVE") {
		if time.Now().After(limit) {
			t.Fatal("the first one is never heard of")
		}
	}
	second := clitest.Start(t, env, "collect", "--id", "twin", "--status", "0", "--log-level", "error")
	if code := first.Wait(); code != cli.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	first.Err.Line(t, "give each its own with --id")
	if code := second.End(); code != cli.ExitOK {
		t.Errorf("the newer one: exit code %d:\n%s", code, second.Err.Text())
	}
}

func TestCollect_Out(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.WantFailure(t, clitest.Command(t, nil, "collect", "--out", file), cli.ExitFailed, "--out", "not a directory")
}

// TestCollect_Help wants every flag under one title, once.
func TestCollect_Help(t *testing.T) {
	t.Parallel()
	got := clitest.Command(t, nil, "collect", "--help")
	for _, part := range []string{"\nTasks:\n", "\nFetching pages:\n", "\nFinding links (", "\nKeeping pages:\n", "\nSeeing it run:\n", "\nOther flags:\n"} {
		if !strings.Contains(got.Out, part) {
			t.Errorf("lacks %q:\n%s", part, got.Out)
		}
	}
	_, flags, _ := strings.Cut(got.Out, "\nTasks:\n")
	for _, flag := range []string{
		"--proxy", "--max-depth", "--max-redirects", "--max-ratio", "--max-listed", "--max-crawl-delay", "--follow-nofollow",
		"--max-path-repeats", "--max-path-segments", "--max-url-bytes", "--user-agent", "--robots-agent", "--contact", "--status", "--help",
	} {
		if n := strings.Count(flags, " "+flag+" "); n != 1 {
			t.Errorf("tells of %s %d times", flag, n)
		}
	}
	if strings.Contains(got.Out, "--until-eof") {
		t.Error("tells of a hidden flag")
	}
}
