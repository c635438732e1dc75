package extract

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
)

const (
	// maxXMLDepth bounds how deep elements may nest: parsers recurse.
	maxXMLDepth = 1000

	// maxXMLTag bounds a tag, in bytes: parsers keep all attributes of one.
	maxXMLTag = 64 << 10
)

// ErrTooLarge is wrapped by the error of a document that would take too much memory to read.
var ErrTooLarge = errors.New("too large")

// errParse says that a document is not what it claims to be.
var errParse = errors.New("cannot be parsed")

var (
	xmlDeclaration    = regexp.MustCompile(`^\s*<\?xml\s[^>]{0,1000}\?>`)
	secondDeclaration = regexp.MustCompile(`^\?xml[\s?]`)
	xmlEncoding       = regexp.MustCompile(`encoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']`)
)

// utf8XML decodes an XML document to UTF-8, without its declaration, by its byte order mark, what it declares, or its
// Content-Type. An encoding that nobody knows is read as UTF-8.
func utf8XML(body []byte, contentType string) []byte {
	label := ""
	switch {
	case bytes.HasPrefix(body, []byte("\xef\xbb\xbf")):
		body = body[3:]
	case bytes.HasPrefix(body, []byte("\xfe\xff")):
		label, body = "utf-16be", body[2:]
	case bytes.HasPrefix(body, []byte("\xff\xfe")):
		label, body = "utf-16le", body[2:]
	case bytes.HasPrefix(body, []byte("\x00<")):
		label = "utf-16be"
	case bytes.HasPrefix(body, []byte("<\x00")):
		label = "utf-16le"
	default:
		if declared := xmlEncoding.FindSubmatch(xmlDeclaration.Find(body)); declared != nil {
			label = string(declared[1])
		} else if _, after, found := strings.Cut(strings.ToLower(contentType), "charset="); found {
			label = strings.Trim(after, `"' `)
		}
		if strings.HasPrefix(strings.ToLower(label), "utf-16") && !bytes.ContainsRune(body[:min(len(body), 100)], 0) {
			label = ""
		}
	}
	if encoding, name := charset.Lookup(label); encoding != nil && name != "utf-8" && name != "replacement" {
		if decoded, err := encoding.NewDecoder().Bytes(body); err == nil {
			body = decoded
		}
	}
	return body[len(xmlDeclaration.Find(body)):]
}

// rootElement is the local name of a document's root element, in lower case; empty when it has none. Where something else
// stands before a feed or a sitemap, that is the root.
func rootElement(text []byte) string {
	tags := html.NewTokenizer(bytes.NewReader(text[:min(len(text), maxXMLTag)]))
	first := ""
	for {
		token := tags.Next()
		tags.NextIsNotRawText()
		switch token { //nolint:exhaustive // no others are elements
		case html.ErrorToken:
			return first
		case html.StartTagToken, html.SelfClosingTagToken:
			name := localName(tagName(tags.Raw()))
			if first = cmp.Or(first, name); kindOfRoot(name) != "" {
				return name
			}
			if first == "html" {
				return first
			}
		}
	}
}

// localName is a name without its prefix, in lower case.
func localName(name string) string {
	return strings.ToLower(name[strings.LastIndexByte(name, ':')+1:])
}

// checkXML refuses a document that would cost a parser far more than its size: elements that nest too deep, tags that are
// too long, and more than maxElements elements, if that is not 0. It reads only as much of the grammar as it takes never
// to count less than a parser would find. It also refuses elements without their own end, for which parsers invent one.
func checkXML(text []byte, maxElements int) error {
	var open [][]byte // names
	elements := 0
	for {
		_, rest, found := bytes.Cut(text, []byte("<"))
		if !found {
			if len(open) > 0 {
				return fmt.Errorf("%w: the element %.80q has no end", errParse, open[len(open)-1])
			}
			return nil
		}
		text = rest
		switch {
		case bytes.HasPrefix(text, []byte("!--")):
			text = after(text[3:], "-->")
		case bytes.HasPrefix(text, []byte("![CDATA[")):
			text = after(text[8:], "]]>")
		case secondDeclaration.Match(text):
			return fmt.Errorf("%w: an XML declaration within", errParse) // a parser would change its encoding there
		case bytes.HasPrefix(text, []byte("!")), bytes.HasPrefix(text, []byte("?")):
		case bytes.HasPrefix(text, []byte("/")):
			name := text[1 : 1+nameLength(text[1:])]
			if len(open) == 0 || !bytes.Equal(open[len(open)-1], name) {
				return fmt.Errorf("%w: the end of %.80q does not match", errParse, name)
			}
			open = open[:len(open)-1]
		default:
			length, selfClosing := tagLength(text)
			if length > maxXMLTag {
				return fmt.Errorf("%w: a tag of over %d bytes", ErrTooLarge, maxXMLTag)
			}
			name := text[:min(nameLength(text), length)]
			text = text[length:]
			if elements++; maxElements > 0 && elements > maxElements {
				return fmt.Errorf("%w: more than %d elements", ErrTooLarge, maxElements)
			}
			if selfClosing {
				continue
			}
			if open = append(open, name); len(open) > maxXMLDepth {
				return fmt.Errorf("%w: elements nested over %d deep", ErrTooLarge, maxXMLDepth)
			}
		}
	}
}

// nameLength is how long the name is that a tag begins with.
func nameLength(tag []byte) int {
	if end := bytes.IndexAny(tag[:min(len(tag), maxXMLTag)], " \t\r\n/>"); end >= 0 {
		return end
	}
	return len(tag)
}

// after is what follows the mark; nothing when it does not come.
func after(text []byte, mark string) []byte {
	_, rest, _ := bytes.Cut(text, []byte(mark))
	return rest
}

// tagLength finds the end of a tag, over its quoted values, but looks no further than a tag may be long.
func tagLength(text []byte) (length int, selfClosing bool) {
	quote := byte(0)
	for i, c := range text[:min(len(text), maxXMLTag+1)] {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '>':
			return i + 1, i > 0 && text[i-1] == '/'
		}
	}
	return min(len(text), maxXMLTag+1), false
}
