package extract

import (
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
