package extract_test

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

const sitemapHead = `<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1" xmlns:xhtml="http://www.w3.org/1999/xhtml">`

func TestFind_sitemap(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body    string
		opts    extract.Options
		want    []string
		skipped int
		kind    string
	}{
		"urlset": {
			body: sitemapHead + `<!-- x --><url><loc>
				http://a/1?x=1&amp;y=2 </loc><priority>0.5</priority></url><url><loc><![CDATA[http://a/2]]></loc></url>
				<url><loc>mailto:x</loc></url><url><lastmod>2020</lastmod></url></urlset>`,
			want: []string{"http://a/1?x=1&y=2", "http://a/2"}, skipped: 1,
		},
		"lastmod": {
			body: sitemapHead + `<url><loc>/none</loc></url><url><loc>/year</loc><lastmod>2019</lastmod></url>
				<url><loc>/month</loc><lastmod>2021-03</lastmod></url><url><loc>/day</loc><lastmod>2021-03-02</lastmod></url>
				<url><loc>/zone</loc><lastmod> 2021-03-02T23:30+00:00 </lastmod></url><url><loc>/broken</loc><lastmod>yesterday</lastmod></url>
				<url><loc>/second</loc><lastmod>2021-03-02T23:30:01.5Z</lastmod></url></urlset>`,
			want: []string{"http://a/month", "http://a/day", "http://a/second", "http://a/zone", "http://a/year", "http://a/none", "http://a/broken"},
		},
		"newest within the limit": {
			body: sitemapHead + `<url><loc>/1</loc><lastmod>2019</lastmod></url><url><loc>/2</loc><lastmod>2020</lastmod></url></urlset>`,
			opts: extract.Options{MaxListed: 1}, want: []string{"http://a/2"}, skipped: 1,
		},
		"newest of many within the limit": {
			body: sitemapHead + `<url><loc>/1</loc><lastmod>2019</lastmod></url><url><loc>/2</loc></url><url><loc>/3</loc><lastmod>2019</lastmod></url>
				<url><loc>/4</loc><lastmod>2019</lastmod></url><url><loc>/2</loc><lastmod>2021</lastmod></url><url><loc>/1</loc><lastmod>2020</lastmod></url></urlset>`,
			opts: extract.Options{MaxListed: 2}, want: []string{"http://a/2", "http://a/1"}, skipped: 3,
		},
		"images and languages": {
			body: sitemapHead + `<url><loc>/1</loc><image:image><image:loc>/1.png</image:loc></image:image>
				<xhtml:link rel="alternate" hreflang="de" href="/de"/></url></urlset>`,
			want: []string{"http://a/1", "http://a/de"},
		},
		"index": {
			body: `<sitemapindex><sitemap><loc>http://a/s1.xml.gz</loc><lastmod>2020-01-01</lastmod></sitemap>
				<sitemap><loc>http://a/s2.xml</loc><lastmod>2020-01-02</lastmod></sitemap></sitemapindex>`,
			want: []string{"http://a/s2.xml", "http://a/s1.xml.gz"}, kind: extract.KindSitemap,
		},
		"cut": {
			body: sitemapHead + `<url><loc>http://a/1</loc></url><url><loc>http://a/2</loc`, want: []string{"http://a/1"},
		},
		"text":  {body: "http://a/1\nhttp://a/2\n", want: []string{"http://a/1", "http://a/2"}},
		"empty": {body: `<urlset/>`},
		"UTF-16 without a mark": {
			body: strings.TrimPrefix(utf16Text("<urlset><url><loc>/1</loc></url></urlset>"), "\xff\xfe"), want: []string{"http://a/1"},
		},
		"one page twice": {
			body: `<urlset><url><loc>/1</loc><lastmod>2019</lastmod></url><url><loc>/2</loc><lastmod>2020</lastmod></url><url><loc>/1</loc><lastmod>2021</lastmod></url></urlset>`,
			want: []string{"http://a/1", "http://a/2"},
		},
		"an index by its entries": {body: `<urlset><sitemap><loc>/1</loc></sitemap></urlset>`, want: []string{"http://a/1"}, kind: extract.KindSitemap},
		"a feed":                  {body: "\n" + atomFeed, want: []string{"http://a/1", "http://a/base/2", "http://a/archive/1"}},
		"capitals and prefixes":   {body: `<SM:URLSET><SM:Url><SM:LOC>/1</SM:LOC><image:loc>/no</image:loc></SM:Url></SM:URLSET>`, want: []string{"http://a/1"}},
		"an address in capitals":  {body: `<urlset><url><loc>HTTP://A/1</loc></url></urlset>`, want: []string{"http://a/1"}},
		"an empty address first":  {body: `<urlset><url><loc/><loc> </loc><loc>/1</loc></url></urlset>`, want: []string{"http://a/1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			urls, got, err := find(t, "http://a/sitemap.xml", extract.KindSitemap, "", test.body, test.opts)
			if err != nil || !slices.Equal(urls, test.want) || got.Skipped != test.skipped || got.Kind != test.kind {
				t.Errorf("got %+v, %v; want %q, %d skipped", got, err, test.want, test.skipped)
			}
		})
	}
	for name, body := range map[string]string{
		"a page":     "<!doctype html><html><a href=x>x</a></html>",
		"cut":        sitemapHead + `<url><loc>http://a/1`,
		"no element": "<!-- -->",
		"nested":     "<urlset>" + strings.Repeat("<url>", 1<<17),
		"tag":        "<urlset><url " + strings.Repeat(`a="" `, 1<<18) + "/>",
		"mismatched": "<urlset></url>",
	} {
		if _, got, err := find(t, "http://a/", extract.KindSitemap, "", body, extract.Options{}); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestFind_sitemapLimit holds that a sitemap's own limit counts what it leaves out.
func TestFind_sitemapLimit(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	body.WriteString("<urlset>")
	for i := range 50_010 {
		fmt.Fprintf(&body, "<url><loc>http://a/%d</loc></url>", i)
	}
	urls, got, err := find(t, "http://a/", extract.KindSitemap, "", body.String()+"</urlset>", extract.Options{})
	if err != nil || len(urls) != 50_000 || got.Skipped != 10 || got.Surplus != 10 {
		t.Errorf("%d URLs, %d skipped, %v", len(urls), got.Skipped, err)
	}
}

// TestFind_memory holds that what is kept of a document while it is read is bounded by its limit, not by its entries.
func TestFind_memory(t *testing.T) { //nolint:paralleltest // others' memory would count
	long, many := "http://a/"+strings.Repeat("x", 1900)+"/", 1<<13
	alternates := strings.Repeat(`<link href="%d"/>`, 64)
	for name, test := range map[string]struct {
		kind, begin, entry, end string
		perEntry                int
	}{
		"sitemap":    {extract.KindSitemap, "<urlset>", "<url><loc>%d</loc></url>", "</urlset>", 1},
		"alternates": {extract.KindSitemap, "<urlset>", "<url><loc>%d</loc>" + alternates + "</url>", "</urlset>", 65},
		"rising":     {extract.KindSitemap, "<urlset>", "<url><loc>%d</loc><lastmod>1%09[1]d</lastmod></url>", "</urlset>", 1},
		"RSS":        {extract.KindFeed, "<rss>", "<item><link>%d</link></item>", "</rss>", 1},
		"JSON":       {extract.KindFeed, `{"items":[`, `{"url":"%d"},`, "]}", 1},
		"long attributes": {
			extract.KindFeed, "<rss>" + strings.Repeat(`<link rel="next" href="/p" x="`+strings.Repeat("y", 1<<19)+`"/>`, 32),
			"<item><link>%d</link></item>", "</rss>", 1,
		},
		"bases": {
			extract.KindFeed, "<rss>" + strings.Repeat(`<content xml:base="`+strings.Repeat("y", 1900)+`/">`, 200),
			"<item><link>%d</link></item>", "</rss>", 1,
		},
		"a long string": {extract.KindFeed, `{"items":[{"content_html":"` + strings.Repeat("<p>", 8<<20) + `"},`, `{"url":"%d"},`, "]}", 1},
		"list":          {extract.KindList, "", "/" + strings.Repeat("x", 1800) + "%d\n", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var body strings.Builder
			for n := 0; n < many; n += test.perEntry {
				numbers := []any{}
				for i := range test.perEntry {
					numbers = append(numbers, n+i)
				}
				fmt.Fprintf(&body, test.entry, numbers...)
			}
			before := heldBytes()
			var held uint64
			doc := extract.Document{URL: parse(t, long), Kind: test.kind, Open: func() (io.Reader, error) {
				return io.MultiReader(strings.NewReader(test.begin), strings.NewReader(body.String()), readerFunc(func([]byte) (int, error) {
					held = heldBytes() - before
					runtime.KeepAlive(&body)
					return 0, io.EOF
				}), strings.NewReader(test.end)), nil
			}}
			got, err := extract.Find(t.Context(), doc, extract.Options{MaxListed: 1000})
			if err != nil || len(got.Links) != 1000 || got.Surplus < many-1000 || held > 8<<20 {
				t.Errorf("%d links, %d surplus, %v; %d MiB held", len(got.Links), got.Surplus, err, held>>20)
			}
		})
	}
}

