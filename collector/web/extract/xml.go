package extract

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

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
	default:
		if declared := xmlEncoding.FindSubmatch(xmlDeclaration.Find(body)); declared != nil {
			label = string(declared[1])
		} else if _, after, found := strings.Cut(strings.ToLower(contentType), "charset="); found {
			label = strings.Trim(after, `"' `)
		}
	}
	if encoding, name := charset.Lookup(label); encoding != nil && name != "utf-8" && name != "replacement" {
		if decoded, err := encoding.NewDecoder().Bytes(body); err == nil {
			body = decoded
		}
	}
	return body[len(xmlDeclaration.Find(body)):]
}

// rootElement is the local name of a document's root element, in lower case; empty when it has none.
func rootElement(text []byte) string {
	decoder := xml.NewDecoder(io.LimitReader(bytes.NewReader(text), maxXMLTag))
	decoder.Strict = false
	for {
		token, err := decoder.RawToken()
		if err != nil {
			return ""
		}
		if start, ok := token.(xml.StartElement); ok {
			return strings.ToLower(start.Name.Local)
		}
	}
}

// checkXML refuses a document that would cost a parser far more than its size: elements that nest too deep, tags that are
// too long, and more than maxElements elements, if that is not 0. It reads only as much of the grammar as it takes never
// to count less than a parser would find.
func checkXML(text []byte, maxElements int) error {
	depth, elements := 0, 0
	for {
		_, rest, found := bytes.Cut(text, []byte("<"))
		if !found {
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
			depth = max(depth-1, 0)
		default:
			length, selfClosing := tagLength(text)
			if length > maxXMLTag {
				return fmt.Errorf("%w: a tag of over %d bytes", errParse, maxXMLTag)
			}
			text = text[length:]
			if elements++; maxElements > 0 && elements > maxElements {
				return fmt.Errorf("%w: more than %d elements", ErrTooLarge, maxElements)
			}
			if selfClosing {
				continue
			}
			if depth++; depth > maxXMLDepth {
				return fmt.Errorf("%w: elements nested over %d deep", errParse, maxXMLDepth)
			}
		}
	}
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
