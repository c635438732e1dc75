package sourcefile

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// sitemapReader reads sitemaps and their indexes.
type sitemapReader struct {
	xml  *xmlText
	root bool
}

// Next implements [Reader].
func (r *sitemapReader) Next() (Entry, error) {
	for {
		token, err := r.xml.token()
		if err != nil {
			return Entry{}, err
		}
		start, is := token.(xml.StartElement)
		if !is {
			continue
		}
		name := start.Name.Local
		switch {
		case !r.root && name != "urlset" && name != "sitemapindex":
			return Entry{}, fmt.Errorf("line %d: <%s> is no sitemap", r.xml.line(), name)
		case !r.root:
			r.root = true
		case name == "url":
			return r.entry(start, "")
		case name == "sitemap":
			return r.entry(start, kindSitemap)
		}
	}
}

// entry reads the location in an element that has begun.
func (r *sitemapReader) entry(start xml.StartElement, kind string) (Entry, error) {
	line, depth := r.xml.line(), r.xml.depth
	var location strings.Builder
	inside := false
	for r.xml.depth >= depth {
		token, err := r.xml.token()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Entry{}, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			inside = r.xml.depth == depth+1 && t.Name.Local == "loc" && t.Name.Space == start.Name.Space
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				location.Write(t)
			}
		}
	}
	url := strings.TrimSpace(location.String())
	if url == "" {
		return Entry{Line: line, Err: fmt.Errorf("the <%s> has no <loc>", start.Name.Local)}, nil
	}
	return Entry{Line: line, Spec: urlSpec(url, kind)}, nil
}
