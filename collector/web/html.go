package web

import (
	"bytes"
	"io"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// ExtractLinks finds the links of an HTML document that was fetched from base. It follows what a person can reach by
// clicking or what the page names as a page of its own: a, area, frame and iframe, link elements that name a page
// (next, prev, canonical, alternate and the like) and meta refresh. It honors base href, links whose rel says nofollow,
// and a meta robots element that says nofollow or none. The document is decoded to UTF-8 by its byte order mark, its
// Content-Type or what it says of itself. Markup that is not well formed is read as far as it goes; there is no error
// for it.
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

// decoded is a document in UTF-8.
func decoded(body []byte, contentType string) []byte {
	if _, name, _ := charset.DetermineEncoding(body[:min(len(body), 1024)], contentType); name == "utf-8" && utf8.Valid(body) {
		return body // most of the web; to decode it would take as long as to read its tags
	}
	reader, err := charset.NewReader(bytes.NewReader(body), contentType)
	if err != nil {
		return body // an encoding nobody knows: the ASCII part of it still has links
	}
	// What cannot be decoded ends what is read.
	text, _ := io.ReadAll(reader)
	return text
}

// document reads the tags of a document.
func (x *extraction) document(text []byte) {
	tags := tagReader{text: text}
	for {
		element, ok := tags.next()
		if !ok {
			return
		}
		if len(tags.attrs) > 0 && (x.opts.Resources || hasPageLinks(element)) {
			x.element(element, tags.attrs)
		}
		if element == atom.Style && x.opts.Resources {
			x.addAll(cssURLs(string(tags.rawText())))
		}
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
	if u, err := parseReference(string(href)); err == nil {
		x.base, x.based = x.base.ResolveReference(u), true
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
		if _, absolute, ok := x.resolve(attrs.text("href")); ok {
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
