package extract

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

const (
	// maxToken bounds what the tokenizer holds of one tag, text or script, and so what it makes of its attributes.
	maxToken = 1 << 20

	// maxAttributes is how many attributes of an element count.
	maxAttributes = 64
)

// page is an HTML document that is read.
type page struct {
	*collection
	asked *directives
	based bool // a base element was seen; only the first one counts
}

// readPage finds the links of an HTML document. It follows what a person can click, and what the page names as a page of its
// own: a, area, frame, iframe, meta refresh, and link elements that name a page (next, canonical, alternate and the like).
// It honors base href, rel nofollow and meta robots. Malformed markup is no error: it is read as far as possible. A token that
// is too long is skipped.
func readPage(c *collection, asked *directives, body []byte, contentType string) {
	p := &page{collection: c, asked: asked}
	for reader := decoded(body, contentType); ; {
		z := html.NewTokenizer(reader)
		z.SetMaxBuf(maxToken)
		p.tokens(z)
		if !errors.Is(z.Err(), html.ErrBufferExceeded) {
			return // io.EOF, or the end of what can be read
		}
		reader = io.MultiReader(bytes.NewReader(bytes.Clone(z.Buffered())), reader)
	}
}

func (p *page) tokens(z *html.Tokenizer) {
	inStyle := false
	for {
		switch z.Next() {
		case html.ErrorToken:
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			name, hasAttributes := z.TagName()
			element := atom.Lookup(name)
			if element == atom.Noscript || element == atom.Noframes {
				z.NextIsNotRawText() // a crawler runs no script and shows no frame: this part is for it
			}
			inStyle = element == atom.Style
			if hasAttributes && (p.opts.Resources || hasPageLinks(element)) {
				p.element(element, attributesOf(z))
			}
		case html.TextToken:
			if inStyle && p.opts.Resources {
				p.addAll(cssURLs(string(z.Text())))
			}
		case html.EndTagToken:
			inStyle = false
		default: // comments and doctypes
		}
	}
}

// attributes are those of a tag. The first of two with one name counts.
type attributes map[string]string

func attributesOf(z *html.Tokenizer) attributes {
	attrs := attributes{}
	for range maxAttributes {
		name, value, more := z.TagAttr()
		if _, known := attrs[string(name)]; !known {
			attrs[string(name)] = string(value)
		}
		if !more {
			break
		}
	}
	return attrs
}

// addAttr adds what an attribute refers to, if there is one.
func (p *page) addAttr(attrs attributes, name string) {
	if value, ok := attrs[name]; ok {
		p.add(value)
	}
}

func hasPageLinks(element atom.Atom) bool {
	switch element {
	case atom.A, atom.Area, atom.Frame, atom.Iframe, atom.Link, atom.Meta, atom.Base:
		return true
	default: // links to no page
		return false
	}
}

// element reports the links of one start tag.
func (p *page) element(element atom.Atom, attrs attributes) {
	switch element {
	case atom.Base:
		p.setBase(attrs)
	case atom.A, atom.Area:
		p.anchor(attrs)
	case atom.Frame, atom.Iframe:
		p.addAttr(attrs, "src")
	case atom.Link:
		p.link(attrs)
	case atom.Meta:
		p.meta(attrs)
	default: // links to no page
	}
	if p.opts.Resources {
		p.resource(element, attrs)
	}
}

func (p *page) setBase(attrs attributes) {
	href, ok := attrs["href"]
	if !ok || p.based {
		return
	}
	if u, err := ParseReference(href, p.base.Scheme); err == nil {
		p.base = p.base.ResolveReference(u)
		p.based = true
	}
}

func (p *page) anchor(attrs attributes) {
	if !p.opts.FollowNofollow && hasRel(attrs["rel"], "nofollow") {
		p.found.Skipped++
		return
	}
	p.addAttr(attrs, "href")
}

// hasRel reports whether rel has one of some words, which are in lower case.
func hasRel(rel string, words ...string) bool {
	for word := range strings.FieldsSeq(strings.ToLower(rel)) {
		if slices.Contains(words, word) {
			return true
		}
	}
	return false
}

// Link elements with one of these words in rel name a resource of the page, or nothing to fetch. All others name a page.
var (
	resourceRels = []string{
		"stylesheet", "icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon", "manifest", "modulepreload", "preload", "search",
	}
	hintRels = []string{"dns-prefetch", "preconnect", "pingback"}
)

func (p *page) link(attrs attributes) {
	rel := attrs["rel"]
	if p.found.Canonical == "" && hasRel(rel, "canonical") {
		if absolute, ok := resolve(p.base, attrs["href"]); ok {
			p.found.Canonical = absolute
		}
	}
	switch {
	case hasRel(rel, hintRels...):
	case !hasRel(rel, resourceRels...):
		p.anchor(attrs)
	case p.opts.Resources:
		p.addAttr(attrs, "href")
	}
}

func (p *page) meta(attrs attributes) {
	p.asked.addMeta(attrs["name"], attrs["content"])
	if strings.EqualFold(attrs["http-equiv"], "refresh") {
		if target, ok := refreshTarget(attrs["content"]); ok {
			p.add(target)
		}
	}
}

// refreshTarget reads `5; url=next.html`.
func refreshTarget(content string) (string, bool) {
	_, rest, found := strings.Cut(content, ";")
	if !found {
		return "", false
	}
	name, value, found := strings.Cut(rest, "=")
	if !found || !strings.EqualFold(strings.TrimSpace(name), "url") {
		return "", false
	}
	return strings.Trim(strings.TrimSpace(value), `"'`), true
}

// resourceAttributes name what a page needs to be shown.
var resourceAttributes = map[atom.Atom][]string{
	atom.Img: {"src", "lowsrc"}, atom.Source: {"src"}, atom.Script: {"src"}, atom.Audio: {"src"}, atom.Track: {"src"}, atom.Embed: {"src"},
	atom.Video: {"src", "poster"}, atom.Object: {"data"},
	atom.Body: {"background"}, atom.Table: {"background"}, atom.Td: {"background"}, atom.Th: {"background"},
}

// resource adds what the page needs to be shown.
func (p *page) resource(element atom.Atom, attrs attributes) {
	for _, name := range resourceAttributes[element] {
		p.addAttr(attrs, name)
	}
	switch element {
	case atom.Img, atom.Source:
		p.addAll(srcsetURLs(attrs["srcset"]))
	case atom.Link:
		p.addAll(srcsetURLs(attrs["imagesrcset"]))
	case atom.Input:
		if strings.EqualFold(attrs["type"], "image") {
			p.addAttr(attrs, "src")
		}
	default: // at most a style
	}
	p.addAll(cssURLs(attrs["style"]))
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
