package extract

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
)

const (
	// maxOpen bounds how deep elements are told apart.
	maxOpen = 1000

	// maxFields bounds the fields of an entry, maxField the bytes of one: URLs and dates.
	maxFields = 256
	maxField  = 4 * MaxURLBytes
)

// markup is a feed or a sitemap that is read tag by tag, as browsers read pages, so that a mistake costs no more than the
// element that has it. Elements that have no end end with the one around them, and an entry where the next one begins. It
// holds no more than one entry at a time.
type markup struct {
	entry func(*entry) // gets each entry
	other func(*field) // gets what stands outside of entries; nil: nobody wants it
	base  *url.URL

	first string // the first element
	root  string // the last outermost element of a feed or a sitemap; what stands around these does not count

	entities map[string]string // texts that the document gives names to
	prefixes map[string]bool   // those of namespaces whose elements count, with their colons
	open     []openElement
	named    map[string]int // how many of open have a name
	current  *entry         // nil: outside of one
	depth    int            // of the current entry
	field    *field         // that is read; its depth is that of open
}

// openElement is one that has no end yet.
type openElement struct {
	name  string // as written, in lower case
	local string // without a prefix that counts
	base  *url.URL
	field bool // it is the field that is read
}

// entry is what is known of an entry of a feed or sitemap.
type entry struct {
	name   string
	about  string // rdf:about
	fields []*field
}

// field is an element of an entry, or one outside of entries.
type field struct {
	name  string
	attrs attributes
	text  string
	base  *url.URL
}

// entryNames are the elements of the roots that are entries. None stands in another one.
var entryNames = map[string]map[string]bool{
	KindFeed:    {"item": true, "entry": true},
	KindSitemap: {"url": true, "sitemap": true},
}

// fieldNames are the elements that are read. They have no others in them.
var fieldNames = map[string]bool{
	"link": true, "guid": true, "id": true, "enclosure": true, "content": true,
	"updated": true, "modified": true, "published": true, "pubdate": true, "issued": true, "date": true, "created": true,
	"ttl": true, "updateperiod": true, "updatefrequency": true,
	"loc": true, "lastmod": true,
}

// fieldAttributes are the attributes that are read.
var fieldAttributes = map[string]bool{
	"href": true, "url": true, "src": true, "rel": true, "type": true, "ispermalink": true, "rdf:about": true, "xml:base": true,
}

// newMarkup knows the prefixes by which everybody writes the namespaces that count; documents often do not declare them.
func newMarkup(base *url.URL, entry func(*entry), other func(*field)) *markup {
	return &markup{
		base: base, entry: entry, other: other, named: map[string]int{}, entities: map[string]string{},
		prefixes: map[string]bool{"": true, "atom:": true, "a10:": true, "rss:": true, "dc:": true, "dcterms:": true, "sy:": true, "xhtml:": true},
	}
}

// readKind reads a document of one kind: a feed is no sitemap.
func (m *markup) readKind(ctx context.Context, text io.Reader, kind string) error {
	err := m.read(ctx, text)
	if err == nil && kindOfRoot(m.root) != kind {
		err = fmt.Errorf("%w: its root element is %q", errParse, m.root)
	}
	return err
}

// read reads the document. It fails when it is no feed or sitemap, when it has no end, and when it cannot be read further.
func (m *markup) read(ctx context.Context, text io.Reader) error {
	var err error
	for {
		tags := html.NewTokenizer(text)
		tags.SetMaxBuf(maxToken)
		tags.AllowCDATA(true)
		if err = m.tokens(ctx, tags); !errors.Is(err, html.ErrBufferExceeded) {
			break
		}
		text = io.MultiReader(bytes.NewReader(bytes.Clone(tags.Buffered())), text)
	}
	if m.field != nil && (m.field.name == "loc" || m.field.name == "link") {
		m.current = nil // its address may be cut
	}
	m.field = nil
	ended := len(m.open) == 0
	m.end(0)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case m.root == "" && (err == nil || errors.Is(err, io.EOF)):
		return fmt.Errorf("%w: its root element is %q", errParse, m.first)
	case m.root != "" && ended:
		return nil
	case !errors.Is(err, io.EOF):
		return err
	}
	return fmt.Errorf("%w: <%s> has no end", errParse, m.root)
}

