package web

import (
	"bytes"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// maxURLLength is the longest URL that Waggle takes, in bytes. A longer link is counted as skipped.
const maxURLLength = 2048

// Links is what a document points at.
type Links struct {
	// URLs are absolute, http or https, without fragment, each once, in order of appearance, without the document's own.
	URLs []string

	// Skipped counts the links that cannot be a task: other schemes, URLs that do not parse or have no host,
	// URLs over 2 KiB, and those beyond the limit that ExtractLinks was given.
	Skipped int
}

// ExtractOptions says what ExtractLinks reports.
type ExtractOptions struct {
	// ContentType is the document's Content-Type header; its charset helps to decode the document.
	ContentType string

	// Resources adds what a page needs to be shown: images, scripts, style sheets, media, icons.
	Resources bool

	// Limit is the largest number of URLs to report; the rest is counted in Skipped. 0 means no limit.
	Limit int
}

// ExtractLinks finds the links of an HTML document that was fetched from base. It follows what a person can reach by
// clicking or what the page names as a page of its own: a, area, frame and iframe, link elements that name a page
// (next, prev, canonical, alternate and the like) and meta refresh. It honors base href, and a meta robots element
// that says nofollow or none. Markup that is not well formed is read as far as it goes; there is no error for it.
func ExtractLinks(base *url.URL, body []byte, opts ExtractOptions) Links {
	x := newExtraction(base, opts)
	reader, err := charset.NewReader(bytes.NewReader(body), opts.ContentType)
	if err != nil {
		reader = bytes.NewReader(body) // an encoding nobody knows: the ASCII part of it still has links
	}
	x.document(html.NewTokenizer(reader))
	if x.nofollow {
		return Links{Skipped: x.links.Skipped + len(x.links.URLs)}
	}
	return x.links
}

// extraction is the state of one pass over a document.
type extraction struct {
	base     *url.URL
	opts     ExtractOptions
	seen     map[string]bool
	links    Links
	based    bool // a base element was seen; only the first one counts
	nofollow bool
	inStyle  bool
}

func newExtraction(base *url.URL, opts ExtractOptions) *extraction {
	own := *base
	own.Fragment, own.RawFragment = "", ""
	return &extraction{base: base, opts: opts, seen: map[string]bool{own.String(): true}}
}

func (x *extraction) document(z *html.Tokenizer) {
	for {
		switch z.Next() {
		case html.ErrorToken:
			return // io.EOF, or the end of what can be read
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			if token.DataAtom == atom.Noscript || token.DataAtom == atom.Noframes {
				z.NextIsNotRawText() // a crawler runs no script and shows no frame: this part is for it
			}
			x.inStyle = token.DataAtom == atom.Style
			x.element(token)
		case html.TextToken:
			if x.inStyle && x.opts.Resources {
				x.addAll(cssURLs(string(z.Text())))
			}
		case html.EndTagToken:
			x.inStyle = false
		default: // comments and doctypes
		}
	}
}

// element reports the links of one start tag.
func (x *extraction) element(t html.Token) {
	attrs := make(map[string]string, len(t.Attr))
	for _, a := range t.Attr {
		if _, dup := attrs[a.Key]; !dup {
			attrs[a.Key] = a.Val
		}
	}
	switch t.DataAtom {
	case atom.Base:
		x.setBase(attrs)
	case atom.A, atom.Area:
		x.addAttr(attrs, "href")
	case atom.Frame, atom.Iframe:
		x.addAttr(attrs, "src")
	case atom.Link:
		x.link(attrs)
	case atom.Meta:
		x.meta(attrs)
	default: // links to no page
	}
	if x.opts.Resources {
		x.resource(t.DataAtom, attrs)
	}
}

func (x *extraction) setBase(attrs map[string]string) {
	href, ok := attrs["href"]
	if !ok || x.based {
		return
	}
	if u, err := parseReference(href); err == nil {
		x.base, x.based = x.base.ResolveReference(u), true
	}
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
	for _, word := range strings.Fields(strings.ToLower(rel)) {
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

func (x *extraction) link(attrs map[string]string) {
	switch relKind(attrs["rel"]) {
	case linkPage:
		x.addAttr(attrs, "href")
	case linkResource:
		if x.opts.Resources {
			x.addAttr(attrs, "href")
		}
	case linkHint:
	}
}

func (x *extraction) meta(attrs map[string]string) {
	if strings.EqualFold(attrs["name"], "robots") && forbidsFollowing(attrs["content"]) {
		x.nofollow = true
	}
	if strings.EqualFold(attrs["http-equiv"], "refresh") {
		if target, ok := refreshTarget(attrs["content"]); ok {
			x.add(target)
		}
	}
}

// forbidsFollowing reads the directives of a meta robots element or an X-Robots-Tag header without an agent's name.
func forbidsFollowing(directives string) bool {
	for word := range strings.SplitSeq(directives, ",") {
		switch strings.ToLower(strings.TrimSpace(word)) {
		case "nofollow", "none":
			return true
		}
	}
	return false
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
func (x *extraction) resource(element atom.Atom, attrs map[string]string) {
	switch element {
	case atom.Img:
		x.addAttr(attrs, "src")
		x.addAttr(attrs, "lowsrc")
		x.addAll(srcsetURLs(attrs["srcset"]))
	case atom.Source:
		x.addAttr(attrs, "src")
		x.addAll(srcsetURLs(attrs["srcset"]))
	case atom.Script, atom.Audio, atom.Track, atom.Embed:
		x.addAttr(attrs, "src")
	case atom.Input:
		if strings.EqualFold(attrs["type"], "image") {
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
	if style := attrs["style"]; style != "" {
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

func (x *extraction) addAttr(attrs map[string]string, name string) {
	if value, ok := attrs[name]; ok {
		x.add(value)
	}
}

func (x *extraction) addAll(refs []string) {
	for _, ref := range refs {
		x.add(ref)
	}
}

// add resolves a reference and reports it unless it was seen.
func (x *extraction) add(ref string) {
	absolute, ok := x.resolve(ref)
	if !ok {
		x.links.Skipped++
		return
	}
	if x.seen[absolute] {
		return
	}
	x.seen[absolute] = true
	if x.opts.Limit > 0 && len(x.links.URLs) >= x.opts.Limit {
		x.links.Skipped++
		return
	}
	x.links.URLs = append(x.links.URLs, absolute)
}

func (x *extraction) resolve(ref string) (string, bool) {
	u, err := parseReference(ref)
	if err != nil {
		return "", false
	}
	u = x.base.ResolveReference(u)
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", false
	}
	u.Fragment, u.RawFragment, u.User = "", "", nil
	if u.Path == "" {
		u.Path = "/"
	}
	absolute := u.String()
	return absolute, len(absolute) <= maxURLLength
}

// parseReference parses a reference the way browsers forgive: white space around it, line breaks within, a percent
// sign that escapes nothing.
func parseReference(ref string) (*url.URL, error) {
	ref = strings.Trim(ref, " \t\r\n\f\x00")
	ref = strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(ref)
	return url.Parse(escapeStrayPercents(ref))
}

func escapeStrayPercents(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		b.WriteByte(s[i])
		if s[i] == '%' && (i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2])) {
			b.WriteString("25")
		}
	}
	return b.String()
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
