package web

import (
	"bytes"

	"golang.org/x/net/html"
)

// attribute is one of a tag, as it is written.
type attribute struct {
	name  []byte
	value []byte
}

// attributes are those of a tag, at most maxAttributes.
type attributes []attribute

// find decodes the value of an attribute; of two with one name the first counts. The name is in lower case.
func (list attributes) find(name string) (value []byte, ok bool) {
	for _, a := range list {
		if a.is(name) {
			return decodeValue(a.value), true
		}
	}
	return nil, false
}

// text is the value of an attribute; empty when there is none.
func (list attributes) text(name string) string {
	value, _ := list.find(name)
	return string(value)
}

func (a attribute) is(name string) bool {
	if len(a.name) != len(name) {
		return false
	}
	for i, c := range a.name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != name[i] {
			return false
		}
	}
	return true
}

// decodeValue undoes what the value of an attribute has of escapes. It leaves the document as it is.
func decodeValue(raw []byte) []byte {
	if bytes.IndexByte(raw, '&') < 0 && bytes.IndexByte(raw, '\r') < 0 && bytes.IndexByte(raw, 0) < 0 {
		return raw
	}
	if value, ok := onlyAmpersands(raw); ok {
		return value
	}
	tag := append([]byte(`<a b="`), bytes.ReplaceAll(raw, []byte{'"'}, []byte("&#34;"))...)
	z := html.NewTokenizer(bytes.NewReader(append(tag, `">`...)))
	z.Next()
	z.TagName()
	_, value, _ := z.TagAttr()
	return value
}

// onlyAmpersands decodes a value that has no escapes but those of the ampersands between the parameters of a URL, nearly
// all there are: "?a=1&amp;b=2", or, without an escape, "?a=1&b=2".
func onlyAmpersands(raw []byte) (value []byte, ok bool) {
	if bytes.IndexByte(raw, '\r') >= 0 || bytes.IndexByte(raw, 0) >= 0 {
		return nil, false
	}
	value = make([]byte, 0, len(raw))
	for rest := raw; ; {
		at := bytes.IndexByte(rest, '&')
		if at < 0 {
			return append(value, rest...), true
		}
		value = append(value, rest[:at+1]...)
		rest = rest[at+1:]
		switch {
		case bytes.HasPrefix(rest, []byte("amp;")):
			rest = rest[len("amp;"):]
		case !isParameter(rest):
			return nil, false
		}
	}
}

// isParameter tells whether text begins with letters, digits and an equals sign: no escape does.
func isParameter(text []byte) bool {
	for i, c := range text {
		if !isLetter(c) && (c < '0' || c > '9') {
			return i > 0 && c == '='
		}
	}
	return false
}
