package web

import (
	"net/url"
	"regexp"
	"strings"
)

// cssReference matches url(x), url("x"), url('x'), @import "x" and @import 'x'; comments are taken out before.
var cssReference = regexp.MustCompile(`(?i)url\(\s*(?:"([^"\n]*)"|'([^'\n]*)'|([^"'()\s]+))\s*\)|@import\s+(?:"([^"\n]*)"|'([^'\n]*)')`)

var cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)

// maxStyleRefs is how many references of one style sheet or style element count.
const maxStyleRefs = 20_000

// cssURLs finds the references of a style sheet or of a style attribute, in order of appearance, not resolved.
func cssURLs(css string) []string {
	if !strings.Contains(css, "(") && !strings.Contains(css, "@") {
		return nil
	}
	var refs []string
	for _, match := range cssReference.FindAllStringSubmatch(cssComment.ReplaceAllString(css, " "), maxStyleRefs) {
		for _, ref := range match[1:] {
			if ref != "" {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// ExtractStyleSheetLinks finds what a style sheet that was fetched from base points at: images, fonts, imports.
// References are resolved as ExtractLinks does; data: URLs count as skipped.
func ExtractStyleSheetLinks(base *url.URL, css []byte, opts ExtractOptions) Links {
	x := newExtraction(base, opts)
	x.addAll(cssURLs(string(css)))
	return x.links
}
