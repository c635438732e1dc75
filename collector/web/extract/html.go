package extract

import (
	"bytes"
	"errors"
	"io"
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
	based bool       // a base element was seen; only the first one counts
	attrs attributes // of the tag that is read
}

// readPage finds the links of an HTML document. It follows what a person can reach by clicking or what the page names as a
// page of its own: a, area, frame and iframe, link elements that name a page (next, prev, canonical, alternate and the
// like) and meta refresh. It honors base href, links whose rel says nofollow, and meta robots elements. The document is
// decoded to UTF-8 by its byte order mark, its Content-Type or what it says of itself; one that says nothing and is valid in
// UTF-8 is read as that. Markup that is not well formed is read as far as it goes; there is no error for it. A token that
// is too long is left out, and reading goes on behind it.
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
			element := elementOf(z.Raw())
			if element == atom.Noscript || element == atom.Noframes {
				z.NextIsNotRawText() // a crawler runs no script and shows no frame: this part is for it
			}
			inStyle = element == atom.Style
			if !p.opts.Resources && !hasPageLinks(element) {
				continue
			}
			if _, hasAttributes := z.TagName(); hasAttributes {
				p.element(element, p.attributes(z))
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

// elementOf is the element of a start tag as it is written; 0 for one that HTML does not have. The tokenizer's TagName says
// the same, and makes a copy for it: of every tag of a page, when a few are wanted.
func elementOf(tag []byte) atom.Atom {
	name := tag[1:]
	if end := bytes.IndexAny(name, " \t\n\f\r/>"); end >= 0 {
		name = name[:end]
	}
	var lower [16]byte // longer than any name of HTML
	if len(name) > len(lower) {
		return 0
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return atom.Lookup(lower[:len(name)])
}

// attribute is one of a tag.
type attribute struct{ name, value []byte }

// attributes are those of a tag, as long as the tokenizer is at it.
type attributes []attribute

// attributes are those of the tag that z is at, until its next token.
func (p *page) attributes(z *html.Tokenizer) attributes {
	p.attrs = p.attrs[:0]
	for range maxAttributes {
		name, value, more := z.TagAttr()
		p.attrs = append(p.attrs, attribute{name, value})
		if !more {
			break
		}
	}
	return p.attrs
}

// find is the value of an attribute; of two with one name the first counts.
func (list attributes) find(name string) (value []byte, ok bool) {
	for _, a := range list {
		if string(a.name) == name {
			return a.value, true
		}
	}
	return nil, false
}

// text is the value of an attribute; empty when there is none.
func (list attributes) text(name string) string {
	value, _ := list.find(name)
	return string(value)
}

// addAttr adds what an attribute refers to, if there is one.
func (p *page) addAttr(attrs attributes, name string) {
	value, ok := attrs.find(name)
	if !ok {
		return
	}
	if address, _, _ := bytes.Cut(value, []byte{'#'}); !p.refs[string(address)] {
		p.add(string(value))
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
	href, ok := attrs.find("href")
	if !ok || p.based {
		return
	}
	if u, err := ParseReference(string(href), p.base.Scheme); err == nil {
		p.rebase(p.base.ResolveReference(u))
		p.based = true
	}
}

func (p *page) anchor(attrs attributes) {
	if !p.opts.FollowNofollow && hasRel(attrs.text("rel"), "nofollow") {
		p.found.Skipped++
		return
	}
	p.addAttr(attrs, "href")
}

func hasRel(rel, want string) bool {
	for word := range strings.FieldsSeq(rel) {
		if strings.EqualFold(word, want) {
			return true
		}
	}
	return false
}

// linkKind tells what a link element's rel names.
type linkKind int

const (
	linkPage     linkKind = iota // a page of its own
	linkResource                 // something the page needs
	linkHint                     // advice to a browser, naming nothing to fetch
)

func relKind(rel string) linkKind {
	kind := linkPage
	for word := range strings.FieldsSeq(strings.ToLower(rel)) {
		switch word {
		case "stylesheet", "icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon",
			"manifest", "modulepreload", "preload", "search":
			kind = linkResource
		case "dns-prefetch", "preconnect", "pingback":
			return linkHint
		}
	}
	return kind
}

func (p *page) link(attrs attributes) {
	rel := attrs.text("rel")
	if p.found.Canonical == "" && hasRel(rel, "canonical") {
		if absolute, ok := p.resolve(attrs.text("href")); ok {
			p.found.Canonical = absolute
		}
	}
	switch relKind(rel) {
	case linkPage:
		p.anchor(attrs)
	case linkResource:
		if p.opts.Resources {
			p.addAttr(attrs, "href")
		}
	case linkHint:
	}
}

func (p *page) meta(attrs attributes) {
	p.asked.addMeta(attrs.text("name"), attrs.text("content"))
	if strings.EqualFold(attrs.text("http-equiv"), "refresh") {
		if target, ok := refreshTarget(attrs.text("content")); ok {
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

// resource reports what the page needs to be shown.
func (p *page) resource(element atom.Atom, attrs attributes) {
	switch element {
	case atom.Img:
		p.addAttr(attrs, "src")
		p.addAttr(attrs, "lowsrc")
		p.addAll(srcsetURLs(attrs.text("srcset")))
	case atom.Source:
		p.addAttr(attrs, "src")
		p.addAll(srcsetURLs(attrs.text("srcset")))
	case atom.Link:
		p.addAll(srcsetURLs(attrs.text("imagesrcset")))
	case atom.Script, atom.Audio, atom.Track, atom.Embed:
		p.addAttr(attrs, "src")
	case atom.Input:
		if strings.EqualFold(attrs.text("type"), "image") {
			p.addAttr(attrs, "src")
		}
	case atom.Video:
		p.addAttr(attrs, "src")
		p.addAttr(attrs, "poster")
	case atom.Object:
		p.addAttr(attrs, "data")
	case atom.Body, atom.Table, atom.Td, atom.Th:
		p.addAttr(attrs, "background")
	default: // at most a style
	}
	if style := attrs.text("style"); style != "" {
		p.addAll(cssURLs(style))
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
