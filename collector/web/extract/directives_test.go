package extract_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

func TestFind_directives(t *testing.T) {
	t.Parallel()
	const anchor = `<a href="x">x</a>`
	for name, test := range map[string]struct {
		html    string
		opts    extract.Options
		want    []string
		skipped int
		noIndex bool
	}{
		"rel": {
			html: `<a rel="noopener NoFollow" href="x"><area rel=nofollow href="y"><link rel="next nofollow" href="n"><a rel="ugc" href="z">`,
			want: []string{"http://a/z"}, skipped: 3,
		},
		"rel, followed": {
			html: `<a rel="nofollow" href="x"><meta name=robots content=nofollow>`, opts: extract.Options{FollowNofollow: true},
			want: []string{"http://a/x"},
		},
		"noindex":      {html: `<meta name="robots" content=" NoIndex ,follow">` + anchor, want: []string{"http://a/x"}, noIndex: true},
		"none":         {html: `<meta name="robots" content="none">` + anchor, skipped: 1, noIndex: true},
		"other agent":  {html: `<meta name="otherbot" content="none">` + anchor, want: []string{"http://a/x"}},
		"own agent":    {html: `<meta name="Waggle" content="nofollow">` + anchor, opts: extract.Options{RobotsAgent: "waggle"}, skipped: 1},
		"nothing said": {html: `<meta name="robots" content="index, follow, noindexing"><meta>` + anchor, want: []string{"http://a/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			urls, got := findInPage(t, "http://a/", test.html, test.opts)
			if !slices.Equal(urls, test.want) || got.Skipped != test.skipped || got.NoIndex != test.noIndex {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestFind_canonical(t *testing.T) {
	t.Parallel()
	for html, want := range map[string]string{
		`<link rel="canonical" href="/c#x"><link rel=canonical href=/second>`: "http://a/c",
		`<link rel="canonical" href="mailto:x">`:                              "",
		`<base href="http://b/d/"><link rel="Canonical" href="c">`:            "http://b/d/c",
		`<a rel="canonical" href="x">`:                                        "",
	} {
		if _, got := findInPage(t, "http://a/", html, extract.Options{}); got.Canonical != want {
			t.Errorf("%s: canonical %q, want %q", html, got.Canonical, want)
		}
	}
}

// TestFind_longToken holds that nothing of any length is held, nor hides a link behind it.
func TestFind_longToken(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3<<20)
	for name, html := range map[string]string{
		"script":     `<a href="1"></a><script>` + long + `</script><a href="2"></a>`,
		"comment":    `<a href="1"></a><!--` + long + `--><a href="2"></a>`,
		"lost":       `<a href="1"></a><a class="` + long + `" href="lost"></a><a href="2"></a>`,
		"attribute":  `<a href="1"></a><p class="` + long + `"><a href="2"></a>`,
		"attributes": `<a href="1"></a><p ` + strings.Repeat("a ", 2<<20) + `><a href="2"></a>`,
		"text":       `<a href="1"></a>` + long + `<a href="2"></a>`,
	} {
		urls, _ := findInPage(t, "http://a/", html, extract.Options{})
		if !slices.Equal(urls, []string{"http://a/1", "http://a/2"}) {
			t.Errorf("%s: %q", name, urls)
		}
	}
}
