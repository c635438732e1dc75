package web_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/web"
)

const (
	rssFeed = `<?xml version="1.0" encoding="utf-8"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>News</title><link>http://a/home</link>
<atom:link rel="self" href="http://a/feed.xml"/><atom:link rel="next" href="http://a/feed.xml?page=2"/>
<item><title>One &amp; only</title><link> http://a/1#comments </link><guid>http://a/guid1</guid><enclosure url="http://a/1.mp3" length="1" type="audio/mpeg"/></item>
<item><link>2</link></item>
<item><guid isPermaLink="true">http://a/3</guid></item>
<item><guid isPermaLink="false">tag:a,2020:4</guid></item>
<item><link>mailto:x@a</link></item>
<item><link>http://a/1</link></item>
</channel></rss>`

	atomFeed = `<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://a/base/"><id>urn:x</id>
<link rel="self" href="http://a/atom"/><link rel="prev-archive" href="http://a/archive/1"/>
<entry><id>urn:1</id><link rel="alternate" href="http://a/1"/><link rel="edit" href="http://a/edit"/><link rel="enclosure" href="http://a/1.mp3"/></entry>
<entry><id>urn:2</id><link href="2"/></entry></feed>`

	jsonFeed = `{"version":"https://jsonfeed.org/version/1.1","title":"J","next_url":"http://a/json?2","items":[
{"id":"1","url":"http://a/1","attachments":[{"url":"http://a/1.mp3","mime_type":"audio/mpeg"}]},{"id":"http://a/2"}]}`
)

// TestHandler_Relations holds how each kind of document leads to what it names.
func TestHandler_Relations(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	serve := func(path, contentType, body string) {
		s.page(path, map[string]string{"Content-Type": contentType}, 200, strings.ReplaceAll(body, "http://a/", s.URL+"/"))
	}
	serve("/page", "text/html", `<a href="/1">1</a><link rel=alternate type=application/rss+xml href="/rss">`)
	serve("/rss", "application/rss+xml", rssFeed)
	serve("/atom", "application/atom+xml", atomFeed)
	serve("/json", "application/feed+json", jsonFeed)
	serve("/sitemap.xml", "text/xml", `<urlset><url><loc>/1</loc></url></urlset>`)
	serve("/index.xml", "text/xml", `<sitemapindex><sitemap><loc>/sitemap.xml</loc></sitemap></sitemapindex>`)
	s.page("/moved", map[string]string{"Location": "http://localhost:1/x"}, 301, "")
	s.page("/robots.txt", nil, 200, "Sitemap: "+s.URL+"/map.xml")
	link, item, sitemap := collector.RelationLink, collector.RelationFeedItem, collector.RelationSitemap
	named := map[string]collector.Relation{"/map.xml": sitemap}
	for path, want := range map[string]map[string]collector.Relation{
		"/page":        {"/1": link, "/rss": link},
		"/rss":         {"/1": item, "/2": item, "/3": item, "/1.mp3": link, "/feed.xml?page=2": link},
		"/atom":        {"/1": item, "/base/2": item, "/1.mp3": link, "/archive/1": link},
		"/json":        {"/1": item, "/2": item, "/1.mp3": link, "/json?2": link},
		"/sitemap.xml": {"/1": sitemap},
		"/index.xml":   {"/sitemap.xml": sitemap},
		"/moved":       {"http://localhost:1/x": collector.RelationRedirect},
	} {
		done, err := handle(t, newHandler(t, web.Config{Sitemaps: true, Resources: true}), &collector.Task{URL: s.URL + path})
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		got := make(map[string]collector.Relation)
		for _, d := range done.Discovered {
			got[strings.TrimPrefix(d.URL, s.URL)] = d.Relation
		}
		if path != "/moved" {
			maps.Copy(want, named)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s leads to %v, want %v", path, got, want)
		}
	}
}
