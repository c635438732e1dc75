package extract_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// find finds the links of a document, and their URLs.
func find(t *testing.T, base, kind, contentType, body string, opts extract.Options) ([]string, extract.Result, error) {
	t.Helper()
	got, err := extract.Find(t.Context(), extract.Document{
		URL: parse(t, base), Kind: kind, ContentType: contentType, Body: []byte(body),
	}, opts)
	var urls []string
	for _, link := range got.Links {
		urls = append(urls, link.URL)
	}
	return urls, got, err
}

// findInPage finds the links of a page, which is never an error.
func findInPage(t *testing.T, base, html string, opts extract.Options) ([]string, extract.Result) {
	t.Helper()
	urls, got, err := find(t, base, "", "text/html", html, opts)
	if err != nil {
		t.Error(err)
	}
	return urls, got
}

func TestFind_page(t *testing.T) {
	t.Parallel()
	const base = "http://example.com/dir/page.html?q=1"
	for name, test := range map[string]struct {
		html      string
		resources bool
		want      []string
		skipped   int
	}{
		"a and area": {
			html: `<a href="x.html">x</a><map><area href="/y"></map>`,
			want: []string{"http://example.com/dir/x.html", "http://example.com/y"},
		},
		"frames": {
			html: `<iframe src="a"></iframe><frameset><frame src="b"></frameset>`,
			want: []string{"http://example.com/dir/a", "http://example.com/dir/b"},
		},
		"fragments and duplicates": {
			html: `<a href="x#one">1</a><a href="x#two">2</a><a href="http://example.com/dir/x">3</a><a href="#top">4</a><a href="">5</a>`,
			want: []string{"http://example.com/dir/x"},
		},
		"schemes": {
			html:    `<a href="mailto:a@example.com">m</a><a href="javascript:void(0)">j</a><a href="ftp://example.com/">f</a><a href="HTTPS://Example.com/s">s</a>`,
			want:    []string{"https://example.com/s"},
			skipped: 3,
		},
		"base": {
			html: `<base target="_blank"><base href="http://other.example/top/"><base href="http://third.example/"><a href="x">x</a>`,
			want: []string{"http://other.example/top/x"},
		},
		"a base that is none": {
			html: `<base href="http://[bad"><base href="http://third.example/"><a href="x">x</a>`,
			want: []string{"http://example.com/dir/x"},
		},
		"a base of another scheme": {
			html: `<base href="JavaScript:void(0)"><base href="data:text/html,x"><base href="/third/"><a href="x">x</a><a href="//b/y">y</a>`,
			want: []string{"http://example.com/dir/x", "http://b/y"},
		},
		"an empty base": {
			html: `<base href=" "><base href="/second/"><a href="x">x</a>`,
			want: []string{"http://example.com/dir/x"},
		},
		"anchors in SVG": {
			html:      `<svg><a xlink:href="x"><a xlink:href="no" href="y"><image xlink:href="i.png"/><image href="j.png"/><use xlink:href="#z"/></svg>`,
			resources: true,
			want:      []string{"x", "y", "i.png", "j.png"},
		},
		"relative base": {
			html: `<base href="../up/"><a href="x">x</a>`,
			want: []string{"http://example.com/up/x"},
		},
		"link elements": {
			html: `<link rel="next" href="n"><link rel=canonical href="/c"><link rel="alternate" href="feed.xml"><link href="bare">` +
				`<link rel="stylesheet" href="s.css"><link rel="shortcut icon" href="i.ico"><link rel="preconnect" href="//cdn.example">` +
				`<link rel="alternate stylesheet" href="s2.css"><link rel="search" href="open.xml">`,
			want: []string{"http://example.com/dir/n", "http://example.com/c", "http://example.com/dir/feed.xml"},
		},
		"link elements by type": {
			html: `<link rel="Alternate" hreflang=de href=de><link rel=alternate type="Application/RSS+XML; charset=utf-8" href=rss>` +
				`<link rel=alternate type="text/xml" href=xml><link rel="home prev" type=" text/html " href=home><link rel=alternate media=handheld href=m>` +
				`<link rel=alternate type="application/activity+json" href=no1><link rel=alternate type="text/markdown" href=no2>` +
				`<link rel=alternate type="image/jpeg" href=no3><link rel=author type="text/plain" href=no4><link rel=alternate type=text/calendar href=no5>`,
			want: []string{"de", "rss", "xml", "home", "m"},
		},
		"link elements that name no page": {
			html: `<link rel=hub href=no1><link rel=profile href=no2><link rel="service.post" type="application/atom+xml" href=no3><link rel=shortlink href=no4>` +
				`<link rel="indieauth-metadata" href=no5><link rel="token_endpoint micropub" href=no6><link rel=pgpkey type="text/html" href=no7>` +
				`<link rel=monetization href=no8><link rel="dns-prefetch pingback" href=no9><link rel="" href=no10>`,
		},
		"resources": {
			html: `<link rel="stylesheet" href="s.css"><script src="s.js"></script><img src="i.png" srcset="i1.png 1x, i2.png 2x,i3.png">` +
				`<video src="v" poster="p"><source src="w"><track src="t"></video><audio src="au"></audio><embed src="e"><object data="o"></object>` +
				`<input type=image src="in"><input src="no"><body background="bg"><p style="background: url('st.png')"><picture><source srcset="pic.png 100w"></picture>` +
				`<style>@import "im.css"; /* url(no.png) */ a { background: url( "cs.png" ) }</style><a href="page">p</a>`,
			resources: true,
			want: []string{
				"s.css", "s.js", "i.png", "i1.png", "i2.png", "i3.png", "v", "p", "w", "t", "au", "e", "o", "in", "bg", "st.png",
				"pic.png", "im.css", "cs.png", "page",
			},
		},
		"no resources": {
			html: `<link rel="stylesheet" href="s.css"><script src="s.js"></script><img src="i.png"><style>a{b:url(c)}</style><p style="b:url(d)">`,
		},
		"not markup": {
			html: `<script>document.write('<a href="no">')</script><style>a::after{content:'<a href="no">'}</style><!-- <a href="no"> -->` +
				`<textarea><a href="no"></textarea><title><a href="no"></title>`,
		},
		"noscript": {
			html: `<noscript><a href="yes">y</a></noscript>`,
			want: []string{"http://example.com/dir/yes"},
		},
		"meta refresh": {
			html: `<meta http-equiv="Refresh" content="5; URL='next.html'"><meta http-equiv="refresh" content="30">`,
			want: []string{"http://example.com/dir/next.html"},
		},
		"meta refresh in its forms": {
			html: `<meta http-equiv=refresh content="0;a"><meta http-equiv=refresh content="0,,b"><meta http-equiv=refresh content=".;c">` +
				`<meta http-equiv=refresh content="1.2.3` + "\n" + `urL=&quot;/d'e&quot;f"><meta http-equiv=refresh content='10;url="e" f'>` +
				`<meta http-equiv=refresh content="0;urly=g"><meta http-equiv=refresh content="0;url h"><meta http-equiv=refresh content="0;url=url=i">`,
			want: []string{"a", ",b", "c", "http://example.com/d'e", "e", "urly=g", "url%20h", "url=i"},
		},
		"no meta refresh": {
			html: `<meta http-equiv=refresh content="url=a"><meta http-equiv=refresh content="-1;b"><meta http-equiv=refresh content="5 ;">` +
				`<meta http-equiv=refresh content="5x;c"><meta http-equiv=refresh content="0;url=''"><meta name=refresh content="0;url=d">` +
				`<meta http-equiv=refresh content="0;url="><meta http-equiv=refresh>`,
		},
		"nofollow": {
			html:    `<a href="x">x</a><meta name="ROBOTS" content="noindex, NoFollow"><a href="y">y</a>`,
			skipped: 2,
		},
		"noindex": {
			html: `<meta name="robots" content="noindex"><a href="x">x</a>`,
			want: []string{"http://example.com/dir/x"},
		},
		"white space and entities": {
			html: "<a href=' \n a\tb.html?x=1&amp;y=2 '>1</a><a href=c&#47;d>2</a><a href='sp ace'>3</a>",
			want: []string{"http://example.com/dir/ab.html?x=1&y=2", "http://example.com/dir/c/d", "http://example.com/dir/sp%20ace"},
		},
		"odd escapes": {
			html: `<a href="100%">1</a><a href="%zz">2</a><a href="%41">3</a>`,
			want: []string{"http://example.com/dir/100%25", "http://example.com/dir/%25zz", "http://example.com/dir/%41"},
		},
		"not a URL": {
			html:    `<a href="http://[::1">1</a><a href="http://">2</a>`,
			skipped: 2,
		},
		"user and password": {
			html: `<a href="http://user:secret@example.com/x">1</a>`,
			want: []string{"http://example.com/x"},
		},
		"too long": {
			html:    `<a href="/` + strings.Repeat("x", 2048) + `">1</a>`,
			skipped: 1,
		},
		"broken markup": {
			html: `<div><a href=x><b><a href="y" class="><p><a href='z`,
			want: []string{"http://example.com/dir/x"},
		},
		"unicode": {
			html: `<meta charset="utf-8"><a href="/ä?q=ö">1</a>`,
			want: []string{"http://example.com/%C3%A4?q=%C3%B6"},
		},
		"latin 1": {
			html: "<meta charset=iso-8859-1><a href='/\xe4'>1</a>",
			want: []string{"http://example.com/%C3%A4"},
		},
		"no charset": {
			html: "<!-- " + strings.Repeat("x", 2000) + " --><a href='/ä'>1</a>",
			want: []string{"http://example.com/%C3%A4"},
		},
		"no charset, not UTF-8": {
			html: "<!-- " + strings.Repeat("x", 2000) + " --><a href='/\xe4'>1</a>",
			want: []string{"http://example.com/%C3%A4"},
		},
		"one page in two spellings": {
			html: `<a href="/a b?c d">1</a><a href="/a%20b?c%20d">2</a><a href="\a b?c%20d">3</a>`,
			want: []string{"http://example.com/a%20b?c%20d"},
		},
		"nothing": {html: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := slices.Clone(test.want)
			for i, link := range want {
				if !strings.Contains(link, "://") {
					want[i] = "http://example.com/dir/" + link
				}
			}
			urls, got := findInPage(t, base, test.html, extract.Options{Resources: test.resources})
			if !slices.Equal(urls, want) {
				t.Errorf("links\n%q, want\n%q", urls, want)
			}
			if got.Skipped != test.skipped {
				t.Errorf("%d skipped, want %d", got.Skipped, test.skipped)
			}
		})
	}
}

