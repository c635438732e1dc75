// Package extract finds the links of documents: HTML pages, style sheets, RSS, Atom and JSON feeds, sitemaps and their
// indexes, and plain lists. It takes bytes and returns links with what the document says of them and of itself; it fetches
// nothing. Documents are bounded in depth and elements, so that none costs much more than its size to read.
package extract

import (
	"bytes"
	"context"
	"mime"
	"net/url"
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
}

// Find finds what a document leads to. It fails for a feed or a sitemap that is none, or would take too much time or memory
// to read (ErrTooLarge); a page is read as far as it goes. A document of no kind that has links leads nowhere.
func Find(ctx context.Context, doc Document, opts Options) (Result, error) {
	asked := directives{agent: opts.RobotsAgent}
	asked.addHeader(doc.RobotsTag)
	c := newCollection(doc.URL, &opts)
	c.addRefresh(doc.Refresh)
	if len(doc.Body) > 0 {
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
	kind, body := doc.kind(), doc.Body
	c.limit = c.opts.MaxLinks
	if kind == KindFeed || kind == KindSitemap || kind == KindList {
		c.limit = c.opts.MaxListed
		if bytes.HasPrefix(body, []byte("\x1f\x8b")) && c.opts.Unzip != nil {
			var err error
			if body, err = c.opts.Unzip(body); err != nil {
				return err
			}
		}
	}
	switch kind {
	case kindPage:
		readPage(c, asked, body, doc.ContentType)
	case kindStyle:
		if c.opts.Resources {
			c.addAll(cssURLs(string(body)))
		}
	case KindList:
		return readList(c, utf8XML(body, doc.ContentType))
	case KindFeed:
		return readFeed(ctx, c, utf8XML(body, doc.ContentType))
	case KindSitemap:
		text := utf8XML(body, doc.ContentType)
		if kindOfRoot(rootElement(text)) == KindFeed { // its protocol lets feeds be sitemaps
			return readFeed(ctx, c, text)
		}
		if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) > 0 && trimmed[0] != '<' { // and lists
			return readList(c, text)
		}
		return readSitemap(c, text)
	}
	return nil
}

// What else a Content-Type says than the kinds of tasks.
const (
	kindPage  = "page"
	kindStyle = "style"
)

// kind is how the document is to be read; "" when it leads nowhere.
func (d *Document) kind() string {
	switch d.Kind {
	case KindFeed, KindSitemap, KindList:
		return d.Kind
	}
	mediaType, _, _ := mime.ParseMediaType(d.ContentType)
	switch mediaType {
	case "text/html", "application/xhtml+xml":
		return kindPage
	case "text/css":
		return kindStyle
	case "application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/feed+json":
		return KindFeed
	case "application/gzip", "application/x-gzip":
		if strings.HasSuffix(d.URL.Path, ".xml.gz") {
			return KindSitemap
		}
	case "application/xml", "text/xml":
		return kindOfRoot(rootElement(utf8XML(d.Body, d.ContentType)))
	}
	return ""
}

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
