package extract

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// maxSitemapEntries is how many the protocol of sitemaps.org lets one sitemap have.
const maxSitemapEntries = 50_000

// sitemapEntry is a url or sitemap element.
type sitemapEntry struct {
	location     string
	alternates   []string // the page in other languages
	lastModified time.Time
}

// readSitemap finds what a sitemap or a sitemap index lists, up to 50,000 entries. It fails for what is neither, and for one
// that breaks off before its first entry.
func readSitemap(c *collection, text []byte) error {
	root := rootElement(text)
	if root != "urlset" && root != "sitemapindex" {
		return fmt.Errorf("sitemap %w: its root element is %q", errParse, root)
	}
	if err := checkXML(text, 0); err != nil {
		return fmt.Errorf("sitemap %w", err)
	}
	entries, surplus, err := sitemapEntries(text)
	if err != nil && len(entries) == 0 {
		return fmt.Errorf("sitemap %w: %w", errParse, err)
	}
	slices.SortStableFunc(entries, func(a, b sitemapEntry) int {
		return cmp.Compare(b.lastModified.Unix(), a.lastModified.Unix())
	})
	for _, entry := range entries {
		c.addLink(entry.location, Link{ListedBy: KindSitemap, Modified: entry.lastModified})
		for _, alternate := range entry.alternates {
			c.addLink(alternate, Link{ListedBy: KindSitemap})
		}
	}
	c.surplus(surplus)
	if root == "sitemapindex" {
		c.found.Kind = KindSitemap
	}
	return nil
}

// sitemapEntries reads the entries in their order, and counts those beyond the limit. Beside an error it returns what came
// before.
func sitemapEntries(text []byte) (entries []sitemapEntry, surplus int, err error) {
	decoder := xml.NewDecoder(bytes.NewReader(text))
	decoder.Strict = false
	var entry sitemapEntry
	var path []string // names of the open elements
	for {
		token, err := decoder.Token()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return entries, surplus, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			path = append(path, t.Name.Local)
			if len(path) == 2 {
				entry = sitemapEntry{}
			}
			entry.alternate(t)
		case xml.CharData:
			entry.text(path, string(t))
		case xml.EndElement:
			path = path[:max(len(path)-1, 0)]
			switch {
			case len(path) != 1 || strings.TrimSpace(entry.location) == "":
			case len(entries) >= maxSitemapEntries:
				surplus++
			default:
				entries = append(entries, entry)
			}
			if len(path) == 1 {
				entry = sitemapEntry{}
			}
		}
	}
}

// alternate takes <xhtml:link rel="alternate" href="...">.
func (e *sitemapEntry) alternate(start xml.StartElement) {
	if start.Name.Local != "link" {
		return
	}
	for _, attr := range start.Attr {
		if attr.Name.Local == "href" && len(e.alternates) < maxAttributes {
			e.alternates = append(e.alternates, attr.Value)
		}
	}
}

// text takes the content of an entry's own elements; images and videos have some of the same names further down.
func (e *sitemapEntry) text(path []string, content string) {
	if len(path) != 3 || (path[1] != "url" && path[1] != "sitemap") || len(e.location) > MaxURLBytes {
		return
	}
	switch path[2] {
	case "loc":
		e.location += content
	case "lastmod":
		if modified, ok := parseLastModified(content); ok {
			e.lastModified = modified
		}
	}
}

// parseLastModified reads W3C's profile of ISO 8601, in each of its lengths. A day, a month or a year is at its end, when
// nothing can have changed in it any more.
func parseLastModified(text string) (time.Time, bool) {
	text = strings.TrimSpace(text)
	for _, form := range []struct {
		layout              string
		years, months, days int
	}{
		{layout: time.RFC3339},
		{layout: "2006-01-02T15:04Z07:00"},
		{layout: "2006-01-02T15:04:05"},
		{layout: time.DateTime},
		{layout: time.DateOnly, days: 1},
		{layout: "2006-01", months: 1},
		{layout: "2006", years: 1},
	} {
		if t, err := time.Parse(form.layout, text); err == nil {
			return t.AddDate(form.years, form.months, form.days), true
		}
	}
	return time.Time{}, false
}

// readList finds the URLs of a plain list: one a line, in their order. Empty lines and those that begin with # are left out.
func readList(c *collection, body []byte) {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	for line := range bytes.FieldsFuncSeq(body, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 || line[0] == '#':
		case len(line) > MaxURLBytes:
			c.found.Skipped++
		default:
			c.add(string(line))
		}
	}
}
