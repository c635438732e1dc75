package extract_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

const (
	rssFeed = `<?xml version="1.0" encoding="utf-8"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>News</title><link>http://a/home</link>
<atom:link rel="self" href="http://a/feed.xml"/><atom:link rel="next" href="http://a/feed.xml?page=2"/>
<item><title>One &amp; only</title><link> http://a/1#comments </link><guid>http://a/guid1</guid><enclosure url="http://a/1.mp3" length="1" type="audio/mpeg"/></item>
<item><link>2</link></item>
<item><guid isPermaLink="true">http://a/3</guid></item>
<item><guid isPermaLink="false">tag:a,2020:4</guid></item>
<item><link>mailto:x@a</link></item>
<item><link>http://a/1</link></item>
</channel></rss>`

	atomFeed = `<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://a/base/"><id>urn:x</id>
<link rel="self" href="http://a/atom"/><link rel="prev-archive" href="http://a/archive/1"/>
<entry><id>urn:1</id><link rel="alternate" href="http://a/1"/><link rel="edit" href="http://a/edit"/><link rel="enclosure" href="http://a/1.mp3"/></entry>
<entry><id>urn:2</id><link href="2"/></entry></feed>`

	jsonFeed = `{"version":"https://jsonfeed.org/version/1.1","title":"J","next_url":"http://a/json?2","items":[
{"id":"1","url":"http://a/1","attachments":[{"url":"http://a/1.mp3","mime_type":"audio/mpeg"}]},{"id":"http://a/2"}]}`

	rdfFeed = `<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">
<channel rdf:about="http://a/"><link>http://a/</link></channel><item rdf:about="http://a/1"><link>http://a/1</link></item></rdf:RDF>`
)

func TestFind_feed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body        string
		contentType string
		opts        extract.Options
		want        []string
	}{
		"RSS":             {body: rssFeed, want: []string{"http://a/1", "http://a/dir/2", "http://a/3", "http://a/feed.xml?page=2"}},
		"RSS, resources":  {body: rssFeed, opts: extract.Options{Resources: true, MaxListed: 2}, want: []string{"http://a/1", "http://a/1.mp3"}},
		"Atom":            {body: atomFeed, want: []string{"http://a/1", "http://a/base/2", "http://a/archive/1"}},
		"Atom, resources": {body: atomFeed, opts: extract.Options{Resources: true, MaxListed: 2}, want: []string{"http://a/1", "http://a/1.mp3"}},
		"JSON":            {body: jsonFeed, want: []string{"http://a/1", "http://a/2", "http://a/json?2"}},
		"RDF":             {body: rdfFeed, want: []string{"http://a/1"}},
		"byte order mark": {body: "\xef\xbb\xbf" + rssFeed, opts: extract.Options{MaxListed: 1}, want: []string{"http://a/1"}},
		"nothing":         {body: ""},
		"empty":           {body: `<rss><channel></channel></rss>`},
		"unescaped":       {body: `<rss><channel><item><title>a & b &nbsp; c</title><link>http://a/?x=1&y=2</link></item></channel></rss>`, want: []string{"http://a/?x=1&y=2"}},
		"declared latin 1": {
			body: "<?xml version='1.0' encoding='ISO-8859-1'?><rss><channel><item><link>http://a/\xe4</link></item></channel></rss>",
			want: []string{"http://a/%C3%A4"},
		},
		"latin 1 by content type": {
			body:        "<rss><channel><item><link>http://a/\xe4</link></item></channel></rss>",
			contentType: `text/xml; charset="iso-8859-1"; x=y`, want: []string{"http://a/%C3%A4"},
		},
		"GB 18030 in GBK": {
			body: "<?xml version='1.0' encoding='gb2312'?><rss><channel><item><link>http://a/\xd6\xd0\x836\x843</link></item></channel></rss>",
			want: []string{"http://a/%E4%B8%AD%ED%95%9C"},
		},
		"UTF-16":             {body: utf16Text(`<?xml version="1.0" encoding="utf-16"?>` + rdfFeed), want: []string{"http://a/1"}},
		"capitals":           {body: "<RSS><Channel><ITEM><Link>/1</LINK></Item></Channel></RSS>", want: []string{"http://a/1"}},
		"encoding not known": {body: `<?xml version="1.0" encoding="klingon"?>` + rdfFeed, want: []string{"http://a/1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			urls, got, err := find(t, "http://a/dir/feed", extract.KindFeed, test.contentType, test.body, test.opts)
			if err != nil || !slices.Equal(urls, test.want) {
				t.Errorf("got %+v, %v; want %q", got, err, test.want)
			}
		})
	}
}

