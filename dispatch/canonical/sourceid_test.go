package canonical_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

func TestSourceID(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://example.com":                           "example.com",
		"https://example.com/feeds/rss.xml":             "example.com_feeds_rss.xml",
		"https://example.com/":                          "example.com",
		"http://example.com/":                           "example.com-2a1b402420",
		"https://example.com/feeds/":                    "",
		"https://Example.com/Feeds?b=1&a=2#x":           "",
		"https://example.com:8443/a":                    "",
		"https://example.com/a_b":                       "",
		"https://bücher.example/ä":                      "",
		"no url":                                        "",
		"https://a.example/" + strings.Repeat("x", 300): "",
	} {
		id := canonical.SourceID("", url)
		if want != "" && id != want {
			t.Errorf("%s: %s, want %s", url, id, want)
		}
		if id == "" || len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
		}) || id != canonical.SourceID("", url) {
			t.Errorf("%s: %q", url, id)
		}
		if long := canonical.SourceID(strings.Repeat("p", 100), url); len(long) > 128 {
			t.Errorf("%s: %d bytes with a prefix", url, len(long))
		}
	}
	for _, spelling := range []string{"HTTPS://A.example:443/b/c", "https://a.example/b/c#f", "https://a.example/./b/c?utm_source=x"} {
		if id := canonical.SourceID("", spelling); id != "a.example_b_c" {
			t.Errorf("%s: %s", spelling, id)
		}
	}
	ids := map[string]string{}
	for _, url := range []string{
		"https://a.example/b_c", "https://a.example/b/c", "https://a.example/b/c/", "http://a.example/b/c", "https://a.example/b/c?x",
		"https://a.example/B/c", "https://a.example/b%2Fc", "https://a.example/b//c", "https://a.example//b/c",
	} {
		id := canonical.SourceID("", url)
		if other, taken := ids[id]; taken {
			t.Errorf("%s and %s are both %s", url, other, id)
		}
		ids[id] = url
	}
}
