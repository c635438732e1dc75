package extract_test

import (
	"encoding/xml"
	"errors"
	"io"
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
		"Latin-1 in UTF-8":                  {head + "<item><title>caf\xe9 \x93x\x94</title><link>http://a/1</link></item>" + two + tail, both},
		"Latin-1 in a link":                 {head + "<item><link>http://a/caf\xe9</link></item>" + two + tail, []string{"http://a/caf%C3%A9", "http://a/2"}},
		"declares UTF-16":                   {strings.Replace(head, "UTF-8", "UTF-16", 1) + one + two + tail, both},
		"UTF-16 without a mark":             {"\x00" + strings.Join(strings.Split(head+one+two+tail, ""), "\x00"), both},
		"UTF-16, the other way":             {strings.Join(strings.Split(head+one+two+tail, ""), "\x00") + "\x00", both},
		"control characters":                {head + "<item><title>\x00\x08\x0b\x1f</title><link>http://a/1</link></item>" + two + tail, both},
		"references to control characters":  {head + "<item><title>&#0;&#8;&#x1f;&#xFFFE;</title><link>http://a/1</link></item>" + two + tail, both},
		"bare ampersands":                   {head + "<item><title>A & B &c; &</title><link>http://a/?a=1&b=2</link></item>" + two + tail + "\x00", []string{"http://a/?a=1&b=2", "http://a/2"}},
		"names of HTML":                     {head + "<item><title>&nbsp;&eacute;\x01</title><link>http://a/1</link></item>" + two + tail, both},
		"less than":                         {head + "<item><title>1 < 2 <3</title><link>http://a/1</link></item>" + two + tail, both},
		"a program's warning before":        {"<br />\n<b>Warning</b>: x in <b>y.php</b> on line 3<br />\n" + head + one + two + tail, both},
		"blank lines before":                {"\n\n  " + head + one + two + tail, both},
		"text behind":                       {head + one + two + tail + "\n<!-- 0.1 s --> & done <b>", both},
		"no end":                            {head + one + two, both},
		"cut in a tag":                      {head + one + two + "<item><link>http://a/3</li", both},
		"cut in a link":                     {head + one + two + "<item><title>3</title><link>http://a/3", both},
		"cut in a title":                    {head + one + "<item><link>http://a/2</link><title>tw", both},
		"cut in CDATA":                      {head + one + "<item><link>http://a/2</link><description><![CDATA[x", both},
		"ends that do not match":            {head + "<item><title><b>1</i></title><link>http://a/1</link></item></image>" + two + tail, both},
		"items without an end":              {head + "<item><link>http://a/1</link><item><link>http://a/2</link>" + tail, both},
		"declaration within":                {head + one + `<?xml version="1.0" encoding="iso-2022-jp"?>` + two + tail, both},
		"two declarations":                  {`<?xml version="1.0"?>` + head + one + two + tail, both},
		"entities of its own":               {`<!DOCTYPE rss [<!ENTITY a "x"><!ENTITY b "&a;&a;">]>` + head + "<item><title>&b;\x02</title><link>http://a/1</link></item>" + two + tail, both},
		"attributes without quotes":         {`<feed xmlns=http://www.w3.org/2005/Atom><entry><title>&</title><link href=http://a/1 rel=alternate></entry><entry><link href="http://a/2"/></entry></feed>`, both},
		"attributes twice":                  {`<feed><entry><title>` + "\x03" + `</title><link href="http://a/1" href="http://a/x"/></entry><entry><link href="http://a/2"/></entry>`, both},
		"a letter of Windows-1252 in CDATA": {head + "<item><title><![CDATA[\x80 5 \x96 6]]></title><link>http://a/1</link></item>" + two + tail, both},
		"two documents":                     {head + one + tail + head + two + tail, both},
		"three byte order marks":            {strings.Repeat("\ufeff", 3) + head + one + two + tail, both},
		"a mark within":                     {head + one + "\ufeff" + two + tail, both},
		"overlong and lone surrogates":      {head + "<item><title>\xc0\xaf \xed\xa0\x80</title><link>http://a/1</link></item>" + two + tail, both},
		"a script before":                   {"<script>if (a<b) {}</script>" + head + one + two + tail, both},
		"a declaration of its own encoding": {strings.Replace(head, "UTF-8", "klingon-8", 1) + one + two + tail, both},
		"titles without an end":             {head + "<item><title>1<link>http://a/1</link></item><item><title>2<link>http://a/2</link></item>" + tail, both},
		"links without an end":              {head + "<item><link>http://a/1<title>1</title></item><item><link>http://a/2<title>2</title></item>" + tail, both},
		"unescaped HTML":                    {head + "<item><description><p>x<br><img src=a><ul><li>y</description><link>http://a/1</link></item>" + two + tail, both},
		"a link in HTML":                    {head + "<item><description><link>http://a/no</link></description><link>http://a/1</link></item>" + two + tail, both},
		"a comment without an end":          {head + one + two + "<!-- " + tail, both},
		"an end too many":                   {head + "</title></b>" + one + "</link>" + two + tail, both},
		"a huge text":                       {head + "<item><title>" + strings.Repeat("<![CDATA[x]]>y", 200_000) + strings.Repeat("z", 3<<20) + "</title><link>http://a/1</link></item>" + two + tail, both},
		"a declaration without its end":     {strings.Replace(head, "?>", "?\n", 1) + one + two + tail, both},
		"a declaration that is but begun":   {strings.Replace(head, ` version="1.0" encoding="UTF-8"?>`, " ", 1) + one + two + tail, both},
		"addresses of its own entities":     {`<!DOCTYPE rss [ <!ENTITY s "http://a"><!ENTITY site2 'http://a/'> ]>` + head + "<item><title>&x;</title><link>&s;/1</link></item><item><link>&site2;2</link></item>" + tail, both},
		"an entity that looks like one":     {`<!DOCTYPE rss [<!ENTITY s "/2">]>` + head + "<item><link>http://a/?&amp;s;</link></item>" + two + tail, []string{"http://a/?&s;", "http://a/2"}},
		"entities of entities and of files": {`<!DOCTYPE rss [<!ENTITY a "http://a/1"><!ENTITY b "&a;"><!ENTITY c SYSTEM "/etc/passwd">]>` + head + "<item><title>&c;</title><link>&a;</link></item><item><link>/?&b;</link></item>" + tail, []string{"http://a/1", "http://a/?&b;"}},
		"an entity too late":                {head + `<!ENTITY s "/2">` + "<item><link>/?&s;</link></item>" + two + tail, []string{"http://a/?&s;", "http://a/2"}},
		"addresses in quotes and brackets":  {head + "<item><link>\u200b\"http://a/1\"\u200b</link></item><item><link>&lt;http://a/2&gt;</link></item>" + tail, both},
		"unquoted ampersand":                {`<feed><entry><link href="http://a/?x=1&y=2"/><title>&` + "\x04" + `</title></entry></feed>`, []string{"http://a/?x=1&y=2"}},
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

// TestFind_namespaces holds that elements count by their namespaces, wherever these are declared, and those of modules do not.
func TestFind_namespaces(t *testing.T) {
	t.Parallel()
	const rdf, rss, module = `<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" `, `"http://purl.org/rss/1.0/"`, `"http://purl.org/rss/1.0/modules/`
	both := []string{"http://a/1", "http://a/2"}
	for name, body := range map[string]string{
		"modules of RSS 1.0": rdf + `xmlns=` + rss + ` xmlns:image=` + module + `image/" xmlns:content=` + module + `content/">
			<item rdf:about="/no"><image:item rdf:about="/no.png"><dc:title>x</dc:title></image:item><content:items><rdf:Bag><rdf:li><content:item rdf:about="/no.txt"/></rdf:li></rdf:Bag></content:items><link>/1</link></item>
			<item><image:link>/no</image:link><link>/2</link></item></rdf:RDF>`,
		"modules that elements declare": `<rss><channel><item><m:link xmlns:m=` + module + `x/">/no</m:link><m:item xmlns:m="x"><link>/no</link></m:item><link>/1</link></item><item><link>/2</link></item></channel></rss>`,
		"each declares it":              rdf + `><r:item xmlns:r=` + rss + ` rdf:about="/no"><r:link>/1</r:link></r:item><r:item xmlns:r=` + rss + `><r:link>/2</r:link></r:item></rdf:RDF>`,
		"each in its own prefix":        `<rss><channel><n1:item xmlns:n1=` + rss + `><n2:link xmlns:n2=` + rss + `>/1</n2:link></n1:item><n3:item xmlns:n3="http://purl.org/rss/1.0"><link>/2</link></n3:item></channel></rss>`,
		"names of RSS 0.9 and 2.0":      `<rdf:RDF><x:item xmlns:x="http://my.netscape.com/rdf/simple/0.9/"><x:link>/1</x:link></x:item><y:item xmlns:y="http://backend.userland.com/rss2"><y:link>/2</y:link></y:item></rdf:RDF>`,
		"a sitemap":                     `<urlset><s:url xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9"><i:loc xmlns:i="http://www.google.com/schemas/sitemap-image/1.1">/no</i:loc><s:loc>/1</s:loc></s:url><g:url xmlns:g="http://www.google.com/schemas/sitemap/0.84"><g:loc>/2</g:loc></g:url></urlset>`,
		"older Atom":                    `<feed><x:entry xmlns:x="http://purl.org/atom/ns#"><x:link href="/1"/></x:entry><y:entry xmlns:y="http://purl.org/atom/ns#draft-ietf-atompub-format-09"><y:link href="/2"/></y:entry></feed>`,
		"entities in attributes":        `<!DOCTYPE feed [<!ENTITY n "http://www.w3.org/2005/Atom"><!ENTITY one "/1">]><feed><x:entry xmlns:x="&n;"><x:link href="&one;"/></x:entry><entry><link href="/2"/></entry></feed>`,
	} {
		urls, _, err := find(t, "http://a/", extract.KindSitemap, "", body, extract.Options{})
		if err != nil || !slices.Equal(urls, both) {
			t.Errorf("%s: %q, %v", name, urls, err)
		}
	}
}

// TestFind_cut holds that wherever a document is cut, the entries before that count, and that it is said.
func TestFind_cut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ kind, body, end string }{
		"RSS":     {extract.KindFeed, `<rss version="2.0"><channel><title>t</title><item><link>/1</link><title>1</title></item><item><title>2</title><guid>/2</guid></item><item><link>/3</link></item></channel></rss>`, "</item>"},
		"Atom":    {extract.KindFeed, `<feed xmlns="http://www.w3.org/2005/Atom"><entry><link href="/1"/><content type="xhtml"><div>x</div></content></entry><entry><id>http://a/2</id></entry></feed>`, "</entry>"},
		"JSON":    {extract.KindFeed, `{"version":"https://jsonfeed.org/version/1","items":[{"url":"/1"},{"url":"/2","tags":["x"]}],"title":"t"}`, "}"},
		"sitemap": {extract.KindSitemap, `<urlset><url><loc>/1</loc><lastmod>2020</lastmod></url><url><lastmod>2020</lastmod><loc>/2</loc></url></urlset>`, "</url>"},
	} {
		for n := 1; n < len(test.body); n++ {
			urls, got, err := find(t, "http://a/", test.kind, "", test.body[:n], extract.Options{})
			if least := strings.Count(test.body[:n], test.end); len(urls) < least || least > 0 && err != nil {
				t.Errorf("%s of %d bytes: %d entries, want at least %d; %v", name, n, len(urls), least, err)
			}
			if err == nil && got.Broken == "" {
				t.Errorf("%s of %d bytes: not said that it is cut", name, n)
			}
		}
		if _, got, err := find(t, "http://a/", test.kind, "", test.body, extract.Options{}); err != nil || got.Broken != "" {
			t.Errorf("%s: %q, %v", name, got.Broken, err)
		}
	}
}

