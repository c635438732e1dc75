package extract_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
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
			contentType: `text/xml; charset="iso-8859-1"`, want: []string{"http://a/%C3%A4"},
		},
		"UTF-16":             {body: utf16Text(`<?xml version="1.0" encoding="utf-16"?>` + rdfFeed), want: []string{"http://a/1"}},
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

// TestFind_feedRefused holds that what would cost a parser its memory, its stack or its time is refused.
func TestFind_feedRefused(t *testing.T) {
	t.Parallel()
	item := func(content string) string { return "<rss><channel><item>" + content + "</item></channel></rss>" }
	for name, body := range map[string]string{
		"text":             "no feed at all",
		"a page":           "<!doctype html><html><a href=x>x</a></html>",
		"other XML":        "<catalog><item><link>http://a/1</link></item></catalog>",
		"JSON cut":         `{"version":"https://jsonfeed.org/version/1","items":[{"id":"1"`,
		"JSON objects":     `{"items":[` + strings.Repeat("{},", 200_000) + `{}]}`,
		"JSON nested":      strings.Repeat(`{"items":[`, 20_000),
		"nested":           item(strings.Repeat("<x:a>", 2<<20)),
		"nested, quoted":   item(strings.Repeat(`<x:a b="/>">`, 200_000)),
		"nested, quotes":   item(strings.Repeat(`<x:a b='"/>' c="'/>">`, 200_000)),
		"nested, comments": item(strings.Repeat(`<x:a><!-- </x:a> -->`, 200_000)),
		"nested, CDATA":    item(strings.Repeat(`<x:a><![CDATA[</x:a>]]>`, 200_000)),
		"elements":         item(strings.Repeat("<x:a/>", 1<<20)),
		"attributes":       item("<x:a " + strings.Repeat(`a="" `, 1<<20) + "/>"),
	} {
		_, got, err := find(t, "http://a/", extract.KindFeed, "", body, extract.Options{})
		if err == nil {
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

func FuzzFind_feed(f *testing.F) {
	for _, feed := range []string{rssFeed, atomFeed, jsonFeed, rdfFeed} {
		f.Add(feed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		urls, _, err := find(t, "http://a/", extract.KindFeed, "", body, extract.Options{MaxListed: 10})
		if err != nil && len(urls) > 0 {
			t.Errorf("%d links beside %v", len(urls), err)
		}
	})
}
