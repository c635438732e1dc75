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
	"unicode"
	"unicode/utf8"
)

// maxSitemapEntries is how many the protocol of sitemaps.org lets one sitemap have.
const maxSitemapEntries = 50_000

// sitemapEntry is a url or sitemap element. Images and videos have some of the same names further down.
type sitemapEntry struct {
	Location     string       `xml:"loc"`
	LastModified lastModified `xml:"lastmod"`
	Alternates   []struct {
		URL string `xml:"href,attr"`
	} `xml:"link"` // the page in other languages
}

// readSitemap finds what a sitemap or a sitemap index lists, up to 50,000 entries. One that breaks the rules of XML is mended.
// It fails for what is neither, and for one that breaks off before its first entry.
func readSitemap(c *collection, text []byte) error {
	root := rootElement(text)
	if kindOfRoot(root) != KindSitemap {
		return fmt.Errorf("sitemap %w: its root element is %q", errParse, root)
	}
	entries, surplus, err := sitemapEntries(text)
	if errors.Is(err, errParse) {
		mended, more, again := sitemapEntries(mendXML(text))
		if again == nil && len(mended) > 0 {
			entries, surplus, err = mended, more, nil
		}
	}
	if err != nil {
		return fmt.Errorf("sitemap %w", err)
	}
	slices.SortStableFunc(entries, func(a, b sitemapEntry) int {
		return cmp.Compare(b.LastModified.Unix(), a.LastModified.Unix())
	})
	for _, entry := range entries {
		c.addLink(entry.Location, Link{ListedBy: KindSitemap, Modified: entry.LastModified.Time})
		for _, alternate := range entry.Alternates[:min(len(entry.Alternates), maxAttributes)] {
			c.addLink(alternate.URL, Link{ListedBy: KindSitemap})
		}
	}
	c.surplus(surplus)
	if root == "sitemapindex" {
		c.found.Kind = KindSitemap
	}
	return nil
}

// sitemapEntries reads the entries in their order, and counts those beyond the limit.
func sitemapEntries(text []byte) (entries []sitemapEntry, surplus int, err error) {
	if err := checkXML(text, 0); err != nil {
		return nil, 0, err
	}
	decoder := xml.NewDecoder(bytes.NewReader(text))
	decoder.Strict = false
	for inRoot := false; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return entries, surplus, nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", errParse, err)
		}
		start, ok := token.(xml.StartElement)
		var entry sitemapEntry
		switch name := start.Name.Local; {
		case !ok:
		case !inRoot:
			inRoot = true
		case name != "url" && name != "sitemap":
			err = decoder.Skip()
		default:
			err = decoder.DecodeElement(&entry, &start)
		}
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("%w: %w", errParse, err)
		case strings.TrimSpace(entry.Location) == "":
		case len(entries) >= maxSitemapEntries:
			surplus++
		default:
			entries = append(entries, entry)
		}
	}
}

// lastModified is what [ReadTime] reads; zero: it is not known.
type lastModified struct{ time.Time }

// UnmarshalText reads the time.
func (m *lastModified) UnmarshalText(text []byte) error {
	m.Time = ReadTime(string(text))
	return nil
}

// readList finds the URLs of a plain list: one a line, in their order. Empty lines and those that begin with # are left out.
// It fails for what is no list: when fewer than half of the lines are URLs. Else the other lines are skipped.
func readList(c *collection, body []byte) error {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	var urls []string
	other, example := 0, []byte(nil)
	for line := range bytes.FieldsFuncSeq(body, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 || line[0] == '#':
		case isListed(line):
			urls = append(urls, string(line))
		default:
			if other++; other == 1 {
				example = line
			}
		}
	}
	if other > len(urls) {
		return fmt.Errorf("list %w: %d of its lines are no URLs, such as %.60q", errParse, other, example)
	}
	c.addAll(urls)
	c.found.Skipped += other
	return nil
}

// isListed reports whether a line of a list is a URL: absolute, or a path of the same host.
func isListed(line []byte) bool {
	isOdd := func(r rune) bool {
		return r <= ' ' || r == '<' || r == '>' || r == '"' || r == utf8.RuneError || unicode.IsControl(r)
	}
	lower := bytes.ToLower(line[:min(len(line), len("https://"))])
	return len(line) <= MaxURLBytes && !bytes.ContainsFunc(line, isOdd) &&
		(line[0] == '/' || bytes.HasPrefix(lower, []byte("http://")) || bytes.HasPrefix(lower, []byte("https://")))
}