// heldBytes is how much memory is in use.
func heldBytes() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(into []byte) (int, error) { return f(into) }

func TestFind_list(t *testing.T) {
	t.Parallel()
	list := "\ufeffhttp://a/1\r\n\n# a comment\n  http://a/2  \nftp://a/3\rhttp://a/1\n" + strings.Repeat("x", 3000) + "\n/4"
	urls, got, err := find(t, "http://a/list.txt", extract.KindList, "", list, extract.Options{})
	if want := []string{"http://a/1", "http://a/2", "http://a/4"}; err != nil || !slices.Equal(urls, want) || got.Skipped != 2 {
		t.Errorf("got %+v, %v; want %q", got, err, want)
	}
}

// TestFind_noList holds that no line of something else is asked for as a path.
func TestFind_noList(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a sitemap without its begin": "loc>http://a/1</loc></url>\n<url><loc>http://a/2</loc></url>\n</urlset>",
		"compressed":                  "\x1f\x8b\x08\x00\x00\n\xff\x12\x00\nabc\x00\n",
		"prose":                       "This site has no sitemap.\nAsk http://a/contact for one.",
		"robots.txt":                  "User-agent: *\nDisallow: /x\nSitemap: http://a/s.xml",
		"one word":                    "moved",
		"JSON":                        "{\n\"urls\": [\n\"http://a/1\"\n]}",
	} {
		for _, kind := range []string{extract.KindSitemap, extract.KindList} {
			if urls, _, err := find(t, "http://a/s", kind, "", body, extract.Options{}); err == nil || len(urls) > 0 {
				t.Errorf("%s as %s: %q, %v", name, kind, urls, err)
			}
		}
	}
}
