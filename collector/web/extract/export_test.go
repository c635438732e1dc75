package extract

import (
	"net/url"

	"golang.org/x/net/html/atom"
)

// Resolve makes a reference absolute in both ways there are.
func Resolve(base *url.URL, ref string) (absolute, parsed string) {
	r := resolver{base: base}
	absolute, _ = r.resolve(ref)
	parsed, _ = r.parse(ref)
	return absolute, parsed
}

// IsUTF8 reports whether a document that begins so is in UTF-8.
func IsUTF8(begin, contentType string) bool { return isUTF8([]byte(begin), contentType) }

// ElementOf is the element of a start tag as it is written.
func ElementOf(tag []byte) atom.Atom { return elementOf(tag) }