// TestFind_strict holds that of a clean document all is found that a reader finds which keeps to the rules of XML.
func TestFind_strict(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		rssFeed, atomFeed, rdfFeed,
		sitemapHead + `<url><loc>http://a/1</loc></url><url><loc>
			http://a/?x=1&amp;y=2&#38;z=3 </loc></url><url><loc><![CDATA[http://a/3?x&y]]></loc></url></urlset>`,
		`<a:feed xmlns:a="http://www.w3.org/2005/Atom"><a:entry><a:link href="http://a/1"/></a:entry></a:feed>`,
		`<rss xmlns:x="http://www.w3.org/2005/Atom"><channel><item><x:link href="http://a/1"/></item></channel></rss>`,
		`<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9"><s:url><s:loc>http://a/1</s:loc></s:url></s:urlset>`,
	} {
		urls, _, err := find(t, "http://b/", extract.KindSitemap, "", body, extract.Options{})
		if err != nil {
			t.Errorf("%v: %s", err, body)
		}
		in := xml.NewDecoder(strings.NewReader(body))
		for inEntry, found := false, 0; ; {
			token, err := in.Token()
			if errors.Is(err, io.EOF) && found > 0 {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			start, _ := token.(xml.StartElement)
			switch start.Name.Local {
			case "item", "entry", "url":
				inEntry = true
			case "link", "loc":
				var link struct {
					Text string `xml:",chardata"`
					Href string `xml:"href,attr"`
				}
				if err := in.DecodeElement(&link, &start); err != nil {
					t.Fatal(err)
				}
				want, _, _ := strings.Cut(strings.TrimSpace(link.Href+link.Text), "#")
				if inEntry && !strings.HasPrefix(want, "mailto:") {
					found++
					if !slices.ContainsFunc(urls, func(u string) bool { return strings.HasSuffix(u, want) }) {
						t.Errorf("%q is not among %q", want, urls)
					}
				}
				inEntry = false
			}
		}
	}
}
