package extract

import "net/url"

// Resolve makes a reference absolute; empty if it cannot be a task.
func Resolve(base *url.URL, ref string) string {
	absolute, _ := resolve(base, ref)
	return absolute
}

// IsUTF8 reports whether a document that begins so is in UTF-8.
func IsUTF8(begin, contentType string) bool { return isUTF8([]byte(begin), contentType) }
