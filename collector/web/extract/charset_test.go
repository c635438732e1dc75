package extract_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html/charset"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

func TestEncodingOf(t *testing.T) {
	t.Parallel()
	late, far := strings.Repeat("<!-- x -->", 1000), strings.Repeat("<!-- x -->", 8000)
	for _, test := range []struct{ document, contentType, want string }{
		{`<meta charset="utf-8">`, "text/html", "utf-8"},
		{`<META CHARSET = UTF-8>`, "text/html", "utf-8"},
		{`<meta http-equiv="Content-Type" content="text/html; charset=UTF-8" />`, "", "utf-8"},
		{`<meta charset='utf-8' content="x; charset=utf-8">`, "", "utf-8"},
		{`<meta charset=utf8>`, "", "utf-8"},
		{`<meta charset=utf-8>`, "text/html; charset=iso-8859-1", "windows-1252"},
		{`<meta charset=iso-8859-1>`, "text/html; Charset=UTF-8", "utf-8"},
		{`<meta charset=utf-8><meta charset=iso-8859-1>`, "", "utf-8"},
		{`<!-- charset=utf-8 --><meta charset=iso-8859-1>`, "", "windows-1252"},
		{`<meta charset=iso-8859-1><!-- charset=utf-8 -->`, "", "windows-1252"},
		{`<meta charset=x-user-defined>`, "", "windows-1252"}, // by WHATWG
		{`<p>`, "text/html; charset=x-user-defined", "x-user-defined"},
		{`<meta charset=utf-8x>`, "", "utf-8"}, // there is no such thing
		{`<meta charset=utf-8`, "", "utf-8"},
		{`<meta charset>`, "", "utf-8"},
		{`<meta charset=utf-16>`, "", "utf-8"}, // it could not be read so
		{`<meta content="text/html; charset=koi8-r" http-equiv=content-type>`, "", "koi8-r"},
		{`<meta content="text/html; charset=koi8-r">`, "", "utf-8"},
		{"\ufeff<p>", "text/html; charset=latin1", "utf-8"},
		{"\xff\xfe<\x00", "text/html; charset=latin1", "utf-16le"},
		{"<p>ä</p>", "", "utf-8"},
		{"<p>\xe4</p>", "", "windows-1252"},
		{"<p>", "", "utf-8"},
		{"<p>", "text/html", "utf-8"},
		{"<p>", "text/html; charset=latin1", "windows-1252"},
		{"<p>", "text/html; charset=klingon", "utf-8"},
		{"<p>", "text/html; charset=koi8-r, text/html", "koi8-r"},
		{"<p>", "text/html charset='koi8-r'", "koi8-r"},
		{"<p>", "text/html; charset=; charset=klingon;Charset = \"koi8-r\"; x", "koi8-r"},
		{"<script charset=latin1>", "", "utf-8"},
		{"", "", "utf-8"},
		{late + `<meta charset=shift_jis>ä`, "", "shift_jis"},
		{late + `<title><meta charset=koi8-r></title><!-- <meta charset=big5> --><meta charset=euc-kr>`, "text/html", "euc-kr"},
		{late + `<body><meta charset=koi8-r>`, "", "utf-8"},
		{far + `<meta charset=koi8-r>`, "", "utf-8"},
		{`<?xml version="1.0" encoding="iso-8859-2"?><html>`, "application/xhtml+xml", "iso-8859-2"},
		{"\n<?xml version='1.0'\nencoding='EUC-JP' standalone='yes'?><body>", "text/html", "euc-jp"},
		{`<?xml version="1.0" encoding="iso-8859-2"?><meta charset=gbk>`, "", "gbk"},
		{`<?xml version="1.0" encoding="utf-16"?><p>`, "", "utf-8"},
		{`<?xml version="1.0" encoding="klingon"?><p>`, "", "utf-8"},
		{`<?xml version="1.0"?><p encoding="gbk">`, "", "utf-8"},
		{`<meta class="` + strings.Repeat("x", 2000) + `" charset=koi8-r>`, "", "utf-8"},
	} {
		if got := extract.EncodingOf(test.document, test.contentType); got != test.want {
			t.Errorf("%.80q, %q: %s, want %s", test.document, test.contentType, got, test.want)
		}
	}
}

// TestFind_queries holds that queries are in the encoding of their page, by WHATWG's URL standard; paths are in UTF-8.
func TestFind_queries(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ encoding, query, want string }{
		{"utf-8", "ä", "%C3%A4"},
		{"utf-16le", "ä", "%C3%A4"},
		{"utf-16be", "é=ю", "%C3%A9=%D1%8E"},
		{"windows-1252", "†ä'", "%86%E4%27"},
		{"windows-1252", "x%C3%A4=ä&b=<", "x%C3%A4=%E4&b=%3C"},
		{"iso-8859-15", "€", "%A4"},
		{"windows-1250", "a=žluť&b=Ж", "a=%9Elu%9D&b=%26%231046%3B"},
		{"iso-8859-2", "¢", "%26%23162%3B"},
		{"windows-1252", "日本&ä", "%26%2326085%3B%26%2326412%3B&%E4"},
		{"big5", "†一", "%26%238224%3B%A4%40"},
		{"euc-kr", "†", "%A2%D3"},
		{"gb18030", "中😀", "%D6%D0%949%FC6"},
		{"shift_jis", "表", "%95%5C"},
		{"iso-2022-jp", "a日b", "a%1B$BF%7C%1B(Bb"},
		{"iso-2022-jp", "日😀本", "%1B$BF%7C%1B(B%26%23128512%3B%1B$BK%5C%1B(B"},
		{"shift_jis", "a=[本]", "a=%5B%96%7B%5D"},
		{"koi8-u", "ї", "%A7"},
		{"windows-874", "ก", "%A1"},
		{"x-mac-cyrillic", "ю", "%FE"},
	} {
		in, _ := charset.Lookup(test.encoding)
		html, err := in.NewEncoder().String(`<a href="/ä?` + test.query + `">x</a>`) // with references for what it does not have
		if err != nil {
			t.Fatal(err)
		}
		urls, _, err := find(t, "http://a/", "", "text/html; charset="+test.encoding, html, extract.Options{})
		if want := []string{"http://a/%C3%A4?" + test.want}; err != nil || !slices.Equal(urls, want) {
			t.Errorf("%s, %q: %q, %v; want %q", test.encoding, test.query, urls, err, want)
		}
	}
}

// TestFind_gbk holds that GBK is read as GB 18030, which it is a part of, and that queries in it have no more than it has.
func TestFind_gbk(t *testing.T) {
	t.Parallel()
	in, _ := charset.Lookup("gb18030")
	html, err := in.NewEncoder().String(`<meta charset=gb2312><a href="/한?中=한€">x</a>`)
	if err != nil {
		t.Fatal(err)
	}
	urls, _, err := find(t, "http://a/", "", "text/html", html, extract.Options{})
	if want := []string{"http://a/%ED%95%9C?%D6%D0=%26%2354620%3B%80"}; err != nil || !slices.Equal(urls, want) {
		t.Errorf("%q, %v; want %q", urls, err, want)
	}
}
