package extract

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"

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
	based bool // a base element with href was seen; only the first one counts
}

// readPage finds the links of an HTML document. It follows what a person can click, and what the page names as a page of its
// own: a, area, frame, iframe, meta refresh, and link elements that name a page or a feed by their rel and type.
// It honors base href, rel nofollow and meta robots. Malformed markup is no error: it is read as far as possible. A token that
// is too long is skipped.
func readPage(c *collection, asked *directives, body []byte, contentType string) {
	p := &page{collection: c, asked: asked}
	var reader io.Reader
	for reader, c.encoding = decoded(body, contentType); ; {
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
	inStyle, inTitle := false, false
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
			inStyle, inTitle = element == atom.Style, element == atom.Title && p.found.Title == ""
			if hasAttributes && (p.opts.Resources || hasPageLinks(element)) {
				p.element(element, attributesOf(z))
			}
		case html.TextToken:
			if inTitle {
				p.found.Title = ownWords(string(z.Text()))
			}
			if inStyle && p.opts.Resources {
				p.addAll(cssURLs(string(z.Text())))
			}
		case html.EndTagToken:
			inStyle, inTitle = false, false
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

// setBase takes the first base element with href, as browsers do: if that is no web address, there is no other.
func (p *page) setBase(attrs attributes) {
	href, ok := attrs["href"]
	if !ok || p.based {
		return
	}
	p.based = true
	if u, err := ParseReference(href, p.base.Scheme); err == nil {
		if u = p.base.ResolveReference(u); u.Scheme == "http" || u.Scheme == "https" {
			p.base = u
		}
	}
}

func (p *page) anchor(attrs attributes) {
	if !p.opts.FollowNofollow && hasRel(attrs["rel"], "nofollow") {
		p.found.Skipped++
		return
	}
	if _, ok := attrs["href"]; ok {
		p.addAttr(attrs, "href")
	} else {
		p.addAttr(attrs, "xlink:href") // of an anchor in SVG
	}
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

// Link elements with one of these words in rel name a resource of the page, or a page. All others name nothing to fetch.
var (
	resourceRels = []string{
		"stylesheet", "icon", "apple-touch-icon", "apple-touch-icon-precomposed", "apple-touch-startup-image", "fluid-icon", "mask-icon",
		"image_src", "manifest", "modulepreload", "preload", "prefetch", "search",
	}
	pageRels = []string{
		"alternate", "amphtml", "archives", "author", "canonical", "chapter", "contents", "first", "glossary", "help", "home", "index", "last",
		"license", "next", "prev", "previous", "privacy-policy", "section", "start", "subsection", "terms-of-service", "toc", "top", "up",
	}
)

func (p *page) link(attrs attributes) {
	rel := attrs["rel"]
	if p.found.Canonical == "" && hasRel(rel, "canonical") {
		if absolute, ok := p.resolve(p.base, attrs["href"]); ok {
			p.found.Canonical = absolute
		}
	}
	switch {
	case hasRel(rel, resourceRels...):
		if p.opts.Resources {
			p.addAttr(attrs, "href")
		}
	case hasRel(rel, pageRels...) && isPageType(attrs["type"]):
		p.anchor(attrs)
	}
}

// isPageType reports whether a link element with such a type names a page or a feed.
func isPageType(mediaType string) bool {
	mediaType, _, _ = strings.Cut(mediaType, ";")
	switch strings.ToLower(strings.TrimSpace(mediaType)) {
	case "", "text/html", "application/xhtml+xml", "application/rss+xml", "application/atom+xml", "application/rdf+xml",
		"application/feed+json", "application/xml", "text/xml":
		return true
	}
	return false
}

func (p *page) meta(attrs attributes) {
	p.asked.addMeta(attrs["name"], attrs["content"])
	p.describe(strings.ToLower(cmp.Or(attrs["property"], attrs["name"], attrs["itemprop"])), attrs["content"])
	if strings.EqualFold(strings.TrimSpace(attrs["http-equiv"]), "refresh") {
		p.addRefresh(attrs["content"])
	}
}

// describe takes what a meta element says of the document. The first that says it counts, and the title element before og:title.
func (p *page) describe(name, content string) {
	switch name {
	case "og:title":
		p.found.Title = cmp.Or(p.found.Title, ownWords(content))
	case "author", "article:author", "dc.creator":
		p.found.Author = cmp.Or(p.found.Author, ownWords(content))
	case "article:published_time", "datepublished", "date", "dc.date", "dc.date.issued", "publish-date", "pubdate":
		if p.found.Published.IsZero() {
			p.found.Published = ReadTime(strings.TrimSpace(content)).UTC()
		}
	}
}

// maxOwnWords bounds what a document says of itself, in bytes.
const maxOwnWords = 1000

// ownWords is a text on one line, as long as it may be.
func ownWords(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxOwnWords)], "")
}

// refresh is what meta refresh and the Refresh header have: `5; url=next.html`, in each form that the HTML standard reads
// (https://html.spec.whatwg.org/#shared-declarative-refresh-steps).
var refresh = regexp.MustCompile(`(?is)^\s*(?:[0-9]+|\.)[0-9.]*(?:\s*[;,]|\s)\s*(?:url\s*=\s*)?(.*)`)

// addRefresh adds the page that another one leads to by itself.
func (c *collection) addRefresh(content string) {
	match := refresh.FindStringSubmatch(content)
	if match == nil {
		return
	}
	target := match[1]
	if target != "" && (target[0] == '"' || target[0] == '\'') {
		target, _, _ = strings.Cut(target[1:], target[:1])
	}
	if target != "" {
		c.add(target)
	}
}

// resourceAttributes name what a page needs to be shown.
var resourceAttributes = map[atom.Atom][]string{
	atom.Img: {"src", "lowsrc"}, atom.Source: {"src"}, atom.Script: {"src"}, atom.Audio: {"src"}, atom.Track: {"src"}, atom.Embed: {"src"},
	atom.Video: {"src", "poster"}, atom.Object: {"data"}, atom.Image: {"href", "xlink:href"},
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