// utf16Text is text in UTF-16, with its byte order mark.
func utf16Text(text string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		b.WriteByte(byte(unit))
		b.WriteByte(byte(unit >> 8))
	}
	return b.String()
}

// TestFind_feedCost holds that what would cost other parsers their memory, their stack or their time costs no entry.
func TestFind_feedCost(t *testing.T) {
	t.Parallel()
	item := func(content string) string {
		return "<rss><channel><item><link>http://a/1</link>" + content + "</item><item><link>http://a/2</link></item></channel></rss>"
	}
	for name, body := range map[string]string{
		"nested":           item(strings.Repeat("<x:a>", 1<<18)),
		"nested, quoted":   item(strings.Repeat(`<x:a b="/>">`, 1<<15)),
		"nested, quotes":   item(strings.Repeat(`<x:a b='"/>' c="'/>">`, 1<<15)),
		"nested, comments": item(strings.Repeat(`<x:a><!-- </x:a> -->`, 1<<15)),
		"nested, CDATA":    item(strings.Repeat(`<x:a><![CDATA[</x:a>]]>`, 1<<15)),
		"entities":         `<!DOCTYPE rss [<!ENTITY a "` + strings.Repeat("x", 2000) + `">]>` + item("<link>"+strings.Repeat("&a;", 1<<17)),
		"ends":             item(strings.Repeat("<x:a></y></x:b>", 1<<15)),
		"elements":         item(strings.Repeat("<x:a/>", 1<<17)),
		"links":            item(strings.Repeat("<link/>", 1<<17)),
		"attributes":       item("<x:a " + strings.Repeat(`a="" `, 1<<18) + "/>"),
		"JSON objects":     `{"items":[{"url":"http://a/1"},` + strings.Repeat("{},", 1<<15) + `{"url":"http://a/2"}]}`,
		"JSON nested":      `{"items":[{"url":"http://a/1"},{"url":"http://a/2"},` + strings.Repeat(`[`, 1<<15),
		"JSON nested, out": `{"items":[{"url":"http://a/1"},{"url":"http://a/2"}],"x":` + strings.Repeat(`[`, 1<<15),
		"JSON too long":    `{"items":[{"url":"http://a/1"},{"url":"http://a/2"},{"x":[` + strings.Repeat(`1,`, 1<<20) + `1]},{"url":"http://a/not"}]}`,
	} {
		urls, _, err := find(t, "http://a/", extract.KindFeed, "", body, extract.Options{})
		if want := []string{"http://a/1", "http://a/2"}; err != nil || !slices.Equal(urls, want) {
			t.Errorf("%s: %q, %v", name, urls, err)
		}
	}
}

func TestFind_feedRefused(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"text":      "no feed at all",
		"a page":    "<!doctype html><html><a href=x>x</a></html>",
		"a sitemap": "<urlset><url><loc>http://a/1</loc></url></urlset>",
		"other XML": "<catalog><item><link>http://a/1</link></item></catalog>",
		"cut":       `<rss><channel><item><link>http://a/1`,
		"JSON cut":  `{"version":"https://jsonfeed.org/version/1","items":[{"id":"1"`,
		"JSON":      `{"error":"no such feed"}`,
	} {
		if _, got, err := find(t, "http://a/", extract.KindFeed, "", body, extract.Options{}); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	leaseLost := errors.New("lease lost")
	cancel(leaseLost)
	_, err := extract.Find(ctx, extract.Document{URL: parse(t, "http://a/"), Kind: extract.KindFeed, Body: []byte(rssFeed)}, extract.Options{})
	if !errors.Is(err, leaseLost) {
		t.Errorf("a lost lease: %v", err)
	}
}

