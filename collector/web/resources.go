package web

import (
	"strings"

	"golang.org/x/net/html/atom"
)

// resource reports what the page needs to be shown.
func (x *extraction) resource(element atom.Atom, attrs attributes) {
	switch element {
	case atom.Img:
		x.addAttr(attrs, "src")
		x.addAttr(attrs, "lowsrc")
		x.addAll(srcsetURLs(attrs.text("srcset")))
	case atom.Source:
		x.addAttr(attrs, "src")
		x.addAll(srcsetURLs(attrs.text("srcset")))
	case atom.Link:
		x.addAll(srcsetURLs(attrs.text("imagesrcset")))
	case atom.Script, atom.Audio, atom.Track, atom.Embed:
		x.addAttr(attrs, "src")
	case atom.Input:
		if strings.EqualFold(attrs.text("type"), "image") {
			x.addAttr(attrs, "src")
		}
	case atom.Video:
		x.addAttr(attrs, "src")
		x.addAttr(attrs, "poster")
	case atom.Object:
		x.addAttr(attrs, "data")
	case atom.Body, atom.Table, atom.Td, atom.Th:
		x.addAttr(attrs, "background")
	default: // at most a style
	}
	if style := attrs.text("style"); style != "" {
		x.addAll(cssURLs(style))
	}
}

// srcsetURLs takes the URLs of `small.png 480w, large.png 2x`. A URL may hold commas, but not white space, and does not
// end in one.
func srcsetURLs(srcset string) []string {
	var urls []string
	for rest := srcset; ; {
		rest = strings.TrimLeft(rest, " \t\r\n\f,")
		if rest == "" {
			return urls
		}
		end := strings.IndexAny(rest, " \t\r\n\f")
		if end < 0 {
			return append(urls, strings.TrimRight(rest, ","))
		}
		candidate := rest[:end]
		rest = rest[end:]
		if trimmed := strings.TrimRight(candidate, ","); trimmed != candidate {
			urls = append(urls, trimmed) // no descriptor: the comma ends it
			continue
		}
		urls = append(urls, candidate)
		_, rest, _ = strings.Cut(rest, ",") // skip the descriptor
	}
}
