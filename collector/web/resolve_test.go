package web_test

import (
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web"
)

func compareResolved(t *testing.T, base *url.URL, ref string) {
	t.Helper()
	if got, want := web.Resolve(base, ref); got != want {
		t.Errorf("%q from %q is %q, want %q", ref, base, got, want)
	}
}

// TestResolve wants of each reference what to parse it gives.
func TestResolve(t *testing.T) {
	t.Parallel()
	bases := []string{
		"http://a.example", "https://a.example/", "http://u:p@a.example:81/x/y.html?q#f", "http://a.example/x/../y/./z", "http://a.example//x//y",
		"http://a.example/x%2Fy/%7e|/z", "http://[::1]:80/x/", "http://a.example/ä b/c", "http://a%25b/", "mailto:a@example.com", "x/y", "",
	}
	refs := []string{
		"x", "x.html", "x/y.html#f", "/x", "/x/y", "/", "//", "//b/x", "///x", ".", "..", "./x", "../x", "x/../y", "x/.y", ".x", "x.", "x//y", "x/", "x/?a", "#", "?",
		"#f", "?a", "x?", "x?#", "x#", "x?a=b&c=/d/../e", "x?a?b", "x?a:b", "a:b", "x:80/y", "http:x", "http://a.example/x", "http://a.example/", "HTTP://a.example/x",
		"http://a.example/../x", "http://a.example//x", "x%20y", "x y", "x\ny", " x ", "ä", "x#ä", "x#%zz", "x?ä", "x?%zz", "~x_-.y", "x;y", "x,y", "*", "x\x00",
	}
	for _, text := range bases {
		base := parse(t, text)
		for _, ref := range refs {
			compareResolved(t, base, ref)
		}
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same references each time
		for range 5000 {
			var ref strings.Builder
			for range 1 + random.IntN(6) {
				ref.WriteString(refs[random.IntN(len(refs))])
			}
			compareResolved(t, base, ref.String())
		}
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("http://a.example/x/y.html", "../z/x.html?a=b#f")
	f.Fuzz(func(t *testing.T, base, ref string) {
		if u, err := url.Parse(base); err == nil {
			compareResolved(t, u, ref)
		}
	})
}