// TestFind_feedLink holds that of all the links of an entry that of its page counts.
func TestFind_feedLink(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ entry, want string }{
		"relation of several words":      {`<link rel="self" href="/no"/><link rel="ALTERNATE nofollow" href="/yes"/>`, "/yes"},
		"IRI of another registry":        {`<link rel="http://www.iana.org/assignments/link-relations/alternate" href="/yes"/><link rel="via" href="/no"/>`, "/yes"},
		"a page after audio":             {`<link type="audio/mpeg" href="/no"/><link type="application/xhtml+xml; charset=utf-8" href="/yes"/>`, "/yes"},
		"alternates that are no page":    {`<link rel="alternate" type="application/pdf" href="/yes"/><link rel="enclosure" href="/no"/>`, "/yes"},
		"an empty address":               {`<link href=" "/><id>https://a/yes</id>`, "/yes"},
		"text before an empty link":      {`<link/><link>/yes</link>`, "/yes"},
		"no link but self":               {`<link rel="replies" href="/no"/><link rel="self" href="/yes"/>`, "/yes"},
		"id alone":                       {`<id>HTTPS://a/yes</id>`, "/yes"},
		"content elsewhere, id no page":  {`<id>tag:a,2020:1</id><content src="/yes" type="text/html"/>`, "/yes"},
		"guid that is permanent":         {`<guid isPermaLink="TRUE">yes</guid>`, "/yes"},
		"guid that is a number":          {`<guid>12345</guid>`, ""},
		"guid that is not permanent":     {`<guid ispermalink="False">/no</guid><title>x</title>`, ""},
		"links of its source and author": {`<source><link href="/no"/><id>http://a/no</id></source><author><link>/no</link></author><link>/yes</link>`, "/yes"},
		"media and comments":             {`<media:content src="/no"/><comments>/no</comments><media:link href="/no"/><link>/yes</link>`, "/yes"},
		"base of its own":                {`<link xml:base="/dir/" href="../yes"/>`, "/yes"},
		"a base that does not parse":     {`<link xml:base="http://[" href="/yes"/>`, "/yes"},
		"names without semicolons":       {`<link>/yes?a=1&copy=2&lt=3</link>`, "/yes?a=1&copy=2&lt=3"},
	} {
		var want []string
		if test.want != "" {
			want = []string{"https://a" + test.want}
		}
		for _, body := range []string{
			`<feed xmlns="http://www.w3.org/2005/Atom"><entry>` + test.entry + `</entry></feed>`,
			`<rss><channel><item>` + test.entry + `</item></channel></rss>`,
			`<rdf:RDF><item>` + test.entry + `</item></rdf:RDF>`,
		} {
			if urls, _, err := find(t, "https://a/feed", extract.KindFeed, "", body, extract.Options{}); err != nil || !slices.Equal(urls, want) {
				t.Errorf("%s: %q, %v; want %q in %s", name, urls, err, want, body)
			}
		}
	}
}