// tokens reads up to the end, which is an error; nil: it is a page.
func (m *markup) tokens(ctx context.Context, tags *html.Tokenizer) error {
	for n := 0; ; n++ {
		if n%1000 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch token := tags.Next(); token {
		case html.ErrorToken:
			return tags.Err()
		case html.TextToken:
			if m.field != nil && m.open[len(m.open)-1].field && len(m.field.text) < maxField {
				m.field.text += m.unescaped(tags.Raw())
			}
		case html.DoctypeToken, html.CommentToken: // the tokenizer ends a DOCTYPE within its first declaration
			if m.root != "" || len(m.entities) >= maxAttributes {
				continue
			}
			if declared := entityDeclared.FindSubmatch(tags.Raw()); len(declared) > 0 && len(declared[0]) <= maxField {
				m.entities[string(declared[1])] = cmp.Or(string(declared[2]), string(declared[3]))
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			tags.NextIsNotRawText() // no element of XML has text that is read in another way
			m.start(tags, token == html.SelfClosingTagToken)
			if m.root == "" && m.first == "html" {
				return nil
			}
		case html.EndTagToken:
			name, _ := tags.TagName()
			if m.named[string(name)] > 0 {
				at := len(m.open) - 1
				for m.open[at].name != string(name) {
					at--
				}
				m.end(at)
			}
		}
	}
}

// start opens an element; ends: it has no content.
func (m *markup) start(tags *html.Tokenizer, ends bool) {
	written, hasAttributes := tags.TagName()
	name := string(written[:min(len(written), maxField)])
	prefix, local := name[:strings.LastIndexByte(name, ':')+1], name[strings.LastIndexByte(name, ':')+1:]
	if m.first == "" {
		m.first = local
	}
	if len(m.open) == 0 {
		if kind := kindOfRoot(local); kind != KindFeed && kind != KindSitemap {
			return // such as a warning of the program that made it
		}
		m.root = local
		m.prefixes[prefix] = true
	}
	var attrs attributes
	if hasAttributes && (entryNames[kindOfRoot(m.root)][local] || fieldNames[local] || len(m.open) < 2) {
		attrs = attributesOf(tags)
		for key, value := range attrs {
			value = bounded(strings.TrimSpace(m.expanded(value)))
			attrs[key] = value
			if !fieldAttributes[key] {
				delete(attrs, key)
			}
			if strings.HasPrefix(key, "xmlns:") && len(key) <= maxField && len(m.prefixes) < maxAttributes && namespaces.MatchString(value) {
				m.prefixes[key[len("xmlns:"):]+":"] = true
			}
		}
	}
	if !m.prefixes[prefix] {
		local = name
	}
	isEntry, isField := entryNames[kindOfRoot(m.root)][local], fieldNames[local]
	switch last := len(m.open) - 1; {
	case isEntry && m.current != nil:
		m.end(m.depth - 1)
	case last >= 0 && (isField || isEntry || local == "title") && (m.open[last].field || m.open[last].local == "title"):
		m.end(last)
	}
	e := openElement{name: name, local: local, base: m.base}
	if len(m.open) > 0 {
		e.base = m.open[len(m.open)-1].base
	}
	if base := attrs["xml:base"]; base != "" {
		if ref, err := ParseReference(base, e.base.Scheme); err == nil && len(e.base.Path)+len(base) <= MaxURLBytes {
			e.base = e.base.ResolveReference(ref)
		}
	}
	switch {
	case isEntry:
		m.current, m.depth = &entry{name: local, about: attrs["rdf:about"]}, len(m.open)+1
	case isField && m.field == nil && (local != "content" || attrs["src"] != "") && (m.current != nil && len(m.open) == m.depth || m.current == nil && m.other != nil):
		m.field = &field{name: local, attrs: attrs, base: e.base}
		e.field = true
	}
	m.open = append(m.open, e)
	m.named[name]++
	if ends || len(m.open) > maxOpen {
		m.end(len(m.open) - 1)
	}
}

// bounded is a text up to what a field may have: beyond it there is neither a URL nor a date.
func bounded(text string) string {
	if len(text) > maxField {
		return strings.Clone(text[:maxField])
	}
	return text
}

// unquoted is a text without quotes, brackets and spaces of no width around it. Behind an address alone they are part of it.
func unquoted(text string) string {
	if signs := "\"<>\u200b"; strings.TrimLeft(text, signs) != text {
		return strings.Trim(text, signs)
	}
	return text
}

// namespaces are those of Atom, RSS, the syndication module of RSS 1.0, Dublin Core, and sitemaps.
var namespaces = regexp.MustCompile(`(?i)(?:w3\.org/2005/Atom|netscape\.com/rdf/simple/0\.9|userland\.com/rss\d*|/schemas/sitemap/0\.\d+|purl\.org/(?:atom/ns(?:#.*)?|rss/1\.0(?:/modules/syndication)?|dc/(?:elements/1\..|terms)))[/#]?\s*$`)

// end ends the innermost elements, down to n.
func (m *markup) end(n int) {
	for len(m.open) > n {
		last := m.open[len(m.open)-1]
		switch {
		case last.field && m.field != nil:
			m.field.text = bounded(unquoted(strings.TrimSpace(m.field.text)))
			if m.current == nil {
				m.other(m.field)
			} else if len(m.current.fields) < maxFields {
				m.current.fields = append(m.current.fields, m.field)
			}
			m.field = nil
		case m.current != nil && len(m.open) == m.depth:
			m.entry(m.current)
			m.current = nil
		}
		if m.named[last.name]--; m.named[last.name] == 0 {
			delete(m.named, last.name)
		}
		m.open = m.open[:len(m.open)-1]
	}
}

var (
	// reference is one of XML or of HTML. What looks like one and has no semicolon is part of a URL.
	reference = regexp.MustCompile(`&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);`)

	// entityDeclared gives a name to a text that has no markup and no other references.
	entityDeclared = regexp.MustCompile(`<!ENTITY\s+([A-Za-z][A-Za-z0-9]*)\s+(?:"([^"<%&]+)"|'([^'<%&]+)')\s*>$`)
)

// expanded has the texts that the document gives names to, up to the length of a field.
func (m *markup) expanded(text string) string {
	if len(m.entities) == 0 {
		return text
	}
	room := maxField
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		if value, known := m.entities[ref[1:len(ref)-1]]; known && len(value) <= room {
			room -= len(value)
			return value
		}
		return ref
	})
}

