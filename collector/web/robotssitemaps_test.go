package web_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// TestHandler_Sitemaps holds who reports the sitemaps that robots.txt names.
func TestHandler_Sitemaps(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/", map[string]string{"Content-Type": "text/html"}, 200, `<a href="/a">a</a> <a href="/linked.xml">a sitemap</a>`)
	s.page("/one.xml", map[string]string{"Content-Type": "text/xml"}, 200, `<urlset><url><loc>/b</loc></url></urlset>`)
	s.page("/moved", map[string]string{"Location": "http://localhost:1/"}, 302, "")
	lines := []string{
		"User-agent: other", "Disallow: /", "Sitemap: " + s.URL + "/one.xml", "sitemap:" + s.URL + "/two.xml.gz # the archive",
		"Sitemap: " + s.URL + "/one.xml", "Sitemap: /relative.xml", "Sitemap: ftp://example.com/x", "Sitemap: http://[::1/", "Sitemap:",
		"Sitemap: http://elsewhere.example/map.xml", "Sitemap: " + s.URL + "/linked.xml", "Sitemap: " + s.URL + "/" + strings.Repeat("x", 3000),
	}
	s.page("/robots.txt", nil, 200, strings.Join(lines, "\n"))
	wanted, unwanted := newHandler(t, web.Config{Sitemaps: true}), newHandler(t, web.Config{})
	all := []string{s.URL + "/one.xml", s.URL + "/two.xml.gz", s.URL + "/relative.xml", "http://elsewhere.example/map.xml"}
	for name, test := range map[string]struct {
		handler *web.Handler
		task    collector.Task
		pages   []string
		maps    []string
	}{
		"seed":        {wanted, collector.Task{URL: s.URL + "/"}, []string{s.URL + "/a"}, append(all[:4:4], s.URL+"/linked.xml")},
		"not wanted":  {unwanted, collector.Task{URL: s.URL + "/"}, []string{s.URL + "/a", s.URL + "/linked.xml"}, nil},
		"deeper":      {wanted, collector.Task{URL: s.URL + "/", Depth: 1}, []string{s.URL + "/a", s.URL + "/linked.xml"}, nil},
		"a sitemap":   {wanted, collector.Task{URL: s.URL + "/one.xml"}, []string{s.URL + "/b"}, append(all[1:4:4], s.URL+"/linked.xml")},
		"moved":       {wanted, collector.Task{URL: s.URL + "/moved"}, []string{"http://localhost:1/"}, nil},
		"moved where": {wanted, collector.Task{URL: s.URL + "/moved", Kind: extract.KindFeed}, []string{"http://localhost:1/"}, nil},
	} {
		done, err := handle(t, test.handler, &test.task)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var pages, maps []string
		for _, item := range done.Discovered {
			if item.Kind == extract.KindSitemap {
				maps = append(maps, item.URL)
			} else {
				pages = append(pages, item.URL)
			}
		}
		if !slices.Equal(pages, test.pages) || !slices.Equal(maps, test.maps) {
			t.Errorf("%s: pages %q, want %q; sitemaps %q, want %q", name, pages, test.pages, maps, test.maps)
		}
	}
}

// TestHandler_ManySitemaps holds that a robots.txt does not name sitemaps without end.
func TestHandler_ManySitemaps(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.page("/", nil, 200, "")
	var robots strings.Builder
	for i := range 5000 {
		_, _ = fmt.Fprintf(&robots, "Sitemap: %s/%d.xml\n", s.URL, i)
	}
	s.page("/robots.txt", nil, 200, robots.String())
	done, err := handle(t, newHandler(t, web.Config{Sitemaps: true}), &collector.Task{URL: s.URL + "/"})
	if err != nil || len(done.Discovered) != 100 || done.Discovered[99].URL != s.URL+"/99.xml" {
		t.Errorf("%d sitemaps, %v", len(done.Discovered), err)
	}
}