func TestFind_limit(t *testing.T) {
	t.Parallel()
	urls, got := findInPage(t, "http://a/", `<a href=1><a href=2><a href=2><a href=3><a href=4>`, extract.Options{MaxLinks: 2, MaxListed: 1})
	if !slices.Equal(urls, []string{"http://a/1", "http://a/2"}) || got.Skipped != 2 || got.Surplus != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestFind_styleSheet(t *testing.T) {
	t.Parallel()
	const css = `@import "a.css"; @import url(b.css) screen; @IMPORT 'c.css';
		.x { background: URL("d.png"), url( e.png ) } /* url(no.png) */
		@font-face { src: url('../f.woff2') format("woff2"), url(data:font/woff;base64,AAAA) }`
	urls, got, err := find(t, "http://a/s/x.css", "", "text/css", css, extract.Options{Resources: true})
	want := []string{"http://a/s/a.css", "http://a/s/b.css", "http://a/s/c.css", "http://a/s/d.png", "http://a/s/e.png", "http://a/f.woff2"}
	if err != nil || !slices.Equal(urls, want) || got.Skipped != 1 {
		t.Errorf("got %+v, %v; want %q", got, err, want)
	}
	if urls, _, err = find(t, "http://a/s/x.css", "", "text/css", css, extract.Options{}); err != nil || len(urls) > 0 {
		t.Errorf("resources that nobody asked for: %q, %v", urls, err)
	}
}

func FuzzFind_page(f *testing.F) {
	f.Add("http://example.com/a", `<a href="x"><base href="//y/"><img srcset="a 1x,b"><style>a{b:url(c)}</style>`)
	f.Add("https://example.com", "<noscript><a href='%zz#'></noscript><meta http-equiv=refresh content='0;url=x'>")
	f.Fuzz(func(t *testing.T, base, html string) {
		if _, err := url.Parse(base); err != nil {
			return // never given to the function
		}
		urls, _ := findInPage(t, base, html, extract.Options{Resources: true, MaxLinks: 100})
		for _, link := range urls {
			found, err := url.Parse(link)
			if err != nil || found.Host == "" || found.Fragment != "" || (found.Scheme != "http" && found.Scheme != "https") {
				t.Errorf("link %q: %v", link, err)
			}
		}
	})
}