// unescaped is a text as it is meant.
func (m *markup) unescaped(raw []byte) string {
	if inside, is := bytes.CutPrefix(raw, []byte("<![CDATA[")); is {
		return string(bytes.TrimSuffix(inside, []byte("]]>")))
	}
	if bytes.IndexByte(raw, '&') < 0 {
		return string(raw)
	}
	return reference.ReplaceAllStringFunc(m.expanded(string(raw)), func(ref string) string {
		text := html.UnescapeString(ref)
		if r := []rune(text)[0]; r == utf8.RuneError || unicode.IsControl(r) && !unicode.IsSpace(r) {
			return "" // as such characters are that stand there themselves
		}
		return text
	})
}

// rootElement is the local name of the first element of a document, in lower case, or of the first that is a feed's, a
// sitemap's or a page's; empty: it has none.
func rootElement(text []byte) string {
	tags := html.NewTokenizer(bytes.NewReader(text))
	first := ""
	for {
		token := tags.Next()
		tags.NextIsNotRawText()
		switch token { //nolint:exhaustive // no others are elements
		case html.ErrorToken:
			return first
		case html.StartTagToken, html.SelfClosingTagToken:
			name, _ := tags.TagName()
			local := string(name[bytes.LastIndexByte(name, ':')+1:])
			if kindOfRoot(local) != "" {
				return local
			}
			if first == "" {
				first = local
			}
		}
	}
}
