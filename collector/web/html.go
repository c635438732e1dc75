package web

import (
	"bytes"
	"errors"
	"io"
	"net/url"
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

// ExtractLinks finds the links of an HTML document that was fetched from base. It follows what a person can reach by
// clicking or what the page names as a page of its own: a, area, frame and iframe, link elements that name a page
// (next, prev, canonical, alternate and the like) and meta refresh. It honors base href, links whose rel says nofollow,
// and a meta robots element that says nofollow or none. The document is decoded to UTF-8 by its byte order mark, its
// Content-Type or what it says of itself; one that says nothing and is valid in UTF-8 is read as that. Markup that is not
// well formed is read as far as it goes; there is no error for it.
func ExtractLinks(base *url.URL, body []byte, opts ExtractOptions) Links {
	x := newExtraction(base, opts)
	x.document(decoded(body, opts.ContentType))
	if x.directives.noFollow && !opts.FollowNofollow {
		x.links.Skipped += len(x.links.URLs)
		x.links.URLs = nil
	}
	x.links.NoIndex = x.directives.noIndex
	return x.links
}

// document reads the tokens of a document. One that is too long is left out, and reading goes on behind it.
func (x *extraction) document(reader io.Reader) {
	for {
		z := html.NewTokenizer(reader)
		z.SetMaxBuf(maxToken)
		x.tokens(z)
		if !errors.Is(z.Err(), html.ErrBufferExceeded) {
			return // io.EOF, or the end of what can be read
		}
		reader = io.MultiReader(bytes.NewReader(bytes.Clone(z.Buffered())), reader)
	}
}

func (x *extraction) tokens(z *html.Tokenizer) {
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
			if !x.opts.Resources && !hasPageLinks(element) {
				continue
			}
			if _, hasAttributes := z.TagName(); hasAttributes {
				x.element(element, x.attributes(z))
			}
		case html.TextToken:
			if inStyle && x.opts.Resources {
				x.addAll(cssURLs(string(z.Text())))
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
func (x *extraction) attributes(z *html.Tokenizer) attributes {
	x.attrs = x.attrs[:0]
	for range maxAttributes {
		name, value, more := z.TagAttr()
		x.attrs = append(x.attrs, attribute{name, value})
		if !more {
			break
		}
	}
	return x.attrs
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

func hasPageLinks(element atom.Atom) bool {
	switch element {
	case atom.A, atom.Area, atom.Frame, atom.Iframe, atom.Link, atom.Meta, atom.Base:
		return true
	default: // links to no page
		return false
	}
}

// element reports the links of one start tag.
func (x *extraction) element(element atom.Atom, attrs attributes) {
	switch element {
	case atom.Base:
		x.setBase(attrs)
	case atom.A, atom.Area:
		x.anchor(attrs)
	case atom.Frame, atom.Iframe:
		x.addAttr(attrs, "src")
	case atom.Link:
		x.link(attrs)
	case atom.Meta:
		x.meta(attrs)
	default: // links to no page
	}
	if x.opts.Resources {
		x.resource(element, attrs)
	}
}

func (x *extraction) setBase(attrs attributes) {
	href, ok := attrs.find("href")
	if !ok || x.based {
		return
	}
	if u, err := parseReference(string(href), x.base.Scheme); err == nil {
		x.resolver, x.based = resolver{base: x.base.ResolveReference(u)}, true
		clear(x.refs)
	}
}

func (x *extraction) anchor(attrs attributes) {
	if !x.opts.FollowNofollow && hasRel(attrs.text("rel"), "nofollow") {
		x.links.Skipped++
		return
	}
	x.addAttr(attrs, "href")
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

func (x *extraction) link(attrs attributes) {
	rel := attrs.text("rel")
	if x.links.Canonical == "" && hasRel(rel, "canonical") {
		if absolute, ok := x.resolve(attrs.text("href")); ok {
			x.links.Canonical = absolute
		}
	}
	switch relKind(rel) {
	case linkPage:
		x.anchor(attrs)
	case linkResource:
		if x.opts.Resources {
			x.addAttr(attrs, "href")
		}
	case linkHint:
	}
}

func (x *extraction) meta(attrs attributes) {
	name := attrs.text("name")
	if strings.EqualFold(name, "robots") || (x.opts.RobotsAgent != "" && strings.EqualFold(name, x.opts.RobotsAgent)) {
		x.directives.add(attrs.text("content"))
	}
	if strings.EqualFold(attrs.text("http-equiv"), "refresh") {
		if target, ok := refreshTarget(attrs.text("content")); ok {
			x.add(target)
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
