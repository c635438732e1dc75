package extract_test

import (
	"slices"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// TestResolve_asBrowsersDo holds what references lead to by WHATWG's URL standard where RFC 3986 has it otherwise.
func TestResolve_asBrowsersDo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ base, ref, want string }{
		{"http://a.example/x/y", "12:30.html", "http://a.example/x/12:30.html"},
		{"http://a.example/x/y", "%2e%2E/z/%2e/w/.%2e", "http://a.example/z/"},
		{"http://a.example/x/y", "/a/%2E./b%2ec/%2e%2e%2e?%2e/..", "http://a.example/b%2ec/%2e%2e%2e?%2e/.."},
		{"http://a.example/x/y", "12:30/../b?c:d", "http://a.example/x/b?c:d"},
		{"http://a.example/x/y", ":a", "http://a.example/x/:a"},
		{"http://a.example/x/y", "ä:b", "http://a.example/x/%C3%A4:b"},
		{"http://a.example/x/y", "a b:c", "http://a.example/x/a%20b:c"},
		{"http://a.example/x/y", "a:b", ""},
		{"http://a.example/x/y", "z/12:30", "http://a.example/x/z/12:30"},
		{"http://a.example/x/y", "http:same.html", "http://a.example/x/same.html"},
		{"http://a.example/x/y", "HTTP:../12:30", "http://a.example/12:30"},
		{"http://a.example/x/y", "http:/same.html", "http://a.example/same.html"},
		{"http://a.example/x/y", "http:?q", "http://a.example/x/y?q"},
		{"http://a.example/x/y", "http://b.example/z", "http://b.example/z"},
		{"http://a.example/x/y", "https:b.example/z", "https://b.example/z"},
		{"https://a.example/x/y", "http:/b.example", "http://b.example/"},
		{"http://a.example/x/y", `..\z\w?a\b`, `http://a.example/z/w?a\b`},
		{"http://a.example/x/y", `\z`, "http://a.example/z"},
		{"http://a.example/x/y", `\\b.example\z`, "http://b.example/z"},
		{"http://a.example/x/y", `http:\\b.example\z`, "http://b.example/z"},
		{"http://a.example/x/y", "//user\\@b.example/z", "http://user/@b.example/z"},
		{"http://a.example/x/y", "a\x01b\x7f", "http://a.example/x/a%01b%7F"},
		{"http://a.example/x/y", "\x01 z \x1f", "http://a.example/x/z"},
		{"http://a.example/x/y", "100%#100%", "http://a.example/x/100%25"},
		{"http://a.example/x/y", "//é.example/", "http://xn--9ca.example/"},
		{"http://a.example/x/y", "//127.1:080/z", "http://127.0.0.1/z"},
		{"https://a.example/x/y", "http:①②⑦.1:443", "http://127.0.0.1:443/"},
		{"http://a.example/x/y", "https:B.%65xample:443/z", "https://b.example/z"},
		{"http://a.example/x/y", "//ada:secret@B.example./z", "http://b.example/z"},
		{"http://a.example/x/y", "//b.1/", ""},
		{"http://a.example/x/y", "//a b/", ""},
		{"http://a.example/x/y", "///b/", "http://b/"},
		{"http://a.example/x/y", "http:///b.example/z", "http://b.example/z"},
		{"https://a.example/x/y", `https:\//\b.example?q`, "https://b.example/?q"},
		{"https://a.example/x/y", "http:////b.example:80", "http://b.example/"},
		{"http://a.example/x/y", "https:", ""},
		{"http://a.example/x/y", "//", ""},
		{"http://a.example/x/y", "http:///", ""},
		{"http://a.example/x/y", "feed://b.example/rss?a=ä#x", "http://b.example/rss?a=%C3%A4"},
		{"http://a.example/x/y", "FEED:https://b.example/rss", "https://b.example/rss"},
		{"http://a.example/x/y", "feeds://B.example/rss", "https://b.example/rss"},
		{"http://a.example/x/y", "itpc://b.example/p.xml", "http://b.example/p.xml"},
		{"http://a.example/x/y", "feed:", ""},
		{"http://a.example/x/y", "www.b.example/z", "http://a.example/x/www.b.example/z"}, // as browsers do
	} {
		if got := extract.Resolve(parse(t, test.base), test.ref); got != test.want {
			t.Errorf("%q from %q is %q, want %q", test.ref, test.base, got, test.want)
		}
	}
}

// TestFind_listedAddresses holds that what a feed or a sitemap lists has a host, however it is written.
func TestFind_listedAddresses(t *testing.T) {
	t.Parallel()
	for listed, want := range map[string]string{
		"www.b.example/z?a=1": "http://www.b.example/z?a=1", "WWW.b.example": "http://www.b.example/", "feed://b.example/z": "http://b.example/z",
		"feeds:b.example/z": "https://b.example/z", "//www.b.example/z": "https://www.b.example/z", "/www.b.example": "https://a.example/www.b.example",
	} {
		feed := `<rss version="2.0"><channel><item><title>t</title><link>` + listed + `</link></item></channel></rss>`
		sitemap := `<urlset><url><loc>` + listed + `</loc></url></urlset>`
		for kind, text := range map[string]string{extract.KindFeed: feed, extract.KindSitemap: sitemap} {
			urls, _, err := find(t, "https://a.example/x/y", kind, "text/xml", text, extract.Options{})
			if err != nil || !slices.Equal(urls, []string{want}) {
				t.Errorf("%s with %q: %q, %v; want %q", kind, listed, urls, err, want)
			}
		}
	}
}
