package web_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

func TestHandler_Traps(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("x", 200)
	deep := strings.Repeat("/d", 3) + "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27"
	kept := []string{
		"/a/a/a", "/a/b/a/b/a/b/", "/a/b/c/a/b/d/a/b/e/a/b/f", "/x/a/a/a/b/a/a/a", "/?q=/a/a/a/a/a", "//a//a//a", deep, long,
		"/1/2/3/4/5/6/7/8/9/1/2/3/4/5/6/7/8/9/1/2/3/4/5/6/7/8/9", // periods over eight are not looked for
		"/f?c=1&c=2&c=3&c=4&c=5", "/f?a=1&b&a=1&b&a=1&b", "/f?" + strings.Repeat("x=1&", 3), "/x////y", "/p?" + parameters(30),
	}
	trapped := []string{
		"/a/a/a/a", "/x/a/a/a/a/y", "/a/b/a/b/a/b/a/b", "/x/a/b/c/a/b/c/a/b/c/a/b/c/y", "//a//a//a//a", deep + "/28",
		"/%61/%61/%61/%61", "/x/////y", "/f?a=1&a=1&b=2&a=1&a=1", "/?lang&lang&lang&lang", "/p?" + parameters(31),
		deep[:len(deep)-3] + "?a=1&b=2&a=3&a=4", strings.Repeat("/e/", 17),
	}
	s := newSite(t)
	var html strings.Builder
	for _, path := range slices.Concat(kept, trapped) {
		fmt.Fprintf(&html, `<a href="%s%s">x</a>`, s.URL, path)
	}
	s.page("/{$}", map[string]string{"Content-Type": "text/html"}, 200, html.String())
	core, logs := observer.New(zap.InfoLevel)
	done, err := handle(t, newHandler(t, web.Config{Logger: zap.New(core)}), &collector.Task{URL: s.URL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, found := range discovered(done) {
		paths = append(paths, strings.TrimPrefix(found, s.URL))
	}
	if !slices.Equal(paths, kept) {
		t.Errorf("kept %q", paths)
	}
	if got := logs.FilterField(zap.Int("links", len(trapped))).Len(); got != 1 {
		t.Errorf("logged %+v", logs.All())
	}
	open := newHandler(t, web.Config{MaxPathRepeats: -1, MaxPathSegments: -1})
	if done, err := handle(t, open, &collector.Task{URL: s.URL + "/"}); err != nil || len(done.Discovered) != len(kept)+len(trapped) {
		t.Errorf("without limits %q, %v", discovered(done), err)
	}
	short := newHandler(t, web.Config{MaxURLBytes: len(s.URL) + 100})
	if done, err := handle(t, short, &collector.Task{URL: s.URL + "/"}); err != nil || slices.Contains(discovered(done), s.URL+long) {
		t.Errorf("short URLs %q, %v", discovered(done), err)
	}
}

// parameters are those of a query, all with one name.
func parameters(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint("p=", i))
	}
	return strings.Join(all, "&")
}

// TestHandler_MaxDepth walks a calendar without end.
func TestHandler_MaxDepth(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.mux.HandleFunc("/calendar", func(w http.ResponseWriter, r *http.Request) {
		var month int
		_, _ = fmt.Sscan(r.URL.Query().Get("month"), &month)
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, fmt.Sprintf(`<a href="?month=%d">next</a><a href="?month=%d">previous</a>`, month+1, month-1))
	})
	h := newHandler(t, web.Config{MaxDepth: 5})
	depths := map[string]int{s.URL + "/calendar": 0}
	for queue := []string{s.URL + "/calendar"}; len(queue) > 0; queue = queue[1:] {
		depth := depths[queue[0]]
		done, err := handle(t, h, &collector.Task{URL: queue[0], Depth: depth})
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range discovered(done) {
			if _, known := depths[found]; !known {
				depths[found] = depth + 1
				queue = append(queue, found)
			}
		}
	}
	if len(depths) != 12 { // the seed, five months either way, and month 0 under its own name
		t.Errorf("%d pages: %v", len(depths), depths)
	}
	s.page("/moved", map[string]string{"Location": "http://elsewhere.example/"}, 301, "")
	done, err := handle(t, h, &collector.Task{URL: s.URL + "/moved", Depth: 9})
	if err != nil || len(done.Discovered) != 1 {
		t.Errorf("a redirect at depth 9: %+v, %v", done, err)
	}
}
