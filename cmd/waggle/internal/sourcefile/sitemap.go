package sourcefile

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/html"
)

// sitemapReader reads sitemaps and their indexes.
type sitemapReader struct {
	xml         *xmlText
	root, ended bool
	prefix      string // of the names of its elements, as "sm:"
}

// Next implements [Reader].
func (r *sitemapReader) Next() (Entry, error) {
	for {
		kind, err := r.xml.token()
		if err != nil {
			return Entry{}, r.whole(err)
		}
		prefix, local := splitName(r.xml.name)
		if kind == html.EndTagToken && (local == "urlset" || local == "sitemapindex") {
			r.ended = true
		}
		if kind != html.StartTagToken && kind != html.SelfClosingTagToken {
			continue
		}
		switch {
		case !r.root && local != "urlset" && local != "sitemapindex":
			return Entry{}, fmt.Errorf("line %d: <%s> is no sitemap", r.xml.line, r.xml.name)
		case !r.root:
			r.root, r.prefix = true, prefix
		case prefix != r.prefix:
		case local == "url":
			return r.entry(r.xml.name, "")
		case local == "sitemap":
			return r.entry(r.xml.name, kindSitemap)
		}
	}
}

// whole is an error of a token; the end of a file that has not ended its sitemap is one.
func (r *sitemapReader) whole(err error) error {
	if errors.Is(err, io.EOF) && r.root && !r.ended {
		return fmt.Errorf("line %d: %w: there is no end of the sitemap", r.xml.line, io.ErrUnexpectedEOF)
	}
	return err
}

// entry reads the location in an element that has begun.
func (r *sitemapReader) entry(name, kind string) (Entry, error) {
	line, inside, location := r.xml.line, false, ""
	for {
		token, err := r.xml.token()
		switch {
		case err != nil:
			return Entry{}, r.whole(err)
		case token == html.TextToken && inside:
			location += string(r.xml.tags.Text())
		case token == html.EndTagToken && r.xml.name == name:
			e := Entry{Line: line, Mended: r.xml.takeMended()}
			if location = strings.TrimSpace(location); location == "" {
				e.Err = fmt.Errorf("the <%s> has no <loc>", name)
			} else {
				e.Spec = urlSpec(location, kind)
			}
			return e, nil
		case token == html.StartTagToken || token == html.EndTagToken:
			inside = token == html.StartTagToken && r.xml.name == r.prefix+"loc"
		}
	}
}

// splitName is a name of XML without its prefix, and the prefix with its colon.
func splitName(name string) (prefix, local string) {
	i := strings.LastIndexByte(name, ':') + 1
	return name[:i], name[i:]
}
