package web_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/waggle-crawl/waggle/collector/web"
)

// tokenized are the start tags that golang.org/x/net/html finds.
func tokenized(text string) []web.StartTag {
	var tags []web.StartTag
	z := html.NewTokenizer(strings.NewReader(text))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return tags
		case html.StartTagToken, html.SelfClosingTagToken:
			name, more := z.TagName()
			tag := web.StartTag{Element: atom.Lookup(name), Attributes: map[string]string{}}
			if tag.Element == atom.Noscript || tag.Element == atom.Noframes {
				z.NextIsNotRawText()
			}
			for more {
				var key, value []byte
				key, value, more = z.TagAttr()
				if _, dup := tag.Attributes[string(key)]; !dup {
					tag.Attributes[string(key)] = string(value)
				}
			}
			tags = append(tags, tag)
		default:
		}
	}
}

func compareTags(t *testing.T, text string) {
	t.Helper()
	got, want := web.StartTags(text), tokenized(text)
	same := slices.EqualFunc(got, want, func(a, b web.StartTag) bool {
		return a.Element == b.Element && maps.Equal(a.Attributes, b.Attributes)
	})
	if !same {
		t.Errorf("%q has\n%q, want\n%q", text, got, want)
	}
}

// TestTags wants the tags that another reader finds, in what is hard to read.
func TestTags(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`<a href=1 HREF=2><A HREF='3' rel="x">text</A title="<a href=4>"><a/href=5/><a href = "6"/><a href= >`,
		`<<a href=1>< a href=2></ a href=3></><a href=4></><?php <a href=5>?><a href=6><!a href=7><!><a href=8>`,
		`<!--><a 1><!---><a 2><!----><a 3><!----!><a 4><!-- --!-><a no>--!--><a 5><!-- --! --><a 6><!--!><a no>`,
		`<!doctype html "><a 1><![CDATA[<a 2>]]><!DOCTYP`,
		`<script><a no></scriptx><a no></SCRIPT ><a 1><script/></script/><a 2><script>`,
		`<script><!--<script></script><a no></script--></script><a 1><script><!--<script>--><a no></script><a 2>`,
		`<script><!-- <x></script><a 1><script><!-- <1 <script> </script><a 2><script><!--></script><a 3><script><!-- - -- <!-- > </script>`,
		`<style></style><a 1><style><a no></styl></STYLE/><a 2><title><a no>&amp;</title	a=">"><a 3><textarea></textarea`,
		`<iframe><a no></iframe><xmp><a no></xmp><noembed><a no></noembed><noscript><a 1></noscript><noframes><a 2><plaintext><a no></plaintext>`,
		`<a =b ==c d==e /=f g"h='i"j' k=l"m>`, "<a b=\x00\r\n c\x00d='\r\r\n\n' \x00><a\x00><\x00a>",
		`<a b="&amp;&lt;&copy;&copy&copy=&copyx&#38;&#x26&#0;&notit;&x=1&&;&" c='"&quot;"' d=&#>`,
		`<a b="?x=1&amp;y=2&z=3"><a b="?x=1&amp;y=2&z"><a b="&amp">`, "<\u212aa><lin\u212a href=x><ABCDEFGHIJKLMNOPQRSTUVWXYZ a>",
		`<a b`, `<a b=`, `<a b="`, `<a b=c`, `<a `, `<a/`, `<a`, `<`, `<!`, `<!-`, `<!--`, `</`, `</a`, `<?`, ``,
	} {
		compareTags(t, text)
		for cut := range len(text) {
			compareTags(t, text[:cut])
		}
	}
}

// TestTags_chance is TestTags of what comes from putting pieces together by chance.
func TestTags_chance(t *testing.T) {
	t.Parallel()
	pieces := []string{
		"<", ">", "/", "!", "-", "--", "?", "=", `"`, "'", " ", "\n", "\r", "\x00", "a", "A", "ä", "&", ";", "&amp;", "&copy", "&#38", "x=1", "1",
		"<!--", "-->", "--!>", "<!", "</", "<a ", "<a href=x>", "</a>", "<script>", "</script>", "<SCRIPT ", "script", "<style>", "</style>",
		"<title>", "</title ", "<plaintext", "<noscript>", "<iframe>", "</iframe/", "href", "rel", "<meta ", "content", "text",
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same documents each time
	for range 20_000 {
		var text strings.Builder
		for range 1 + random.IntN(24) {
			text.WriteString(pieces[random.IntN(len(pieces))])
		}
		compareTags(t, text.String())
	}
}

func FuzzTags(f *testing.F) {
	f.Add(`<a href="x&amp;y" rel=nofollow>x</a><!-- --><script><!--<script></script>--></script><style>a{}</style>`)
	f.Fuzz(compareTags)
}
