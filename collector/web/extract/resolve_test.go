package extract_test

import (
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

func compareResolved(t *testing.T, base *url.URL, ref string) {
	t.Helper()
	if got, want := extract.Resolve(base, ref); got != want {
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

// TestResolve_asBrowsersDo holds what references lead to by WHATWG's URL standard where RFC 3986 has it otherwise.
func TestResolve_asBrowsersDo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ base, ref, want string }{
		{"http://a.example/x/y", "12:30.html", "http://a.example/x/12:30.html"},
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
		{"http://a.example/x/y", "//é.example/", "http://%C3%A9.example/"},
	} {
		if fast, parsed := extract.Resolve(parse(t, test.base), test.ref); fast != test.want || parsed != test.want {
			t.Errorf("%q from %q is %q and parsed %q, want %q", test.ref, test.base, fast, parsed, test.want)
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
