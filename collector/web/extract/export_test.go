package extract

import "net/url"

// Resolve makes a reference absolute; empty if it cannot be a task.
func Resolve(base *url.URL, ref string) string {
	absolute, _ := newCollection(base, &Options{}).resolve(base, ref)
	return absolute
}

// EncodingOf is the name of a document's encoding.
func EncodingOf(document, contentType string) string {
	return encodingOf([]byte(document), contentType)
}
