package extract_test

import (
	"context"
	"fmt"
	"net/url"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// The links of a page are absolute, without fragments, each once.
func ExampleFind() {
	base := &url.URL{Scheme: "https", Host: "example.com", Path: "/news/"}
	page := []byte(`
		<link rel="next" href="?page=2">
		<a href="1.html#comments">One</a> <a href="1.html">again</a>
		<a href="tel:+15551234">Call</a>
		<img src="logo.png">`)
	found, err := extract.Find(context.Background(), extract.Document{URL: base, ContentType: "text/html", Body: page}, extract.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, link := range found.Links {
		fmt.Println(link.URL)
	}
	fmt.Println("skipped:", found.Skipped)
	// Output:
	// https://example.com/news/?page=2
	// https://example.com/news/1.html
	// skipped: 1
}

// The items of a feed, with the time of their last change. RSS and JSON feeds are read alike.
func ExampleFind_feed() {
	base := &url.URL{Scheme: "https", Host: "example.com", Path: "/feed"}
	feed := []byte(`<feed xmlns="http://www.w3.org/2005/Atom">
		<link href="/" rel="alternate"/>
		<entry><link href="/news/1"/><updated>2026-03-01T12:00:00Z</updated></entry>
		<entry><link href="/news/2"/></entry>
	</feed>`)
	found, err := extract.Find(context.Background(), extract.Document{URL: base, Kind: extract.KindFeed, Body: feed}, extract.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, link := range found.Links {
		fmt.Println(link.URL, link.ListedBy, link.Modified.IsZero())
	}
	// Output:
	// https://example.com/news/1 feed false
	// https://example.com/news/2 feed true
}

// The pages of a sitemap, the last modified first. The links of a sitemap index are of kind sitemap themselves.
func ExampleFind_sitemap() {
	base := &url.URL{Scheme: "https", Host: "example.com", Path: "/sitemap.xml"}
	for _, body := range []string{
		`<urlset><url><loc>/old</loc><lastmod>2025-01-01</lastmod></url><url><loc>/new</loc><lastmod>2026-03-01</lastmod></url></urlset>`,
		`<sitemapindex><sitemap><loc>/sitemap-1.xml</loc></sitemap></sitemapindex>`,
	} {
		doc := extract.Document{URL: base, Kind: extract.KindSitemap, Body: []byte(body)}
		found, err := extract.Find(context.Background(), doc, extract.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, link := range found.Links {
			fmt.Printf("%s kind: %q\n", link.URL, found.Kind)
		}
	}
	// Output:
	// https://example.com/new kind: ""
	// https://example.com/old kind: ""
	// https://example.com/sitemap-1.xml kind: "sitemap"
}

// Options limit what is found, and leave out links that look like a trap, as a calendar without end has them.
func ExampleOptions() {
	base := &url.URL{Scheme: "https", Host: "example.com", Path: "/"}
	page := []byte(`<a href="/a">1</a> <a href="/next/next/next/next">2</a> <a rel="nofollow" href="/ad">3</a> <a href="/b">4</a> <a href="/c">5</a>`)
	found, err := extract.Find(context.Background(),
		extract.Document{URL: base, ContentType: "text/html", Body: page},
		extract.Options{MaxLinks: 2, MaxPathRepeats: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, link := range found.Links {
		fmt.Println(link.URL)
	}
	fmt.Println("skipped:", found.Skipped, "trapped:", found.Trapped, "surplus:", found.Surplus)
	// Output:
	// https://example.com/a
	// https://example.com/b
	// skipped: 3 trapped: 1 surplus: 1
}

// References are read as browsers read them.
func ExampleParseReference() {
	base := &url.URL{Scheme: "https", Host: "example.com", Path: "/news/"}
	for _, ref := range []string{" a b.html ", `..\shop`, "?q=100%"} {
		u, err := extract.ParseReference(ref, base.Scheme)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(base.ResolveReference(u))
	}
	// Output:
	// https://example.com/news/a%20b.html
	// https://example.com/shop
	// https://example.com/news/?q=100%25
}
