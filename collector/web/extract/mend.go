package extract

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/text/encoding/charmap"
)

// mendXML writes a feed or sitemap that breaks the rules of XML as one that keeps them, reading its tags as browsers do: what
// stands before the outermost element and behind it goes, and so do characters that XML has none of; bytes that are not
// UTF-8 are of Windows-1252, which most of them are; references that XML does not know are those of HTML, or text; elements
// that have no end end with the one around them, and a tag that breaks off is not there. Comments, instructions and
// declarations go. Empty: it has no such element.
func mendXML(text []byte) []byte {
	tags := html.NewTokenizer(bytes.NewReader(validText(text)))
	tags.AllowCDATA(true)
	var out bytes.Buffer
	var open []element
	named := map[string]int{} // how many of them have a name
	end := func(n int) {      // down to n elements
		for len(open) > n {
			name := open[len(open)-1].name
			out.WriteString("</" + name + ">")
			named[name]--
			open = open[:len(open)-1]
		}
	}
	innermost := func(name string) int { // only for a name that there is
		at := len(open) - 1
		for open[at].name != name {
			at--
		}
		return at
	}
	inText := false // of an element that has nothing else so far
	for ended := false; !ended; {
		token := tags.Next()
		tags.NextIsNotRawText() // no element of XML has text that is read in another way
		switch token {          //nolint:exhaustive // the others go
		case html.ErrorToken:
			if ended = true; inText && len(open) > 0 { // the text is cut
				out.Truncate(open[len(open)-1].begin)
				open = open[:len(open)-1]
			}
		case html.TextToken:
			if len(open) > 0 {
				out.WriteString(html.EscapeString(validXML(string(tags.Text()))))
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			name := tagName(tags.Raw())
			if len(open) == 0 && kindOfRoot(localName(name)) == "" {
				continue // such as a warning of the program that made it
			}
			if listElements[name] && named[name] > 0 {
				end(innermost(name))
			}
			open = append(open, element{name, out.Len()})
			named[name]++
			out.WriteString("<" + name)
			writeAttributes(&out, tags)
			out.WriteByte('>')
			if inText = token == html.StartTagToken; !inText || len(open) > maxXMLDepth {
				end(len(open) - 1)
				ended = len(open) == 0
			}
		case html.EndTagToken:
			inText = false
			if name := tagName(tags.Raw()); named[name] > 0 {
				end(innermost(name))
				ended = len(open) == 0
			}
		}
	}
	end(0)
	return out.Bytes()
}

// element is one that has no end yet.
type element struct {
	name  string
	begin int // where it begins in what is written
}

// listElements are the entries of lists. None stands in another one, so that one without an end ends where the next begins.
var listElements = map[string]bool{"item": true, "entry": true, "url": true, "sitemap": true}

// tagName is the name in a tag, in the case that it has there.
func tagName(tag []byte) string {
	tag = bytes.TrimLeft(tag, "</")
	end := bytes.IndexAny(tag, " \t\r\n\f/>")
	if end < 0 {
		end = len(tag)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:", r) {
			return r
		}
		return '_'
	}, string(tag[:end]))
}

// writeAttributes writes the attributes of a start tag, each once. Their names are in lower case.
func writeAttributes(out *bytes.Buffer, tags *html.Tokenizer) {
	_, more := tags.TagName()
	seen := map[string]bool{}
	for more {
		var key, value []byte
		key, value, more = tags.TagAttr()
		name := tagName(key)
		if first, _ := utf8.DecodeRuneInString(name); seen[name] || !unicode.IsLetter(first) && first != '_' {
			continue
		}
		seen[name] = true
		out.WriteString(" " + name + `="` + html.EscapeString(validXML(string(value))) + `"`)
	}
}

// validText reads the bytes that are not UTF-8 as Windows-1252.
func validText(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			r = charmap.Windows1252.DecodeByte(text[0])
		}
		out = utf8.AppendRune(out, r)
		text = text[size:]
	}
	return out
}

// validXML leaves out the characters that no document of XML 1.0 may have.
func validXML(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			return -1
		}
		return r
	}, text)
}
