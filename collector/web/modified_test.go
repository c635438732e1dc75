package web_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// TestHandler_Modified holds what is reported of when listed pages changed.
func TestHandler_Modified(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		t.Helper()
		if text == "" {
			return time.Time{}
		}
		moment, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return moment
	}
	for name, test := range map[string]struct {
		kind, body string
		want       map[string]string // by path
	}{
		"sitemap": {extract.KindSitemap, `<urlset><url><loc>/none</loc></url><url><loc>/time</loc><lastmod>2021-03-02T23:30:01+02:00</lastmod></url>
			<url><loc>/day</loc><lastmod>2021-03-02</lastmod></url><url><loc>/month</loc><lastmod>2020-12</lastmod></url>
			<url><loc>/year</loc><lastmod>2019</lastmod></url><url><loc>/wrong</loc><lastmod>soon</lastmod></url></urlset>`, map[string]string{
			"/none": "", "/time": "2021-03-02T21:30:01Z", "/day": "2021-03-03T00:00:00Z", "/month": "2021-01-01T00:00:00Z",
			"/year": "2020-01-01T00:00:00Z", "/wrong": "",
		}},
		"index": {extract.KindSitemap, `<sitemapindex><sitemap><loc>/s.xml</loc><lastmod>2020-01-01T00:00:00Z</lastmod></sitemap></sitemapindex>`, map[string]string{
			"/s.xml": "2020-01-01T00:00:00Z",
		}},
		"RSS": {extract.KindFeed, `<rss><channel><item><link>/1</link><pubDate>Tue, 02 Mar 2021 23:30:01 +0200</pubDate></item><item><link>/2</link></item></channel></rss>`, map[string]string{
			"/1": "2021-03-02T21:30:01Z", "/2": "",
		}},
		"Atom": {extract.KindFeed, `<feed xmlns="http://www.w3.org/2005/Atom"><entry><link href="/1"/><published>2020-01-01T00:00:00Z</published>
			<updated>2021-01-01T00:00:00Z</updated></entry><entry><link href="/2"/><published>2020-01-01T00:00:00Z</published></entry></feed>`, map[string]string{
			"/1": "2021-01-01T00:00:00Z", "/2": "2020-01-01T00:00:00Z",
		}},
		"JSON": {extract.KindFeed, `{"version":"https://jsonfeed.org/version/1.1","items":[{"id":"1","url":"/1","date_published":"2020-01-01T00:00:00Z",
			"date_modified":"2021-01-01T00:00:00Z"},{"id":"2","url":"/2"}]}`, map[string]string{"/1": "2021-01-01T00:00:00Z", "/2": ""}},
		"list": {extract.KindList, "/1\n", map[string]string{"/1": ""}},
	} {
		s := newSite(t)
		s.page("/", nil, 200, test.body)
		done, err := handle(t, newHandler(t, web.Config{}), &collector.Task{URL: s.URL + "/", Kind: test.kind})
		if err != nil || len(done.Discovered) != len(test.want) {
			t.Errorf("%s: %+v, %v", name, done.Discovered, err)
		}
		for _, item := range done.Discovered {
			if want := at(test.want[item.URL[len(s.URL):]]); !item.Modified.Equal(want) {
				t.Errorf("%s: %s changed %s, want %s", name, item.URL, item.Modified, want)
			}
		}
	}
}
