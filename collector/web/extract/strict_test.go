package extract_test

import (
	"encoding/xml"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// strictSeeds are clean documents.
var strictSeeds = []string{
	rssFeed, atomFeed, jsonFeed, rdfFeed,
	`<?xml version="1.0"?><rss version="2.0"><channel><item><title>a &lt; b</title><link>http://a/1?x&amp;y</link><guid isPermaLink='false'>1</guid></item></channel></rss>`,
	"<rss><channel><!-- <item> --><item a='>'><link\n><![CDATA[http://a/<1>]]></link ></item><item><x/><link/><link>http://a/2</link></item></channel></rss>",
	sitemapHead + `<url><loc>http://a/1</loc><lastmod>2020-01-01</lastmod></url><url><priority>1</priority><loc>
		http://a/2 </loc></url></urlset>`,
	`<sitemapindex><sitemap><loc>http://a/s1.xml.gz</loc></sitemap></sitemapindex>`,
}

// strictPaths are where a reader that keeps to the rules of XML looks for the addresses of entries.
var strictPaths = []string{"rss/channel/item/link", "urlset/url/loc", "sitemapindex/sitemap/loc"}

// strictLinks are the absolute addresses of the entries of a clean RSS feed or sitemap; ok is false for anything else. What
// mends a mistake may read those differently that have what looks like one: names in capitals, prefixes, entries in others.
func strictLinks(body string) (links []string, ok bool) {
	if !strings.HasPrefix(body, "<") || strings.Count(body, "<?") > 1 || strings.Contains(body, "<!-->") || strings.Contains(body, "<!--->") ||
		strings.Contains(body, "&#") || strings.Contains(body, "\ufeff") {
		return nil, false
	}
	in := xml.NewDecoder(strings.NewReader(body))
	var path []string
	roots, text, taken, attributes := 0, "", false, 0
	for {
		token, err := in.Token()
		if err != nil {
			return links, errors.Is(err, io.EOF) && roots == 1
		}
		switch token := token.(type) {
		case xml.Directive:
			return nil, false
		case xml.CharData:
			text += string(token)
		case xml.StartElement:
			if len(path) == 0 {
				roots++
			}
			name := token.Name.Local
			path = append(path, name)
			text, attributes = "", len(token.Attr)
			expected := slices.ContainsFunc(strictPaths, func(p string) bool { return strings.HasPrefix(p+"/", strings.Join(path, "/")+"/") })
			isEntry := slices.Contains([]string{"item", "entry", "url", "sitemap"}, name)
			taken = taken && !isEntry
			if !expected && (len(path) == 1 || isEntry) || len(path) > strings.Count(sameRoot(path[0]), "/")+1 || strings.ToLower(name) != name ||
				token.Name.Space != "" && !strings.HasSuffix(token.Name.Space, "sitemap/0.9") ||
				slices.ContainsFunc(token.Attr, func(a xml.Attr) bool { return a.Name.Space == "xmlns" && strings.HasSuffix(a.Value, "sitemap/0.9") }) {
				return nil, false
			}
		case xml.EndElement:
			if link := strings.TrimSpace(text); slices.Contains(strictPaths, strings.Join(path, "/")) && link != "" && !taken && attributes == 0 {
				links, taken = append(links, link), true
			}
			path, text = path[:len(path)-1], ""
		}
	}
}

// sameRoot is the path that begins with a root.
func sameRoot(root string) string {
	i := slices.IndexFunc(strictPaths, func(p string) bool { return strings.HasPrefix(p, root+"/") })
	return strictPaths[max(i, 0)]
}

// wantBounded holds what is promised for any feed or sitemap: it is read or refused, within the limits; what leads anywhere is
// absolute; and a clean document loses no entry.
func wantBounded(t *testing.T, kind, body string) {
	t.Helper()
	urls, got, err := find(t, "http://base.example/", kind, "", body, extract.Options{MaxListed: 10})
	if err != nil && len(urls) > 0 || len(urls) > 10 || len(got.Entries) > 1024 || got.Period < 0 {
		t.Errorf("%d links, %d bytes of entries, period %v, %v", len(urls), len(got.Entries), got.Period, err)
	}
	for _, link := range urls {
		if u, err := url.Parse(link); err != nil || u.Host == "" || len(link) > extract.MaxURLBytes {
			t.Errorf("link %q: %v", link, err)
		}
	}
	links, ok := strictLinks(body)
	if !ok || kind == extract.KindFeed && !strings.Contains(body, "<rss") { // a feed may be a sitemap
		return
	}
	urls, _, err = find(t, "http://base.example/", kind, "", body, extract.Options{})
	for _, link := range links {
		u := extract.Resolve(parse(t, "http://base.example/"), link)
		if strings.HasPrefix(link, "http://") && u != "" && u != "http://base.example/" && !slices.Contains(urls, u) {
			t.Errorf("%q is lost: %q, %v", link, urls, err)
		}
	}
}

func FuzzFind_feed(f *testing.F) {
	for _, body := range strictSeeds {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) { wantBounded(t, extract.KindFeed, body) })
}

func FuzzFind_sitemap(f *testing.F) {
	for _, body := range append(strictSeeds, "http://a/1\n#\n", "\x00<\x00u") {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) { wantBounded(t, extract.KindSitemap, body) })
}

// TestStrict holds that the strict reader reads, for the others compare with it.
func TestStrict(t *testing.T) {
	t.Parallel()
	for i, want := range []int{4: 1, 5: 2, 6: 2, 7: 1} {
		if links, ok := strictLinks(strictSeeds[i]); ok != (want > 0) || len(links) != want {
			t.Errorf("%s: %q, %t", strictSeeds[i], links, ok)
		}
	}
}
