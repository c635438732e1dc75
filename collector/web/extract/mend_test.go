package extract_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

// TestFind_mended holds that what breaks the rules of XML costs no entry that can be read.
func TestFind_mended(t *testing.T) {
	t.Parallel()
	const head, tail = `<?xml version="1.0" encoding="UTF-8"?><rss version="2.0"><channel><title>t</title>`, "</channel></rss>"
	const one, two = "<item><title>1</title><link>http://a/1</link></item>", "<item><link>http://a/2</link><title>2</title></item>"
	both := []string{"http://a/1", "http://a/2"}
	for name, test := range map[string]struct {
		body string
		want []string
	}{
		"Latin-1 in UTF-8":                 {head + "<item><title>caf\xe9 \x93x\x94</title><link>http://a/1</link></item>" + two + tail, both},
		"Latin-1 in a link":                {head + "<item><link>http://a/caf\xe9</link></item>" + two + tail, []string{"http://a/caf%C3%A9", "http://a/2"}},
		"declares UTF-16":                  {strings.Replace(head, "UTF-8", "UTF-16", 1) + one + two + tail, both},
		"UTF-16 without a mark":            {"\x00" + strings.Join(strings.Split(head+one+two+tail, ""), "\x00"), both},
		"UTF-16, the other way":            {strings.Join(strings.Split(head+one+two+tail, ""), "\x00") + "\x00", both},
		"control characters":               {head + "<item><title>\x00\x08\x0b\x1f</title><link>http://a/1</link></item>" + two + tail, both},
		"references to control characters": {head + "<item><title>&#0;&#8;&#x1f;&#xFFFE;</title><link>http://a/1</link></item>" + two + tail, both},
		"bare ampersands":                  {head + "<item><title>A & B &c; &</title><link>http://a/?a=1&b=2</link></item>" + two + tail + "\x00", []string{"http://a/?a=1&b=2", "http://a/2"}},
		"names of HTML":                    {head + "<item><title>&nbsp;&eacute;\x01</title><link>http://a/1</link></item>" + two + tail, both},
		"less than":                        {head + "<item><title>1 < 2 <3</title><link>http://a/1</link></item>" + two + tail, both},
		"a program's warning before":       {"<br />\n<b>Warning</b>: x in <b>y.php</b> on line 3<br />\n" + head + one + two + tail, both},
		"blank lines before":               {"\n\n  " + head + one + two + tail, both},
		"text behind":                      {head + one + two + tail + "\n<!-- 0.1 s --> & done <b>", both},
		"no end":                           {head + one + two, both},
		"cut in a tag":                     {head + one + two + "<item><link>http://a/3</li", both},
		"cut in a link":                    {head + one + two + "<item><title>3</title><link>http://a/3", both},
		"cut in a title":                   {head + one + "<item><link>http://a/2</link><title>tw", both},
		"cut in CDATA":                     {head + one + "<item><link>http://a/2</link><description><![CDATA[x", both},
		"ends that do not match":           {head + "<item><title><b>1</i></title><link>http://a/1</link></item></image>" + two + tail, both},
		"items without an end":             {head + "<item><link>http://a/1</link><item><link>http://a/2</link>" + tail, both},
		"declaration within":               {head + one + `<?xml version="1.0" encoding="iso-2022-jp"?>` + two + tail, both},
		"two declarations":                 {`<?xml version="1.0"?>` + head + one + two + tail, both},
		"entities of its own":              {`<!DOCTYPE rss [<!ENTITY a "x"><!ENTITY b "&a;&a;">]>` + head + "<item><title>&b;\x02</title><link>http://a/1</link></item>" + two + tail, both},
		"attributes without quotes":        {`<feed xmlns=http://www.w3.org/2005/Atom><entry><title>&</title><link href=http://a/1 rel=alternate></entry><entry><link href="http://a/2"/></entry></feed>`, both},
		"attributes twice":                 {`<feed><entry><title>` + "\x03" + `</title><link href="http://a/1" href="http://a/x"/></entry><entry><link href="http://a/2"/></entry>`, both},
		"unquoted ampersand":               {`<feed><entry><link href="http://a/?x=1&y=2"/><title>&` + "\x04" + `</title></entry></feed>`, []string{"http://a/?x=1&y=2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			urls, _, err := find(t, "http://a/", extract.KindFeed, "", test.body, extract.Options{})
			if err != nil || !slices.Equal(urls, test.want) {
				t.Errorf("as a feed: %q, %v; want %q", urls, err, test.want)
			}
			if strings.Contains(test.body, "<feed") {
				return
			}
			swap := strings.NewReplacer(`<rss version="2.0"><channel><title>t</title>`, "<urlset>", "</channel></rss>", "</urlset>",
				"<item>", "<url>", "</item>", "</url>", "<link>", "<loc>", "</link>", "</loc>", "</li", "</lo", "DOCTYPE rss", "DOCTYPE urlset")
			urls, _, err = find(t, "http://a/", extract.KindSitemap, "", swap.Replace(test.body), extract.Options{})
			if err != nil || !slices.Equal(urls, test.want) {
				t.Errorf("as a sitemap: %q, %v; want %q", urls, err, test.want)
			}
		})
	}
}
