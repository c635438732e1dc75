package web_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// TestHandler_Kind holds what a page is read as: by the task's kind, then by its Content-Type, then by its root element.
func TestHandler_Kind(t *testing.T) {
	t.Parallel()
	const page, list = `<a href="/page">x</a>`, "/1\n/2"
	const urlset = `<urlset><url><loc>/in-set</loc></url></urlset>`
	const index = `<sitemapindex><sitemap><loc>/in-index</loc></sitemap></sitemapindex>`
	const rss = `<rss><channel><item><link>/in-rss</link></item></channel></rss>`
	for name, test := range map[string]struct {
		path, contentType, kind, body string
		want                          []string
		wantKind                      string
	}{
		"HTML":                   {contentType: "text/html", body: page, want: []string{"/page"}},
		"XHTML":                  {contentType: "application/xhtml+xml", body: page, want: []string{"/page"}},
		"XHTML as XML":           {contentType: "text/xml", body: `<?xml version="1.0"?><html>` + page, want: []string{"/page"}},
		"RSS":                    {contentType: "application/rss+xml; charset=utf-8", body: rss, want: []string{"/in-rss"}},
		"RSS as XML":             {contentType: "text/xml", body: rss, want: []string{"/in-rss"}},
		"RSS as text":            {contentType: "text/plain", body: rss, want: []string{"/in-rss"}}, // the type that servers give to what they do not know
		"RSS as text, by kind":   {contentType: "text/plain", kind: extract.KindFeed, body: rss, want: []string{"/in-rss"}},
		"JSON feed":              {contentType: "application/feed+json", body: `{"items":[{"url":"/in-json"}]}`, want: []string{"/in-json"}},
		"JSON":                   {contentType: "application/json", body: `{"items":[{"url":"/in-json"}]}`},
		"JSON, by kind":          {contentType: "application/json", kind: extract.KindFeed, body: `{"items":[{"url":"/in-json"}]}`, want: []string{"/in-json"}},
		"sitemap":                {contentType: "application/xml", body: urlset, want: []string{"/in-set"}},
		"sitemap index":          {contentType: "application/xml", body: index, want: []string{"/in-index"}, wantKind: extract.KindSitemap},
		"sitemap as HTML":        {contentType: "text/html", kind: extract.KindSitemap, body: urlset, want: []string{"/in-set"}},
		"feed as a sitemap":      {contentType: "text/xml", kind: extract.KindSitemap, body: rss, want: []string{"/in-rss"}},
		"text as a sitemap":      {contentType: "text/plain", kind: extract.KindSitemap, body: list, want: []string{"/1", "/2"}},
		"gzipped sitemap":        {path: "/s.xml.gz", contentType: "application/x-gzip", body: string(zipped(t, []byte(urlset))), want: []string{"/in-set"}},
		"gzipped, by kind":       {contentType: "application/octet-stream", kind: extract.KindSitemap, body: string(zipped(t, []byte(urlset))), want: []string{"/in-set"}},
		"gzipped something":      {path: "/s.tar.gz", contentType: "application/gzip", body: string(zipped(t, []byte(urlset)))},
		"list":                   {contentType: "text/plain", kind: extract.KindList, body: list, want: []string{"/1", "/2"}},
		"text":                   {contentType: "text/plain", body: list},
		"other XML":              {contentType: "application/xml", body: `<catalog><loc>/x</loc></catalog>`},
		"a kind of one's own":    {contentType: "text/html", kind: "article", body: page, want: []string{"/page"}},
		"an empty feed, by kind": {contentType: "text/xml", kind: extract.KindFeed, body: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			path := test.path
			if path == "" {
				path = "/listing"
			}
			s.page(path, map[string]string{"Content-Type": test.contentType}, 200, test.body)
			done, err := handle(t, newHandler(t, web.Config{}), &collector.Task{URL: s.URL + path, Kind: test.kind})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, found := range done.Discovered {
				got = append(got, strings.TrimPrefix(found.URL, s.URL))
				if found.Kind != test.wantKind {
					t.Errorf("%s has kind %q, want %q", found.URL, found.Kind, test.wantKind)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("discovered %q, want %q", got, test.want)
			}
		})
	}
}

// TestHandler_Unreadable holds that a listing that cannot be read is a failure, and is not stored as if it were one.
func TestHandler_Unreadable(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sink := &memorySink{}
	h := newHandler(t, web.Config{Sink: sink, MaxBytes: 1 << 20})
	for path, test := range map[string]struct {
		contentType, kind, body string
		want                    collector.Reason
	}{
		"/feed":    {"application/rss+xml", "", `<rss><channel><item><title`, collector.ReasonParse},
		"/as-feed": {"text/html", extract.KindFeed, `<a href="x">`, collector.ReasonParse},
		"/sitemap": {"text/html", extract.KindSitemap, `<a href="x">`, collector.ReasonParse},
		"/gzip":    {"text/xml", extract.KindSitemap, string(zipped(t, []byte(`<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`))[:40]), collector.ReasonParse},
		"/bomb":    {"text/xml", extract.KindSitemap, string(zipped(t, make([]byte, 2<<20))), collector.ReasonTooLarge},
	} {
		s.page(path, map[string]string{"Content-Type": test.contentType}, 200, test.body)
		_, err := handle(t, h, &collector.Task{URL: s.URL + path, Kind: test.kind})
		if got := failedOf(t, err); got.Reason != test.want || got.HTTPStatus != 200 || got.Permanent != (test.want == collector.ReasonTooLarge) {
			t.Errorf("%s: %+v, want %s", path, got, test.want)
		}
	}
	if len(sink.pages) != 0 {
		t.Errorf("stored %+v", sink.pages)
	}
}