// TestFind_jsonFeed holds that a field or an item that is odd costs at most itself.
func TestFind_jsonFeed(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"byte order mark":       "\ufeff" + `{"items":[{"url":"/1"},{"url":"/2"}]}`,
		"Latin-1":               `{"items":[{"url":"/1","title":"caf` + "\xe9" + `"},{"url":"/2"}]}`,
		"line breaks in texts":  "{\"items\":[{\"url\":\"/1\",\"title\":\"a\nb\tc\x00\"},{\"url\":\"/2\"}]}",
		"items that are none":   `{"items":[null,1,"x",[],{"url":"/1"},{},{"url":null},{"url":{}},{"url":"/2"}]}`,
		"an end too early":      `{"items":[{"url":"/1"},{"url":"/2"},`,
		"a comma too many":      `{"items":[{"url":"/1"},{"url":"/2"},]}`,
		"NaN":                   `{"items":[{"url":"/1"},{"url":"/2"},{"url":"/3","x":NaN}]}`,
		"text behind":           `{"items":[{"url":"/1"},{"url":"/2"}]}<!-- 0.1 s -->`,
		"nothing as expected":   `{"version":{},"authors":1,"icon":[[{}]],"hubs":"x","next_url":7e1,"items":[{"url":"/1","language":[],"date_published":{},"attachments":5},{"url":"/2"}]}`,
		"id or elsewhere":       `{"items":[{"id":"https://a/1","external_url":false},{"id":2,"external_url":"https://a/2"},{"id":"tag:3"}]}`,
		"items of an object":    `{"items":{"0":{"url":"/1","tags":{"a":1}},"7":{"url":"/2"},"x":5},"title":"t"}`,
		"needless backslashes":  `{"title":"It\'s","items":[{"url":"/1","title":"\x41\u12 \\"},{"url":"\/2","title":"\"\-"}]}`,
		"a backslash at an end": `{"items":[{"url":"/1"},{"url":"/2"}],"x":"\`,
		"commas too many":       `{"items":[{"url":"/1","tags":["x",],"x":{"a":",]",},} , {"url":"/2", }` + ",\n\t ] ,}",
		"commas in texts":       `{"items":[{"url":"/1","title":"a,]\",}"},{"url":"/2","title":"\\"},]}`,
		"items twice":           `{"items":[{"url":"/1"}],"items":[{"url":"/2"}]}`,
	} {
		urls, _, err := find(t, "https://a/feed", extract.KindFeed, "", body, extract.Options{MaxListed: 2})
		if want := []string{"https://a/1", "https://a/2"}; err != nil || !slices.Equal(urls, want) {
			t.Errorf("%s: %q, %v", name, urls, err)
		}
	}
	_, got, err := find(t, "https://a/", extract.KindFeed, "", `{"items":[{"url":"/1","date_published":1709625849,"attachments":{"url":"/1.mp3"}},{"url":"/1","date_modified":"2024-03-06T00:00:00Z"}],"next_url":"/2"}`, extract.Options{Resources: true})
	if want := []extract.Link{
		{URL: "https://a/1", ListedBy: extract.KindFeed, Modified: time.Date(2024, 3, 6, 0, 0, 0, 0, time.UTC)}, {URL: "https://a/1.mp3"}, {URL: "https://a/2"},
	}; err != nil || !slices.Equal(got.Links, want) {
		t.Errorf("%+v, %v", got.Links, err)
	}
}

// TestFind_onePage holds that what is new in a feed is news, also if all its entries lead to one page.
func TestFind_onePage(t *testing.T) {
	t.Parallel()
	at := func(day int) time.Time { return time.Date(2024, 3, day, 0, 0, 0, 0, time.UTC) }
	rss := func(items ...string) string {
		return "<rss><channel><item>" + strings.Join(items, "</item><item>") + "</item></channel></rss>"
	}
	const pinned = "<link>/log#0</link><guid>pinned</guid><pubDate>2024-03-01T00:00:00Z</pubDate>"
	if _, got, _ := find(t, "http://a/", extract.KindFeed, "", rss(pinned, "<link>/log#2</link><pubDate>2024-03-03T00:00:00Z</pubDate>", "<link>/log#1</link><pubDate>2024-03-02T00:00:00Z</pubDate>"), extract.Options{}); len(got.Links) != 1 || !got.Links[0].Modified.Equal(at(3)) {
		t.Errorf("the newest date does not count: %+v", got.Links)
	}
	one, two := "<link>/log#1</link><guid>1</guid>", "<link>/log#2</link><guid>2</guid>"
	_, first, _ := find(t, "http://a/", extract.KindFeed, "", rss(pinned, one), extract.Options{Now: at(9)})
	for name, test := range map[string]struct {
		body string
		want time.Time
	}{
		"the same":  {rss(pinned, one), at(1)},
		"a new one": {rss(pinned, two, one), at(10)},
		"one gone":  {rss(pinned), at(1)},
		"replaced":  {rss(two), at(10)},
		"moved":     {rss(one, pinned), at(1)},
	} {
		_, got, err := find(t, "http://a/", extract.KindFeed, "", test.body, extract.Options{Known: first.Entries, Now: at(10)})
		if err != nil || len(got.Links) != 1 || !got.Links[0].Modified.Equal(test.want) {
			t.Errorf("%s: %+v, %v; want %v", name, got.Links, err, test.want)
		}
	}
	_, many, err := find(t, "http://a/", extract.KindFeed, "", rss(slices.Repeat([]string{one}, 5000)...), extract.Options{})
	if err != nil || len(many.Entries) > 1024 {
		t.Errorf("%d bytes are kept of 5000 entries, %v", len(many.Entries), err)
	}
}

// TestFind_type holds that a document is read as what it is, if its type is general, wrong or missing.
func TestFind_type(t *testing.T) {
	t.Parallel()
	const feed, page, sitemap = "<rss><channel><item><link>/1</link></item></channel></rss>", "<!doctype html><html><a href=/1>x</a>", "<urlset><url><loc>/1</loc></url></urlset>"
	for _, test := range []struct {
		contentType, body string
		want              bool
	}{
		{"application/x-unknown", feed, true},
		{"text/rss+xml", feed, true},
		{"application/force-download", feed, true},
		{"text/html;charset=utf-8", "<?xml version='1.0'?>\n<!-- x -->" + feed, true},
		{"rss", feed, true},
		{"application/json; charset=utf-8", jsonFeed, true},
		{"text/plain", jsonFeed, true},
		{"text/plain", sitemap, true},
		{"text/html", sitemap, true},
		{"binary/octet-stream", atomFeed, true},
		{"image/png", feed, false},
		{"application/javascript", feed, false},
		{"text/markdown", feed, false},
		{"application/json", `{"html":"` + page + `"}`, false},
		{"text/plain", "write <rss> and " + feed, false},
		{"html", page, true},
		{"text/html/x", page, true},
		{"application/xhtml", page, true},
		{"x", "<p>x</p><a href=/1>x</a>", true},
		{";charset=utf-8", "\ufeff \n" + page, true},
		{"text/plain", page, false},
		{"application/octet-stream", page, false},
		{"image/svg+xml", "<svg><a href='/1'/></svg>", false},
	} {
		urls, _, err := find(t, "http://a/x", "", test.contentType, test.body, extract.Options{})
		if err != nil || slices.Contains(urls, "http://a/1") != test.want {
			t.Errorf("%q as %s: %q, %v; want %v", test.body, test.contentType, urls, err, test.want)
		}
	}
}
