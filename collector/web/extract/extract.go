// Package extract finds the links of documents: HTML pages, style sheets, RSS, Atom and JSON feeds, sitemaps and their
// indexes, and plain lists. It takes bytes and returns links with what the document says of them and of itself; it fetches
// nothing. Documents are bounded in depth and elements, so that none costs much more than its size to read.
package extract

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Document is what links are found in.
type Document struct {
	// URL is where the document was fetched; references are relative to it.
	URL *url.URL

	// Kind says how the document is read, whatever its ContentType: KindFeed, KindSitemap or KindList. Any other, or none:
	// by its ContentType, and XML by its root element.
	Kind string

	// ContentType is the document's Content-Type header; its charset helps to decode the document.
	ContentType string

	// RobotsTag are the values of the X-Robots-Tag header.
	RobotsTag []string

	// Refresh is the value of the Refresh header, which names a page as meta refresh does.
	Refresh string

	// Body is the document, decompressed.
	Body []byte

	// Open reads the body of a feed, sitemap or list that is too long for Body; nil: Body has it.
	Open func() (io.Reader, error)
}

// Find finds what a document leads to. It fails for a feed, sitemap or list that is none, or that cannot be read up to its
// first entry; any document is read as far as it goes. A document of no kind that has links leads nowhere.
func Find(ctx context.Context, doc Document, opts Options) (Result, error) {
	asked := directives{agent: opts.RobotsAgent}
	asked.addHeader(doc.RobotsTag)
	c := newCollection(doc.URL, &opts)
	c.addRefresh(doc.Refresh)
	if len(doc.Body) > 0 || doc.Open != nil {
		if err := c.read(ctx, doc, &asked); err != nil {
			return Result{}, err
		}
	}
	if asked.noFollow && !opts.FollowNofollow {
		c.found.Skipped += len(c.found.Links)
		c.found.Links = nil
	}
	c.found.NoIndex = asked.noIndex
	return c.found, nil
}

// read reads a document as what it is.
func (c *collection) read(ctx context.Context, doc Document, asked *directives) error {
	kind := doc.kind()
	switch kind {
	case "":
		return nil
	case kindPage:
		c.found.Read = kindPage
		c.limit = c.opts.MaxLinks
		readPage(c, asked, doc.Body, doc.ContentType)
		return nil
	case kindStyle:
		c.limit = c.opts.MaxLinks
		if c.opts.Resources {
			c.addAll(cssURLs(string(doc.Body)))
		}
		return nil
	}
	c.limit = c.opts.MaxListed
	body := io.Reader(bytes.NewReader(doc.Body))
	if doc.Open != nil {
		var err error
		if body, err = doc.Open(); err != nil {
			return err
		}
	}
	for range maxPacked {
		in := bufio.NewReader(body)
		body = in
		if begin, _ := in.Peek(len(gzipMagic)); string(begin) != gzipMagic || c.opts.Unzip == nil {
			break
		}
		var err error
		if body, err = c.opts.Unzip(in); err != nil {
			return err
		}
	}
	text := newText(body, doc.ContentType)
	if kind == KindSitemap {
		begin, _ := text.Peek(maxBegin) // it comes again with the next read
		begin = bytes.TrimLeft(begin, " \t\r\n")
		switch {
		case kindOfRoot(rootElement(begin)) == KindFeed: // its protocol lets feeds be sitemaps
			kind = KindFeed
		case len(begin) > 0 && begin[0] != '<' && kindOfRoot(rootElement(begin)) != KindSitemap: // and lists
			kind = KindList
		}
	}
	switch c.found.Read = kind; kind {
	case KindList:
		return readList(ctx, c, text)
	case KindFeed:
		return readFeed(ctx, c, text)
	}
	return readSitemap(ctx, c, text)
}

const (
	gzipMagic = "\x1f\x8b"

	// maxPacked is how many times a document may be packed, by mistake.
	maxPacked = 2
)

// finish judges how far a document was read. Its entries count, also if the rest cannot be read.
func (c *collection) finish(ctx context.Context, kind string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c.entries == 0:
		return fmt.Errorf("%s %w", kind, err)
	}
	c.found.Broken = fmt.Sprintf("%s broken off after %d entries: %v", kind, c.entries, err)
	return nil
}

// What else a Content-Type says than the kinds of tasks.
const (
	kindPage  = "page"
	kindStyle = "style"
)

// kind is how the document is to be read; "" when it leads nowhere. Feeds and sitemaps come with all kinds of types, so a
// type that is general, wrong or missing counts less than how the document begins.
func (d *Document) kind() string {
	switch d.Kind {
	case KindFeed, KindSitemap, KindList:
		return d.Kind
	}
	mediaType, _, _ := strings.Cut(strings.ToLower(d.ContentType), ";")
	mediaType, _, _ = strings.Cut(mediaType, ",") // two headers in one
	mediaType = strings.TrimSpace(mediaType)
	switch mediaType {
	case "text/css":
		return kindStyle
	case "application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/feed+json":
		return KindFeed
	}
	if bytes.HasPrefix(d.Body, []byte(gzipMagic)) && strings.HasSuffix(d.URL.Path, ".xml.gz") {
		return KindSitemap
	}
	if !generalType.MatchString(mediaType) {
		return ""
	}
	isPage := mediaType == "text/html" || strings.Contains(mediaType, "xhtml")
	if isPage { // what most documents are; the first element of most of these says so
		if kind := kindOfRoot(rootElement(d.Body[:min(len(d.Body), maxBegin)])); kind == "" || kind == kindPage {
			return kindPage
		}
	}
	begin, _ := newText(bytes.NewReader(d.Body[:min(len(d.Body), maxBegin)]), d.ContentType).Peek(maxBegin) // it is short
	root := ""
	if begin = bytes.TrimLeft(begin, " \t\r\n"); bytes.HasPrefix(begin, []byte("<")) || strings.Contains(mediaType, "xml") {
		root = rootElement(begin)
	}
	switch kind := kindOfRoot(root); {
	case kind == KindFeed || kind == KindSitemap:
		return kind
	case isPage, kind == kindPage && mediaType != "text/plain" && mediaType != "application/octet-stream":
		return kindPage
	case jsonFeed.Match(begin):
		return KindFeed
	case !strings.Contains(mediaType, "/") || strings.HasSuffix(mediaType, "/unknown") || mediaType == "*/*":
		if strings.HasPrefix(http.DetectContentType(begin), "text/html") {
			return kindPage
		}
	}
	return ""
}

var (
	// generalType are the types that many servers give to all they have, and those of markup. Of others no content is looked at.
	generalType = regexp.MustCompile(`^[^/]*$|^\*/\*$|/(?:x-)?(?:unknown|octet-stream|plain|force-download)$|xml|html|rss|atom|json`)

	// jsonFeed is how a JSON feed begins.
	jsonFeed = regexp.MustCompile(`^\{[^\[{]*"https?://(?:www\.)?jsonfeed\.org/version/`)
)

func kindOfRoot(root string) string {
	switch root {
	case "rss", "rdf", "feed":
		return KindFeed
	case "urlset", "sitemapindex":
		return KindSitemap
	case "html":
		return kindPage
	}
	return ""
}
