package sourcefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
)

const (
	// maxFile bounds a file in bytes, decoded, and maxEntries its entries: they are held in memory, some 1 KB each.
	maxFile    = 256 << 20
	maxEntries = 1_000_000
)

// Read reads the file of that name in a format; if format is empty, in the one that its name or its beginning shows, seen
// through gzip and byte order marks. With an error the entries are those before it.
func Read(in io.Reader, name string, format Format) (entries []Entry, err error) {
	decoded, err := textfile.Decode(in)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(decoded, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("the file is longer than %d bytes, the limit", maxFile)
	}
	if format == "" {
		if format, err = detect(text, name); err != nil {
			return nil, err
		}
	}
	read, known := map[Format]func([]byte, func(Entry) error) error{
		CSV: readCSV, JSONL: readJSONL, OPML: readOPML, Sitemap: readSitemap, URLs: readURLs,
	}[format]
	if !known {
		return nil, fmt.Errorf("format %q is not known; say csv, jsonl, opml, sitemap, urls", format)
	}
	err = read(text, func(e Entry) error {
		if len(entries) == maxEntries {
			return fmt.Errorf("line %d: the file has more than %d entries, the limit", e.Line, maxEntries)
		}
		e.mendURLs()
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// detect finds the format of a file by its name, else by how it begins: the root of XML shows it.
func detect(text []byte, name string) (Format, error) {
	switch path.Ext(strings.TrimSuffix(strings.ToLower(name), ".gz")) {
	case ".csv", ".tsv":
		return CSV, nil
	case ".jsonl", ".ndjson", ".json":
		return JSONL, nil
	case ".opml":
		return OPML, nil
	case ".urls":
		return URLs, nil
	}
	trimmed := bytes.TrimSpace(text)
	switch {
	case bytes.HasPrefix(trimmed, []byte("<")):
		return byRoot(trimmed)
	case bytes.HasPrefix(trimmed, []byte("{")):
		return JSONL, nil
	case bytes.IndexByte(text[:min(len(text), textfile.LookAhead)], 0) >= 0:
		return "", errors.New("it is a binary file, no text: neither OPML, CSV, JSON lines, a sitemap nor a list of URLs")
	}
	line, _, _ := strings.Cut(string(trimmed[:min(len(trimmed), textfile.LookAhead)]), "\n")
	for _, field := range strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ';' || r == '\t' }) {
		if _, is := columnNamed(strings.Trim(strings.TrimSpace(field), `"`)); is && !strings.Contains(line, "://") {
			return CSV, nil
		}
	}
	return URLs, nil
}

// outermost is the first element of an XML file, behind its declarations and comments.
var outermost = regexp.MustCompile(`(?s)^(?:\s|<!--.*?-->|<[?!][^>]*>|\]>)*<(?:[\w.-]+:)?([\w.-]+)`)

// byRoot finds what an XML file is by its outermost element.
func byRoot(text []byte) (Format, error) {
	found := outermost.FindSubmatch(text[:min(len(text), textfile.LookAhead)])
	if found == nil {
		return "", errors.New("no XML element begins in it")
	}
	switch root := strings.ToLower(string(found[1])); root {
	case "opml":
		return OPML, nil
	case "urlset", "sitemapindex":
		return Sitemap, nil
	case "rss", "feed", "rdf":
		return "", fmt.Errorf("it is a feed itself (<%s>), no list of feeds; `waggle source create` registers it by its URL", root)
	default:
		return "", fmt.Errorf("<%s> is neither OPML nor a sitemap", root)
	}
}
