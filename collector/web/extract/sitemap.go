package extract

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxSitemapEntries is how many the protocol of sitemaps.org lets one sitemap have.
const maxSitemapEntries = 50_000

// readSitemap finds what a sitemap or a sitemap index lists, up to 50,000 entries.
func readSitemap(ctx context.Context, c *collection, text io.Reader) error {
	limit, indexes := c.limit, 0
	c.limit = 0 // the last modified count, wherever they stand
	full, oldest := false, time.Time{}
	keepNewest := func() {
		slices.SortStableFunc(c.found.Links, func(a, b Link) int { return b.Modified.Compare(a.Modified) })
		if c.keep(limit) {
			full, oldest = true, c.found.Links[len(c.found.Links)-1].Modified
		}
	}
	add := func(location string, modified time.Time) {
		if full && !modified.After(oldest) {
			c.surplus(1)
			return
		}
		c.addLink(location, Link{ListedBy: KindSitemap, Modified: modified})
	}
	m := newMarkup(c.base, func(e *entry) {
		location, modified := "", time.Time{}
		for _, f := range e.fields {
			switch f.name {
			case "loc":
				location = cmp.Or(location, f.text)
			case "lastmod":
				modified = cmp.Or(modified, ReadTime(f.text))
			}
		}
		switch {
		case location == "":
			return
		case c.entries >= maxSitemapEntries:
			c.surplus(1)
			return
		}
		c.entries++
		if e.name == "sitemap" {
			indexes++
		}
		add(location, modified)
		for _, f := range e.fields { // the page in other languages
			if f.name == "link" {
				add(f.attrs["href"], time.Time{})
			}
		}
		if limit > 0 && (len(c.found.Links) > limit+limit/8 || c.bytes > maxLinkBytes+maxLinkBytes/8) {
			keepNewest()
		}
	}, nil)
	err := m.readKind(ctx, text, KindSitemap)
	keepNewest()
	if indexes > 0 && indexes == c.entries {
		c.found.Kind = KindSitemap
	}
	return c.finish(ctx, KindSitemap, err)
}

// readList finds the URLs of a plain list: one a line, in their order. Empty lines and those that begin with # are left out.
// It fails for what is no list: when fewer than half of the lines are URLs. Else the other lines are skipped.
func readList(ctx context.Context, c *collection, text io.Reader) error {
	var urls []string
	listed, other, example := 0, 0, ""
	lines := bufio.NewScanner(text)
	lines.Split(splitLine)
	for lines.Scan() && ctx.Err() == nil {
		line := bytes.TrimSpace(lines.Bytes())
		switch {
		case len(line) == 0 || line[0] == '#':
		case !isListed(line):
			other++
			example = cmp.Or(example, string(line))
		default:
			if listed++; c.limit == 0 || len(urls) < c.limit {
				urls = append(urls, string(line))
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if other > listed {
		return fmt.Errorf("list %w: %d of its lines are no URLs, such as %.60q", errParse, other, example)
	}
	if lines.Err() != nil && len(urls) > 0 {
		urls = urls[:len(urls)-1] // it may be cut
		listed--
	}
	c.addAll(urls)
	c.found.Skipped += other
	c.surplus(listed - len(urls))
	c.entries = listed
	return c.finish(ctx, KindList, lines.Err())
}

// splitLine splits at line breaks of all kinds, and lines that are longer than any URL.
func splitLine(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
		return i + 1, data[:i], nil
	}
	if len(data) > 0 && (atEOF || len(data) > maxField) {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// isListed reports whether a line of a list is a URL: absolute, or a path of the same host.
func isListed(line []byte) bool {
	isOdd := func(r rune) bool {
		return r <= ' ' || r == '<' || r == '>' || r == '"' || r == utf8.RuneError || unicode.IsControl(r)
	}
	return len(line) > 0 && len(line) <= MaxURLBytes && !bytes.ContainsFunc(line, isOdd) && (line[0] == '/' || isWebURL(string(line)))
}

// isWebURL reports whether a text begins as an absolute URL does.
func isWebURL(text string) bool {
	lower := strings.ToLower(text[:min(len(text), len("https://"))])
	return strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://")
}
